/* probe.c - roofs of the machine, measured with the workers that decode: read bandwidth, multiply-adds, single kernels. */
#include "act.h"
#include "error.h"
#include "probe_loops.h"
#include "session.h"
#include "walk.h"

#include <stdlib.h>
#include <string.h>

struct cflow_arena {
    cf_memory memory;
    uint64_t bytes;
};

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Share of worker `thread`, in whole units of 4 KiB but for the last. */
static void share_of(uint64_t bytes, int thread, int threads, uint64_t *first, uint64_t *last)
{
    const uint64_t pages = bytes / 4096, worker = (uint64_t)thread, count = (uint64_t)threads;
    *first = pages / count * worker * 4096 + pages % count * worker / count * 4096;
    *last =
        worker + 1 == count ? bytes : pages / count * (worker + 1) * 4096 + pages % count * (worker + 1) / count * 4096;
}

typedef struct probe_job {
    cf_pool *pool;
    uint8_t *data;
    uint64_t bytes;
    int pattern;
    int isa;
    uint64_t iterations;
    const cf_kernel *kernel;
    const cf_tiles *tiles;
    const cf_act *x;
    int hint;
    uint32_t streams;
    uint32_t distance;
    float *y;
    _Atomic uint64_t first_in_ns;
    uint64_t last_out_ns;
    _Atomic uint64_t sum;
} probe_job;

static void mark_start(void *argument)
{
    probe_job *job = argument;
    atomic_store_explicit(&job->first_in_ns, cf_now_ns(), memory_order_relaxed);
}

static void mark_end(void *argument)
{
    probe_job *job = argument;
    job->last_out_ns = cf_now_ns();
}

static void touch_worker(void *argument, int thread)
{
    probe_job *job = argument;
    uint64_t first, last;
    share_of(job->bytes, thread, cf_pool_threads(job->pool), &first, &last);
    memset(job->data + first, 1, last - first);
}

int cflow_arena_create(cflow_pool *pool, uint64_t bytes, int huge, cflow_arena **arena_out)
{
    if (pool == NULL || arena_out == NULL || bytes == 0 || bytes > SIZE_MAX / 2) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_arena_create: NULL argument or %llu bytes",
                       (unsigned long long)bytes);
    }
    *arena_out = NULL;
    cflow_arena *arena = calloc(1, sizeof *arena);
    if (arena == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "cflow_arena_create: out of memory");
    }
    const int status = cf_memory_map(&arena->memory, (size_t)bytes, huge, "arena", NULL);
    if (status != CFLOW_OK) {
        free(arena);
        return status;
    }
    arena->bytes = bytes;
    probe_job job = {.pool = pool, .data = arena->memory.data, .bytes = bytes};
    cf_pool_run(pool, touch_worker, &job);
    *arena_out = arena;
    return CFLOW_OK;
}

void cflow_arena_destroy(cflow_arena *arena)
{
    if (arena != NULL) {
        cf_memory_unmap(&arena->memory);
        free(arena);
    }
}

void *cflow_arena_data(cflow_arena *arena)
{
    return arena == NULL ? NULL : arena->memory.data;
}

/* ---- read-only bandwidth ----------------------------------------------------------------------------------------- */

typedef struct read_pattern {
    const char *name;
    unsigned streams;  /* equal consecutive parts of a worker's share, read side by side */
    unsigned prefetch; /* bytes ahead; 0 = hardware prefetch alone */
} read_pattern;

#if defined(__aarch64__)
#define HINT "PRFM PLDL1KEEP"
#else
#define HINT "PREFETCHT0"
#endif

static const read_pattern READ_PATTERNS[] = {
    {"1 stream", 1, 0},
    {"2 streams", 2, 0},
    {"4 streams", 4, 0},
    {"1 stream, " HINT " 2 KiB ahead", 1, 2048},
    {"1 stream, " HINT " 4 KiB ahead", 1, 4096},
    {"1 stream, " HINT " 8 KiB ahead", 1, 8192},
    {"2 streams, " HINT " 4 KiB ahead", 2, 4096},
    {"4 streams, " HINT " 4 KiB ahead", 4, 4096},
};

