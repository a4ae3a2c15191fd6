#define _GNU_SOURCE
#include "load.h"

#include "hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of each worker, on its CPU; more than these no longer shorten the wait for the device. */
enum { READERS_PER_WORKER = 4 };

/* O_DIRECT: devices ask for 512 or 4,096; the format aligns data to 4,096. */
enum { DIRECT_ALIGN = 4096 };

/* Chunks that the readers of one node take, in file order. */
typedef struct queue {
    _Alignas(64) _Atomic uint64_t next; /* index into the chunks of the queue */
    uint64_t first, last;               /* in load_job.order */
} queue;

/* Hash of one tensor, brought forward over chunks that have come, by one reader at a time. */
typedef struct check {
    const cf_tensor *tensor;
    uint64_t begin; /* in the target */
    _Atomic int busy;
    uint64_t hashed;
    cf_xxh64 state;
} check;

typedef struct load_job {
    const cf_load *load;
    int direct_fd; /* -1: ordinary reads only */
    uint64_t page_bytes;
    cf_worker_nodes nodes;
    queue queues[CF_MAX_THREADS];
    uint64_t *order;       /* [chunks] chunks by node, ascending */
    _Atomic uint8_t *done; /* [chunks] */
    uint32_t check_count;
    check *checks; /* [check_count] tensors, ascending */
    _Atomic uint64_t direct_bytes;
    cf_failure failure;
} load_job;

void cf_failure_keep(cf_failure *failure, int status)
{
    int expected = 0;
    if (atomic_compare_exchange_strong(&failure->failed, &expected, 1)) {
        failure->status = status;
        strncpy(failure->message, cflow_last_error(), sizeof failure->message - 1);
    }
}

int cf_failure_status(const cf_failure *failure)
{
    return failure->status == CFLOW_OK ? CFLOW_OK : cf_fail(failure->status, "%s", failure->message);
}

void cf_worker_nodes_of(const cf_pool *pool, cf_worker_nodes *nodes)
{
    nodes->count = 0;
    for (int i = 0; i < cf_pool_threads(pool); i++) {
        /* Workers of a node are neighbours. */
        if (i == 0 || cf_pool_place(pool, i)->node != cf_pool_place(pool, i - 1)->node) {
            nodes->count++;
        }
        nodes->of[i] = nodes->count - 1;
    }
}

