/* probe_walk.c - byte ranges of a file read in a given order, the way a cold token would: the measurement of layouts. */
#define _GNU_SOURCE
#include "error.h"
#include "hash.h"
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, WORD = 8, MAX_REQUEST_BYTES = 64 << 20 };

typedef struct walk {
    const char *path;
    int fd;
    const uint64_t *ranges; /* [count][2] offset, bytes */
    size_t count;
    uint64_t file_bytes;
    uint64_t request_bytes;
    cf_memory buffer; /* [request_bytes] */
    const uint8_t *map;
    size_t range; /* the next word to be hashed: at `at` of this range */
    uint64_t at;
    cf_xxh64 digest;
} walk;

static uint64_t first_of(const walk *job, size_t index)
{
#ifdef CFLOW_MUTANT_WALK_BACKWARDS
    index = job->count - 1 - index;
#endif
    return job->ranges[2 * index];
}

static uint64_t end_of(const walk *job, size_t index)
{
#ifdef CFLOW_MUTANT_WALK_BACKWARDS
    index = job->count - 1 - index;
#endif
    return job->ranges[2 * index] + job->ranges[2 * index + 1];
}

/* Hashes the words that are due and lie before `end`; data[0] is byte `begin` of the file. */
static void take(walk *job, const uint8_t *data, uint64_t begin, uint64_t end)
{
    while (job->range < job->count && job->at >= begin && job->at < end) {
        const uint64_t last = end_of(job, job->range) - WORD;
        cf_xxh64_update(&job->digest, data + (job->at - begin), WORD);
        if (job->at < last) {
            job->at = last - job->at > PAGE ? job->at + PAGE : last;
        } else if (++job->range < job->count) {
            job->at = first_of(job, job->range);
        }
    }
}

/* Ranges that follow each other in use and, but for less than a page, in the file: from `index` on. */
static size_t run_length(const walk *job, size_t index)
{
    size_t length = 1;
    while (index + length < job->count) {
        const uint64_t end = end_of(job, index + length - 1), next = first_of(job, index + length);
        if (next < end || next - end >= PAGE) {
            break;
        }
        length++;
    }
    return length;
}

static int read_request(const walk *job, uint64_t offset, uint64_t wanted, uint64_t bytes)
{
    uint64_t have = 0;
    while (have < wanted) {
        const ssize_t got =
            pread(job->fd, (uint8_t *)job->buffer.data + have, (size_t)(bytes - have), (off_t)(offset + have));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return cf_fail(CFLOW_ERR_IO, "%s: read of %llu bytes at offset %llu: %s", job->path,
                           (unsigned long long)bytes, (unsigned long long)offset,
                           got < 0 ? strerror(errno) : "end of file");
        }
        have += (uint64_t)got;
    }
    return CFLOW_OK;
}

/* One run of ranges by read calls. unit: what offsets and lengths are rounded to. */
static int read_run(walk *job, uint64_t begin, uint64_t end, uint64_t unit)
{
    for (uint64_t offset = begin / unit * unit; offset < end; offset += job->request_bytes) {
        const uint64_t wanted = end - offset < job->request_bytes ? end - offset : job->request_bytes;
        const int status = read_request(job, offset, wanted, (wanted + unit - 1) / unit * unit);
        if (status != CFLOW_OK) {
            return status;
        }
        take(job, job->buffer.data, offset, offset + wanted);
    }
    return CFLOW_OK;
}

static int read_all(walk *job, uint64_t unit)
{
    for (size_t i = 0; i < job->count;) {
        const size_t length = run_length(job, i);
        const int status = read_run(job, first_of(job, i), end_of(job, i + length - 1), unit);
        if (status != CFLOW_OK) {
            return status;
        }
        i += length;
    }
    return CFLOW_OK;
}

static int check_ranges(const walk *job)
{
    for (size_t i = 0; i < job->count; i++) {
        const uint64_t offset = job->ranges[2 * i], bytes = job->ranges[2 * i + 1];
        if (offset % WORD != 0 || bytes % WORD != 0 || bytes == 0 || offset > job->file_bytes ||
            bytes > job->file_bytes - offset) {
            return cf_fail(CFLOW_ERR_ARGUMENT,
                           "cflow_probe_walk: range %zu (offset %llu, %llu bytes); allowed: multiples of 8 inside the "
                           "%llu bytes of %s",
                           i, (unsigned long long)offset, (unsigned long long)bytes,
                           (unsigned long long)job->file_bytes, job->path);
        }
    }
    return CFLOW_OK;
}