int cflow_read_pattern_count(void)
{
    return (int)(sizeof READ_PATTERNS / sizeof READ_PATTERNS[0]);
}

const char *cflow_read_pattern_name(int pattern)
{
    return pattern >= 0 && pattern < cflow_read_pattern_count() ? READ_PATTERNS[pattern].name : NULL;
}

static void read_worker(void *argument, int thread)
{
    probe_job *job = argument;
    const read_pattern *pattern = &READ_PATTERNS[job->pattern];
    uint64_t first, last;
    share_of(job->bytes, thread, cf_pool_threads(job->pool), &first, &last);
    const uint64_t stride = (last - first) / pattern->streams / 256 * 256;
    cf_pool_barrier(job->pool, thread, mark_start, job);
    const uint64_t sum = cf_loop_read(job->data + first, stride, pattern->streams, pattern->prefetch);
    atomic_fetch_add_explicit(&job->sum, sum, memory_order_relaxed);
    cf_pool_barrier(job->pool, thread, mark_end, job);
}

int cflow_probe_read(cflow_pool *pool, const cflow_arena *arena, int pattern, uint64_t *ns_out, uint64_t *sum_out)
{
    if (pool == NULL || arena == NULL || ns_out == NULL || sum_out == NULL || pattern < 0 ||
        pattern >= cflow_read_pattern_count()) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_probe_read: NULL argument or pattern %d out of range", pattern);
    }
    probe_job job = {.pool = pool, .data = arena->memory.data, .bytes = arena->bytes, .pattern = pattern};
    cf_pool_run(pool, read_worker, &job);
    *ns_out = job.last_out_ns - job.first_in_ns;
    *sum_out = job.sum;
    return CFLOW_OK;
}

/* ---- multiply-adds ------------------------------------------------------------------------------------------------ */

static void flops_worker(void *argument, int thread)
{
    (void)thread;
    probe_job *job = argument;
    cf_pool_barrier(job->pool, thread, mark_start, job);
    const float result = cf_loop_multiply_add(job->isa, job->iterations);
    atomic_fetch_add_explicit(&job->sum, result > 0.0f, memory_order_relaxed);
    cf_pool_barrier(job->pool, thread, mark_end, job);
}

int cflow_probe_flops(cflow_pool *pool, int isa, uint64_t iterations, uint64_t *flops_out, uint64_t *ns_out)
{
    if (pool == NULL || flops_out == NULL || ns_out == NULL || iterations == 0 || iterations > UINT32_MAX) {
        return cf_fail(CFLOW_ERR_ARGUMENT,
                       "cflow_probe_flops: NULL argument or %llu iterations (allowed: 1 to 2^32 - 1)",
                       (unsigned long long)iterations);
    }
    const uint64_t operations = cf_loop_operations(isa);
    if (operations == 0) {
        const char *const name = cflow_isa_name(isa);
        return cf_fail(CFLOW_ERR_UNSUPPORTED, "cflow_probe_flops: instruction set %d (%s) does not run here", isa,
                       name == NULL ? "unknown" : name);
    }
    probe_job job = {.pool = pool, .isa = isa, .iterations = iterations};
    cf_pool_run(pool, flops_worker, &job);
    *flops_out = iterations * operations * (uint64_t)cf_pool_threads(pool);
    *ns_out = job.last_out_ns - job.first_in_ns;
    return CFLOW_OK;
}

/* ---- one kernel over a matrix --------------------------------------------------------------------------------------- */

