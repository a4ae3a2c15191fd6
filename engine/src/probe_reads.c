/* probe_reads.c - the reader of sessions on its own: ranges of any file, for its tests and its speed. */
#define _GNU_SOURCE
#include "error.h"
#include "pool.h"
#include "reader.h"
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 4096 };

typedef struct reads_job {
    cf_reader *reader;
    const uint64_t *ranges;
    size_t count;
    uint32_t depth;
    uint8_t *buffers; /* [depth][stride] */
    uint64_t stride;
    uint8_t *out; /* NULL = the bytes are not wanted */
    uint64_t issue_ns;
} reads_job;

static int issue(reads_job *job, size_t index, uint32_t *tickets)
{
    char what[32];
    (void)snprintf(what, sizeof what, "range %zu", index);
    const uint64_t start_ns = cf_now_ns();
    const uint32_t slot = (uint32_t)(index % job->depth);
    const int status = cf_reader_issue(job->reader, job->ranges[2 * index], job->ranges[2 * index + 1],
                                       job->buffers + slot * job->stride, what, &tickets[slot]);
    job->issue_ns += cf_now_ns() - start_ns;
    return status;
}

static int run(reads_job *job)
{
    uint32_t *tickets = calloc(job->depth, sizeof *tickets);
    if (tickets == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "cflow_probe_reads: out of memory");
    }
    uint8_t *out = job->out;
    int status = CFLOW_OK;
    for (size_t i = 0; i < job->depth && i < job->count && status == CFLOW_OK; i++) {
        status = issue(job, i, tickets);
    }
    for (size_t i = 0; i < job->count && status == CFLOW_OK; i++) {
        status = cf_reader_wait(job->reader, tickets[i % job->depth], NULL);
        if (status == CFLOW_OK && out != NULL) {
            const uint64_t offset = job->ranges[2 * i], bytes = job->ranges[2 * i + 1];
            memcpy(out, job->buffers + i % job->depth * job->stride + offset % CF_READ_ALIGN, bytes);
            out += bytes;
        }
        if (status == CFLOW_OK && i + job->depth < job->count) {
            status = issue(job, i + job->depth, tickets);
        }
    }
    free(tickets);
    return status;
}

/* Buffers for the longest range; checks the ranges, so that no size overflows. */
static int make_buffers(reads_job *job, const char *path, uint64_t file_bytes, cf_memory *memory)
{
    for (size_t i = 0; i < job->count; i++) {
        const uint64_t offset = job->ranges[2 * i], bytes = job->ranges[2 * i + 1];
        if (bytes == 0 || offset > file_bytes || bytes > file_bytes - offset) {
            return cf_fail(CFLOW_ERR_ARGUMENT, "%s: range %zu: %llu bytes at offset %llu; the file has %llu bytes",
                           path, i, (unsigned long long)bytes, (unsigned long long)offset,
                           (unsigned long long)file_bytes);
        }
        const uint64_t span = cf_reader_span(offset, bytes);
        job->stride = span > job->stride ? span : job->stride;
    }
    if (job->stride > SIZE_MAX / 2 / job->depth) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: %u buffers of %llu bytes are more than can be addressed", path,
                       job->depth, (unsigned long long)job->stride);
    }
    const int status =
        cf_memory_map(memory, (size_t)(job->stride * job->depth), 1, "buffers of cflow_probe_reads", NULL);
    if (status == CFLOW_OK) {
        memset(memory->data, 0, memory->bytes);
        job->buffers = memory->data;
    }
    return status;
}

static int read_file(int fd, const char *path, const cf_reader_options *options, reads_job *job, uint64_t *fields_out)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        return cf_fail(CFLOW_ERR_IO, "%s: %s", path, strerror(errno));
    }
    cf_memory memory = {0};
    int status = make_buffers(job, path, (uint64_t)about.st_size, &memory);
    if (status == CFLOW_OK) {
        status = cf_reader_create(fd, path, (uint64_t)about.st_size, options, &job->reader);
    }
    if (status == CFLOW_OK) {
        const uint64_t start_ns = cf_now_ns();
        status = run(job);
        fields_out[CFLOW_READS_NS] = cf_now_ns() - start_ns;
        cf_reader_totals totals;
        cf_reader_totals_get(job->reader, &totals);
        fields_out[CFLOW_READS_READER] = (uint64_t)cf_reader_kind(job->reader);
        fields_out[CFLOW_READS_PATH] = (uint64_t)cf_reader_path(job->reader);
        fields_out[CFLOW_READS_ASKED_BYTES] = totals.asked_bytes;
        fields_out[CFLOW_READS_WAIT_NS] = totals.wait_ns;
        fields_out[CFLOW_READS_READ_NS] = totals.read_ns;
        fields_out[CFLOW_READS_ISSUE_NS] = job->issue_ns;
    }
    /* Before the memory that reads may still be under way into. */
    cf_reader_destroy(job->reader);
    cf_memory_unmap(&memory);
    return status;
}

int cflow_probe_reads(const char *path, int reader, int read_path, uint64_t request_bytes, uint64_t bytes_per_s,
                      uint32_t depth, const uint64_t *ranges, size_t count, void *out, uint64_t *fields_out)
{
    if (path == NULL || ranges == NULL || fields_out == NULL || count == 0 || depth == 0 || depth > DEPTH_MAX) {
        return cf_fail(CFLOW_ERR_ARGUMENT,
                       "cflow_probe_reads: NULL argument, no ranges, or depth %u (allowed: 1 to %d)", depth, DEPTH_MAX);
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return cf_fail(CFLOW_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    }
    const cf_reader_options options = {
        .kind = reader, .path = read_path, .request_bytes = request_bytes, .bytes_per_s = bytes_per_s, .reads = depth};
    reads_job job = {.ranges = ranges, .count = count, .depth = depth, .out = out};
    const int status = read_file(fd, path, &options, &job, fields_out);
    (void)close(fd);
    return status;
}
