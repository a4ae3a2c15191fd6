/*
 * cache.c - a set-associative cache with true LRU replacement; loads and stores allocate alike. An access that touches
 * several lines looks all of them up and counts as one miss when any of them was absent.
 */
#include "cache.h"

#include "error.h"

#include <stdlib.h>
#include <string.h>

struct cflow_cache {
    uint64_t sets;
    uint32_t ways;
    uint32_t line_shift;
    uint64_t *lines; /* [sets][ways] line numbers, the most recently used first */
    uint64_t counts[CF_CACHE_PIECES][CFLOW_ACCESS_KIND_COUNT][CFLOW_ACCESS_FIELD_COUNT];
};

static int is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

int cflow_cache_create(uint64_t size_bytes, uint32_t ways, uint32_t line_bytes, cflow_cache **cache_out)
{
    if (cache_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_cache_create: cache_out is NULL");
    }
    *cache_out = NULL;
    if (!is_power_of_two(line_bytes) || line_bytes < 2 || line_bytes > 4096) {
        return cf_fail(CFLOW_ERR_ARGUMENT,
                       "cflow_cache_create: line_bytes is %lu; allowed are powers of two, 2 .. 4096",
                       (unsigned long)line_bytes);
    }
    if (ways < 1 || ways > 1024) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_cache_create: ways is %lu; allowed are 1 .. 1024",
                       (unsigned long)ways);
    }
    const uint64_t set_bytes = (uint64_t)ways * line_bytes;
    if (size_bytes == 0 || size_bytes % set_bytes != 0 || size_bytes > (uint64_t)1 << 32) {
        return cf_fail(
            CFLOW_ERR_ARGUMENT,
            "cflow_cache_create: size_bytes is %llu; allowed are multiples of ways * line_bytes = %llu up to "
            "2^32",
            (unsigned long long)size_bytes, (unsigned long long)set_bytes);
    }
    const size_t line_count = (size_t)(size_bytes / line_bytes);
    cflow_cache *cache = calloc(1, sizeof *cache);
    uint64_t *lines = malloc(line_count * sizeof *lines);
    if (cache == NULL || lines == NULL) {
        free(cache);
        free(lines);
        return cf_fail(CFLOW_ERR_MEMORY, "cflow_cache_create: no memory for %llu lines",
                       (unsigned long long)line_count);
    }
    memset(lines, 0xff, line_count * sizeof *lines); /* no line has this number: lines have at least 2 bytes */
    cache->sets = size_bytes / set_bytes;
    cache->ways = ways;
    while (line_bytes >> cache->line_shift > 1) {
        cache->line_shift++;
    }
    cache->lines = lines;
    *cache_out = cache;
    return CFLOW_OK;
}

void cflow_cache_destroy(cflow_cache *cache)
{
    if (cache != NULL) {
        free(cache->lines);
        free(cache);
    }
}

/* Makes `line` the most recently used of its set; 1 when it was absent. */
static int touch(cflow_cache *cache, uint64_t line)
{
    uint64_t *const set = cache->lines + line % cache->sets * cache->ways;
    if (set[0] == line) {
        return 0;
    }
    uint32_t way = 1;
    while (way < cache->ways && set[way] != line) {
        way++;
    }
    const int absent = way == cache->ways;
    for (uint32_t i = absent ? way - 1 : way; i > 0; i--) {
        set[i] = set[i - 1];
    }
    set[0] = line;
    return absent;
}

void cf_cache_access(cflow_cache *cache, uint64_t address, uint64_t bytes, uint32_t piece, uint32_t kind)
{
    uint64_t *const counts = cache->counts[piece][kind];
    const uint64_t last = (address + (bytes - 1)) >> cache->line_shift;
    int missed = 0;
    for (uint64_t line = address >> cache->line_shift; line <= last; line++) {
        missed |= touch(cache, line);
    }
    counts[CFLOW_ACCESS_FIELD_ACCESSES]++;
    counts[CFLOW_ACCESS_FIELD_BYTES] += bytes;
    counts[CFLOW_ACCESS_FIELD_MISSES] += (uint64_t)missed;
}

int cflow_cache_run(cflow_cache *cache, const uint64_t *accesses, size_t count)
{
    if (cache == NULL || (accesses == NULL && count > 0)) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_cache_run: cache and accesses must not be NULL");
    }
    for (size_t i = 0; i < count; i++) {
        const uint64_t address = accesses[3 * i], bytes = accesses[3 * i + 1], kind = accesses[3 * i + 2];
        if (bytes == 0 || bytes > 4096 || address > UINT64_MAX - 8192 || kind >= CFLOW_ACCESS_KIND_COUNT) {
            return cf_fail(
                CFLOW_ERR_ARGUMENT,
                "cflow_cache_run: access %zu is (%llu, %llu, %llu); allowed are an address up to 2^64 - 8193, "
                "1 .. 4096 bytes, and a kind below %d",
                i, (unsigned long long)address, (unsigned long long)bytes, (unsigned long long)kind,
                CFLOW_ACCESS_KIND_COUNT);
        }
        cf_cache_access(cache, address, bytes, CFLOW_PIECE_KIND_COUNT, (uint32_t)kind);
    }
    return CFLOW_OK;
}

int cflow_cache_counts(const cflow_cache *cache, int piece, uint64_t *counts_out)
{
    if (cache == NULL || counts_out == NULL || piece < 0 || piece > CFLOW_PIECE_KIND_COUNT) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_cache_counts: NULL argument, or piece is %d; allowed are 0 .. %d",
                       piece, CFLOW_PIECE_KIND_COUNT);
    }
    memcpy(counts_out, cache->counts[piece], sizeof cache->counts[piece]);
    return CFLOW_OK;
}