static int open_file(walk *job, int way)
{
    job->fd = open(job->path, O_RDONLY | O_CLOEXEC | (way == CFLOW_WALK_DIRECT ? O_DIRECT : 0));
    if (job->fd < 0) {
        return cf_fail(way == CFLOW_WALK_DIRECT && errno == EINVAL ? CFLOW_ERR_UNSUPPORTED : CFLOW_ERR_IO,
                       "%s: cannot open%s: %s", job->path, way == CFLOW_WALK_DIRECT ? " with O_DIRECT" : "",
                       strerror(errno));
    }
    struct stat info;
    if (fstat(job->fd, &info) != 0 || info.st_size <= 0) {
        return cf_fail(CFLOW_ERR_IO, "%s: cannot tell its length, or it has none", job->path);
    }
    job->file_bytes = (uint64_t)info.st_size;
    if (way != CFLOW_WALK_MMAP) {
        return cf_memory_map(&job->buffer, (size_t)job->request_bytes, 1, "buffer of a read", NULL);
    }
    void *map = mmap(NULL, (size_t)job->file_bytes, PROT_READ, MAP_SHARED, job->fd, 0);
    if (map == MAP_FAILED) {
        return cf_fail(CFLOW_ERR_IO, "%s: mmap of %llu bytes: %s", job->path, (unsigned long long)job->file_bytes,
                       strerror(errno));
    }
    job->map = map;
    return CFLOW_OK;
}

const char *cflow_walk_way_name(int way)
{
    static const char *const names[CFLOW_WALK_COUNT] = {"mmap", "buffered", "direct"};
    return way >= 0 && way < CFLOW_WALK_COUNT ? names[way] : NULL;
}

int cflow_probe_walk(const char *path, int way, const uint64_t *ranges, size_t count, uint64_t request_bytes,
                     uint64_t *ns_out, uint64_t *digest_out)
{
    if (path == NULL || ranges == NULL || count == 0 || ns_out == NULL || digest_out == NULL || way < 0 ||
        way >= CFLOW_WALK_COUNT) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_probe_walk: NULL argument, no range, or way %d; allowed: 0 to %d",
                       way, CFLOW_WALK_COUNT - 1);
    }
    if (request_bytes == 0 || request_bytes % PAGE != 0 || request_bytes > MAX_REQUEST_BYTES) {
        return cf_fail(CFLOW_ERR_ARGUMENT,
                       "cflow_probe_walk: request_bytes is %llu; allowed: 4,096 to %d in steps of 4,096",
                       (unsigned long long)request_bytes, MAX_REQUEST_BYTES);
    }
    walk job = {.path = path, .fd = -1, .ranges = ranges, .count = count, .request_bytes = request_bytes};
    int status = open_file(&job, way);
    if (status == CFLOW_OK) {
        status = check_ranges(&job);
    }
    if (status == CFLOW_OK) {
        cf_xxh64_init(&job.digest);
        job.at = first_of(&job, 0);
        if (way != CFLOW_WALK_MMAP) {
            memset(job.buffer.data, 0, job.buffer.bytes); /* its first touch is not the file's time */
        }
        const uint64_t start_ns = cf_now_ns();
        if (way == CFLOW_WALK_MMAP) {
            take(&job, job.map, 0, job.file_bytes);
        } else {
            status = read_all(&job, way == CFLOW_WALK_DIRECT ? PAGE : 1);
        }
        *ns_out = cf_now_ns() - start_ns;
        *digest_out = cf_xxh64_digest(&job.digest);
    }
    if (job.map != NULL) {
        (void)munmap((void *)(uintptr_t)job.map, (size_t)job.file_bytes);
    }
    cf_memory_unmap(&job.buffer);
    if (job.fd >= 0) {
        (void)close(job.fd);
    }
    return status;
}
