/* startup.c - what a copy of the weights is made of: touching new memory, and reading the file. */
#include "error.h"
#include "load.h"
#include "session.h"

#include <stdatomic.h>

typedef struct touch_job {
    uint8_t *data;
    uint64_t bytes;
    _Atomic uint64_t next_chunk;
} touch_job;

static void touch_worker(void *argument, int thread)
{
    (void)thread;
    touch_job *job = argument;
    for (;;) {
        const uint64_t begin = atomic_fetch_add(&job->next_chunk, 1) * CF_CHUNK_BYTES;
        if (begin >= job->bytes) {
            return;
        }
        const uint64_t end = job->bytes - begin < CF_CHUNK_BYTES ? job->bytes : begin + CF_CHUNK_BYTES;
        for (uint64_t at = begin; at < end; at += 4096) {
            job->data[at] = 1;
        }
    }
}

static int map_touched(cf_pool *pool, uint64_t bytes, cf_memory *memory, uint64_t *ns)
{
    const int status = bytes > SIZE_MAX / 2 ? cf_fail(CFLOW_ERR_ARGUMENT, "%llu bytes are more than can be addressed",
                                                      (unsigned long long)bytes)
                                            : cf_memory_map(memory, (size_t)bytes, 1, "memory of a probe", NULL);
    if (status == CFLOW_OK) {
        touch_job job = {.data = memory->data, .bytes = bytes};
        const uint64_t start_ns = cf_now_ns();
        cf_pool_run(pool, touch_worker, &job);
        *ns = cf_now_ns() - start_ns;
    }
    return status;
}

int cflow_probe_touch(cflow_pool *pool, uint64_t bytes, uint64_t *ns_out)
{
    if (pool == NULL || ns_out == NULL || bytes == 0) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_probe_touch: NULL argument or 0 bytes");
    }
    cf_memory memory;
    const int status = map_touched(pool, bytes, &memory, ns_out);
    if (status == CFLOW_OK) {
        cf_memory_unmap(&memory);
    }
    return status;
}

int cflow_probe_load(cflow_pool *pool, const cflow_model *model, uint64_t *ns_out, uint64_t *direct_bytes_out)
{
    if (pool == NULL || model == NULL || ns_out == NULL || direct_bytes_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_probe_load: NULL argument");
    }
    cf_spans spans;
    int status = cf_spans_create(model, 1, NULL, &spans);
    if (status != CFLOW_OK) {
        return status;
    }
    cf_memory memory;
    status = map_touched(pool, spans.bytes, &memory, ns_out);
    if (status == CFLOW_OK) {
        cf_load load = {.model = model, .spans = &spans, .target = memory.data};
        const uint64_t start_ns = cf_now_ns();
        status = cf_load_run(&load, pool);
        *ns_out = cf_now_ns() - start_ns;
        *direct_bytes_out = load.direct_bytes;
        cf_memory_unmap(&memory);
    }
    cf_spans_free(&spans);
    return status;
}