uint64_t cf_load_chunks(const cf_spans *spans)
{
    return (spans->bytes + CF_CHUNK_BYTES - 1) / CF_CHUNK_BYTES;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Whether ordinary reads are the better ones: at least half of the range is in the page cache, or nobody can tell. */
static int is_cached(const load_job *job, uint64_t offset, uint64_t bytes)
{
    unsigned char resident[CF_CHUNK_BYTES / 4096 + 1];
    const uint64_t begin = offset / job->page_bytes * job->page_bytes;
    const uint64_t pages = (offset + bytes - begin + job->page_bytes - 1) / job->page_bytes;
    if (mincore((void *)(uintptr_t)(job->load->model->map + begin), (size_t)(offset + bytes - begin), resident) != 0) {
        return 1;
    }
    uint64_t found = 0;
    for (uint64_t i = 0; i < pages; i++) {
        found += resident[i] & 1u;
    }
    return 2 * found >= pages;
}

/* Reads past the page cache as far as that goes; returns how far. The rest is for ordinary reads to fetch or to report. */
static uint64_t read_direct(const load_job *job, uint8_t *to, uint64_t offset, uint64_t bytes)
{
    /* Whole units, also at the end of the file, where fewer bytes come; the target has room for them. */
    const uint64_t wanted = (bytes + DIRECT_ALIGN - 1) / DIRECT_ALIGN * DIRECT_ALIGN;
    uint64_t have = 0;
    while (have < bytes && have % DIRECT_ALIGN == 0) {
        const ssize_t got = pread(job->direct_fd, to + have, wanted - have, (off_t)(offset + have));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        have += (uint64_t)got;
    }
    return have < bytes ? have : bytes;
}

static int read_ordinary(const cflow_model *model, uint8_t *to, uint64_t offset, uint64_t bytes)
{
    while (bytes > 0) {
        const ssize_t got = pread(model->fd, to, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return cf_fail(CFLOW_ERR_IO, "%s: read of %llu bytes at offset %llu: %s", model->path,
                           (unsigned long long)bytes, (unsigned long long)offset,
                           got == 0 ? "the file ended" : strerror(errno));
        }
        to += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return CFLOW_OK;
}

static int read_range(load_job *job, uint8_t *to, uint64_t offset, uint64_t bytes)
{
    uint64_t have = 0;
    if (job->direct_fd >= 0 && !is_cached(job, offset, bytes)) {
        have = read_direct(job, to, offset, bytes);
        atomic_fetch_add_explicit(&job->direct_bytes, have, memory_order_relaxed);
    }
    return read_ordinary(job->load->model, to + have, offset + have, bytes - have);
}

static int read_chunk(load_job *job, uint64_t chunk)
{
    const cf_spans *spans = job->load->spans;
    const uint64_t begin = chunk * CF_CHUNK_BYTES, end = begin + CF_CHUNK_BYTES;
    int status = CFLOW_OK;
    for (uint32_t i = cf_spans_after(spans, begin); i < spans->count && status == CFLOW_OK; i++) {
        const cf_span *span = &spans->span[i];
        if (span->position >= end) {
            break;
        }
        const uint64_t from = span->position > begin ? span->position : begin;
        const uint64_t stop = span->position + span->bytes < end ? span->position + span->bytes : end;
        status = read_range(job, job->load->target + from, span->offset + (from - span->position), stop - from);
    }
    return status;
}

/* ---- hashing ----------------------------------------------------------------------------------------------------- */

/*
 * Hashes a tensor as far as its chunks have come. A reader that finds another at it goes away: the other looks at the
 * next chunk once more after it has stepped back, and the chunk was marked before the reader came (both sequentially
 * consistent), so one of the two goes on.
 */
static void advance(load_job *job, uint32_t index)
{
    check *own = &job->checks[index];
    const cf_tensor *tensor = own->tensor;
    const uint64_t begin = own->begin, end = begin + tensor->bytes;
    uint64_t at;
    do {
        if (atomic_exchange(&own->busy, 1)) {
            return;
        }
        at = begin + own->hashed;
        while (at < end && atomic_load(&job->done[at / CF_CHUNK_BYTES])) {
            const uint64_t stop = (at / CF_CHUNK_BYTES + 1) * CF_CHUNK_BYTES;
            const uint64_t bytes = (stop < end ? stop : end) - at;
            cf_xxh64_update(&own->state, job->load->target + at, bytes);
            at += bytes;
            own->hashed += bytes;
            if (at == end && cf_xxh64_digest(&own->state) != tensor->hash) {
                cf_failure_keep(&job->failure, cf_fail(CFLOW_ERR_CHECKSUM, "%s: tensor %s does not match its hash",
                                                       job->load->model->path, tensor->name));
            }
        }
        atomic_store(&own->busy, 0);
    } while (at < end && atomic_load(&job->done[at / CF_CHUNK_BYTES]));
}

/* The first tensor that ends after byte `at` of the target. */
static uint32_t first_after(const load_job *job, uint64_t at)
{
    uint32_t low = 0, high = job->check_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (job->checks[middle].begin + job->checks[middle].tensor->bytes > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static void hash_chunk(load_job *job, uint64_t chunk)
{
    const uint64_t end = (chunk + 1) * CF_CHUNK_BYTES;
    for (uint32_t i = first_after(job, chunk * CF_CHUNK_BYTES); i < job->check_count && job->checks[i].begin < end;
         i++) {
        advance(job, i);
    }
}

static void reader_main(void *argument, int reader)
{
    load_job *job = argument;
    queue *own = &job->queues[job->nodes.of[reader / READERS_PER_WORKER]];
    while (!atomic_load(&job->failure.failed)) {
        const uint64_t at = own->first + atomic_fetch_add(&own->next, 1);
        if (at >= own->last) {
            return;
        }
        const uint64_t chunk = job->order[at];
        const int status = read_chunk(job, chunk);
        if (status != CFLOW_OK) {
            cf_failure_keep(&job->failure, status);
            return;
        }
        if (job->load->verify) {
            atomic_store(&job->done[chunk], 1);
            hash_chunk(job, chunk);
        }
    }
}

/* ---- setting up -------------------------------------------------------------------------------------------------- */

static int compare_places(const void *a, const void *b)
{
    const check *left = a, *right = b;
    return (left->begin > right->begin) - (left->begin < right->begin);
}

static void make_queues(load_job *job, uint64_t chunks)
{
    uint64_t filled = 0;
    for (uint32_t node = 0; node < job->nodes.count; node++) {
        job->queues[node].first = filled;
        for (uint64_t chunk = 0; chunk < chunks; chunk++) {
            const uint32_t wanted = job->load->chunk_node == NULL ? 0 : job->load->chunk_node[chunk];
            if (wanted == node) {
                job->order[filled++] = chunk;
            }
        }
        job->queues[node].last = filled;
    }
    if (job->load->chunk_node == NULL) {
        /* Anybody's: all readers draw on one queue. */
        memset(job->nodes.of, 0, sizeof job->nodes.of);
    }
}

static int make_checks(load_job *job, uint64_t chunks)
{
    const cflow_model *model = job->load->model;
    job->done = calloc(chunks, sizeof *job->done);
    job->checks = calloc(model->tensor_count, sizeof *job->checks);
    if (job->done == NULL || job->checks == NULL) {
        return 0;
    }
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const cf_tensor *tensor = &model->tensors[i];
        if (cf_spans_hold(job->load->spans, tensor)) {
            check *own = &job->checks[job->check_count++];
            own->tensor = tensor;
            own->begin = cf_spans_position(job->load->spans, tensor);
            cf_xxh64_init(&own->state);
        }
    }
    qsort(job->checks, job->check_count, sizeof *job->checks, compare_places);
    return 1;
}

/* The file once more, for reads past the page cache; through its descriptor, since the path may name another by now. */
static int open_direct(const cflow_model *model)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", model->fd);
    return open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
}

static int run_readers(load_job *job, const cf_pool *pool)
{
    const int threads = cf_pool_threads(pool);
    cf_cpu cpus[CF_MAX_THREADS * READERS_PER_WORKER];
    for (int i = 0; i < threads * READERS_PER_WORKER; i++) {
        cpus[i] = *cf_pool_place(pool, i / READERS_PER_WORKER);
    }
    cf_pool *readers;
    const int status = cf_pool_create_at(threads * READERS_PER_WORKER, cpus, 0, &readers);
    if (status != CFLOW_OK) {
        return status;
    }
    cf_pool_run(readers, reader_main, job);
    cflow_pool_destroy(readers);
    return cf_failure_status(&job->failure);
}

int cf_load_run(cf_load *load, const cf_pool *pool)
{
    const uint64_t chunks = cf_load_chunks(load->spans);
    const long page_bytes = sysconf(_SC_PAGESIZE);
    load_job *job = aligned_alloc(64, (sizeof *job + 63) / 64 * 64);
    if (job == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for loading", load->model->path);
    }
    memset(job, 0, sizeof *job);
    job->load = load;
    job->page_bytes = page_bytes < 4096 ? 4096 : (uint64_t)page_bytes;
    cf_worker_nodes_of(pool, &job->nodes);
    job->order = malloc(chunks * sizeof *job->order);
    int status = CFLOW_OK;
    if (job->order == NULL || (load->verify && !make_checks(job, chunks))) {
        status = cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for loading", load->model->path);
    } else {
        make_queues(job, chunks);
        job->direct_fd = open_direct(load->model);
        status = run_readers(job, pool);
        if (job->direct_fd >= 0) {
            (void)close(job->direct_fd);
        }
    }
    load->direct_bytes = atomic_load(&job->direct_bytes);
    free(job->order);
    free((void *)job->done);
    free(job->checks);
    free(job);
    return status;
}
