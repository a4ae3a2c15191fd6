/* test_cache.c - the cache model's edges: arguments, access over several lines, counts by piece. */
#include "cache.h"
#include "check.h"

#include "cflow.h"

static uint64_t counts[CFLOW_ACCESS_KIND_COUNT][CFLOW_ACCESS_FIELD_COUNT];

static uint64_t count(const cflow_cache *cache, int piece, int kind, int field)
{
    CHECK(cflow_cache_counts(cache, piece, &counts[0][0]) == CFLOW_OK);
    return counts[kind][field];
}

static void test_arguments(void)
{
    cflow_cache *cache = NULL;
    CHECK(cflow_cache_create(32768, 8, 64, NULL) == CFLOW_ERR_ARGUMENT);
    CHECK(cflow_cache_create(32768, 8, 63, &cache) == CFLOW_ERR_ARGUMENT);
    CHECK(cflow_cache_create(UINT64_MAX, 1, 2, &cache) == CFLOW_ERR_ARGUMENT);
    CHECK(cache == NULL);
    CHECK(cflow_cache_run(NULL, NULL, 0) == CFLOW_ERR_ARGUMENT);
    CHECK(cflow_cache_counts(NULL, 0, &counts[0][0]) == CFLOW_ERR_ARGUMENT);
    CHECK(cflow_record_to(NULL) == CFLOW_ERR_UNSUPPORTED);
    cflow_cache_destroy(NULL);
}

static void test_two_ways(void)
{
    cflow_cache *cache = NULL;
    CHECK(cflow_cache_create(2 * 3 * 16, 2, 16, &cache) == CFLOW_OK); /* 3 sets of 2 ways */
    if (cache == NULL) {
        return;
    }
    CHECK(cflow_cache_counts(cache, -1, &counts[0][0]) == CFLOW_ERR_ARGUMENT);
    CHECK(cflow_cache_counts(cache, CFLOW_PIECE_KIND_COUNT + 1, &counts[0][0]) == CFLOW_ERR_ARGUMENT);
    CHECK(cflow_cache_run(cache, NULL, 1) == CFLOW_ERR_ARGUMENT);
    CHECK(cflow_cache_run(cache, NULL, 0) == CFLOW_OK);
    cf_cache_access(cache, 0, 1, CFLOW_PIECE_QKV, CFLOW_ACCESS_WEIGHT);       /* line 0: absent */
    cf_cache_access(cache, 48, 1, CFLOW_PIECE_QKV, CFLOW_ACCESS_WEIGHT);      /* line 3, the same set: absent */
    cf_cache_access(cache, 15, 1, CFLOW_PIECE_DOWN, CFLOW_ACCESS_WEIGHT);     /* line 0: there */
    cf_cache_access(cache, 96, 1, CFLOW_PIECE_DOWN, CFLOW_ACCESS_ACTIVATION); /* line 6 drives out line 3 */
    cf_cache_access(cache, 0, 1, CFLOW_PIECE_DOWN, CFLOW_ACCESS_WEIGHT);      /* line 0: still there */
    cf_cache_access(cache, 48, 1, CFLOW_PIECE_DOWN, CFLOW_ACCESS_WEIGHT);     /* line 3: gone */
    CHECK(count(cache, CFLOW_PIECE_QKV, CFLOW_ACCESS_WEIGHT, CFLOW_ACCESS_FIELD_MISSES) == 2);
    CHECK(count(cache, CFLOW_PIECE_DOWN, CFLOW_ACCESS_WEIGHT, CFLOW_ACCESS_FIELD_ACCESSES) == 3);
    CHECK(count(cache, CFLOW_PIECE_DOWN, CFLOW_ACCESS_WEIGHT, CFLOW_ACCESS_FIELD_MISSES) == 1);
    CHECK(count(cache, CFLOW_PIECE_DOWN, CFLOW_ACCESS_ACTIVATION, CFLOW_ACCESS_FIELD_MISSES) == 1);
    const uint64_t over_three_lines[3] = {1000 * 16 + 15, 18, CFLOW_ACCESS_OUTPUT_STORE};
    CHECK(cflow_cache_run(cache, over_three_lines, 1) == CFLOW_OK);
    CHECK(count(cache, CFLOW_PIECE_KIND_COUNT, CFLOW_ACCESS_OUTPUT_STORE, CFLOW_ACCESS_FIELD_MISSES) == 1);
    CHECK(count(cache, CFLOW_PIECE_KIND_COUNT, CFLOW_ACCESS_OUTPUT_STORE, CFLOW_ACCESS_FIELD_BYTES) == 18);
    for (uint64_t line = 1000; line < 1003; line++) {
        cf_cache_access(cache, line * 16, 16, CFLOW_PIECE_HEAD, CFLOW_ACCESS_SCALE);
    }
    CHECK(count(cache, CFLOW_PIECE_HEAD, CFLOW_ACCESS_SCALE, CFLOW_ACCESS_FIELD_MISSES) == 0);
    cflow_cache_destroy(cache);
}

int main(void)
{
    test_arguments();
    test_two_ways();
    return check_summary("cache");
}