static void gemv_worker(void *argument, int thread)
{
    probe_job *job = argument;
    const uint64_t threads = (uint64_t)cf_pool_threads(job->pool), worker = (uint64_t)thread;
    const uint64_t rows = job->tiles->rows[0], columns = job->tiles->columns;
    const uint64_t groups = (rows + CF_GROUP_ROWS - 1) / CF_GROUP_ROWS;
    const uint64_t first = groups * worker / threads, last = groups * (worker + 1) / threads;
    cf_pool_barrier(job->pool, thread, mark_start, job);
    if (job->kernel->rows != NULL) {
        const size_t row_bytes = columns / CF_BLOCK * cf_row_block_bytes(job->kernel->type);
        const uint64_t begin = first * CF_GROUP_ROWS;
        const uint64_t end = last * CF_GROUP_ROWS < rows ? last * CF_GROUP_ROWS : rows;
        if (begin < end) {
            job->kernel->rows(job->data + begin * row_bytes, row_bytes, (uint32_t)(end - begin),
                              (uint32_t)(columns / CF_BLOCK), job->x, job->y + begin);
        }
    } else if (first < last) {
        memset(job->y + first * CF_GROUP_ROWS, 0, (last - first) * CF_GROUP_ROWS * sizeof *job->y);
        const cf_walk walk = {.kernel = job->kernel->tile,
                              .tiles = job->tiles,
                              .weights = job->data,
                              .x = job->x,
                              .y = {job->y},
                              .streams = job->streams,
                              .prefetch_hint = job->hint,
                              .prefetch_bytes = job->distance};
        cf_walk_parts(&walk, 0, 1, first, last);
    }
    cf_pool_barrier(job->pool, thread, mark_end, job);
}

int cflow_probe_gemv(cflow_pool *pool, const cflow_arena *arena, uint32_t kernel, uint64_t rows, uint64_t columns,
                     uint32_t tile_rows, uint32_t tile_cols, int hint, int64_t distance, int streams, const float *x,
                     float *y_out, uint64_t *ns_out)
{
    const cf_kernel *chosen = cf_kernel_at(kernel);
    if (pool == NULL || arena == NULL || chosen == NULL || x == NULL || y_out == NULL || ns_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_probe_gemv: NULL argument or kernel %u out of range", kernel);
    }
    if (chosen->gemm != NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_probe_gemv: kernel %s takes several vectors", chosen->name);
    }
    if (!cflow_isa_supported(chosen->isa)) {
        return cf_fail(CFLOW_ERR_UNSUPPORTED, "kernel %s does not run on this CPU", chosen->name);
    }
    if (hint < CFLOW_PREFETCH_NONE || hint > CFLOW_PREFETCH_NTA || distance < 0 || distance > 1 << 20) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "prefetch hint %d (allowed: 0 to 4), distance %lld (allowed: 0 to 1048576)",
                       hint, (long long)distance);
    }
    if (streams < 1 || streams > (int)CF_MAX_LANES) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_probe_gemv: streams is %d; allowed: 1 to %u", streams, CF_MAX_LANES);
    }
    cf_tiles tiles;
    int status = cf_tiles_describe(chosen->type, 1, &rows, columns, tile_rows, tile_cols, &tiles);
    if (status != CFLOW_OK) {
        return status;
    }
    const uint64_t needed =
        chosen->rows == NULL ? tiles.bytes : rows * (columns / CF_BLOCK) * cf_row_block_bytes(chosen->type);
    if (needed > arena->bytes) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "the matrix has %llu bytes, the arena %llu", (unsigned long long)needed,
                       (unsigned long long)arena->bytes);
    }
    void *act_memory = aligned_alloc(64, cf_act_bytes(columns));
    float *y = aligned_alloc(64, cf_pad64((rows + CF_GROUP_ROWS) * sizeof *y));
    if (act_memory == NULL || y == NULL) {
        status = cf_fail(CFLOW_ERR_MEMORY, "cflow_probe_gemv: out of memory for %llu rows and %llu columns",
                         (unsigned long long)rows, (unsigned long long)columns);
    } else {
        const cf_act_arrays arrays = cf_act_place(act_memory, columns);
        cf_act_prepare(&arrays, chosen->needs, x, columns);
        const cf_act act = cf_act_view(&arrays);
        probe_job job = {.pool = pool,
                         .data = arena->memory.data,
                         .kernel = chosen,
                         .tiles = &tiles,
                         .x = &act,
                         .hint = hint,
                         .streams = (uint32_t)streams,
                         .distance = (uint32_t)distance,
                         .y = y};
        cf_pool_run(pool, gemv_worker, &job);
        *ns_out = job.last_out_ns - job.first_in_ns;
        memcpy(y_out, y, rows * sizeof *y);
    }
    free(y);
    free(act_memory);
    return status;
}
