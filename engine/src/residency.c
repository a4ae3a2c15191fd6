/* residency.c - weights in anonymous memory: copied as tiles, or rearranged row-major for the control arm. */
#include "error.h"
#include "load.h"
#include "session.h"

#include <stdlib.h>
#include <string.h>

/* ---- copy -------------------------------------------------------------------------------------------------------- */

/* Adds bytes [begin, end) of the data to what `node` reads of each chunk. tally: [chunks][nodes]. */
static void tally_range(uint64_t *tally, uint32_t nodes, uint32_t node, uint64_t begin, uint64_t end)
{
    while (begin < end) {
        const uint64_t chunk = begin / CF_CHUNK_BYTES, chunk_end = (chunk + 1) * CF_CHUNK_BYTES;
        const uint64_t stop = chunk_end < end ? chunk_end : end;
        tally[chunk * nodes + node] += stop - begin;
        begin = stop;
    }
}

/* The stripes of a piece's matrix that begin with a unit of each worker. */
static void tally_piece(const cf_plan *plan, const cf_op *op, const cf_worker_nodes *nodes, uint64_t *tally)
{
    const uint64_t stripe_groups = op->tiles.tile_rows / CF_GROUP_ROWS;
    const uint64_t stripes = (op->units + stripe_groups - 1) / stripe_groups;
    const uint64_t at = op->tensor->offset - plan->model->data_offset;
    for (uint32_t thread = 0; thread < plan->options.threads; thread++) {
        const uint64_t first = (op->split[thread] + stripe_groups - 1) / stripe_groups;
        const uint64_t last = (op->split[thread + 1] + stripe_groups - 1) / stripe_groups;
        const uint64_t begin = first >= stripes ? op->tensor->bytes : cf_tiles_stripe_offset(&op->tiles, first);
        const uint64_t end = last >= stripes ? op->tensor->bytes : cf_tiles_stripe_offset(&op->tiles, last);
        tally_range(tally, nodes->count, nodes->of[thread], at + begin, at + end);
    }
}

int cf_residency_chunk_nodes(const cf_plan *plan, const cf_worker_nodes *nodes, uint32_t *chunk_node)
{
    const uint64_t chunks = cf_load_chunks(plan->model);
    uint64_t *tally = calloc(chunks * nodes->count, sizeof *tally);
    if (tally == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for the places of its weights", plan->model->path);
    }
    for (uint32_t i = 0; i < plan->piece_count; i++) {
        const cf_op *op = &plan->ops[plan->pieces[i]];
        /* Shared blocks: the first application decides. Experts may be read in any slot, hence by any worker. */
        if (op->tensor != NULL && op->stream != CFLOW_STREAM_EXPERT &&
            (op->layer == CF_NONE || op->layer == op->block)) {
            tally_piece(plan, op, nodes, tally);
        }
    }
    for (uint64_t chunk = 0; chunk < chunks; chunk++) {
        const uint64_t *bytes = tally + chunk * nodes->count;
        /* Nobody's more than another's: dealt out in turn, so that all nodes serve what all read. */
        uint32_t best = (uint32_t)(chunk % nodes->count);
        for (uint32_t node = 0; node < nodes->count; node++) {
            best = bytes[node] > bytes[best] ? node : best;
        }
        chunk_node[chunk] = best;
    }
    free(tally);
    return CFLOW_OK;
}

int cf_residency_copy(cflow_session *session)
{
    const cflow_model *model = session->model;
    int status = cf_memory_map(&session->copied, model->file_bytes - model->data_offset, 1, "copy of the weights");
    if (status != CFLOW_OK) {
        return status;
    }
    uint32_t *chunk_node = NULL;
    cf_worker_nodes nodes;
    cf_worker_nodes_of(session->pool, &nodes);
    if (nodes.count > 1) {
        chunk_node = malloc(cf_load_chunks(model) * sizeof *chunk_node);
        status = chunk_node == NULL
                     ? cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for the places of its weights", model->path)
                     : cf_residency_chunk_nodes(session->plan, &nodes, chunk_node);
    }
    if (status == CFLOW_OK) {
        cf_load load = {.model = model, .target = session->copied.data, .chunk_node = chunk_node, .verify = 1};
        status = cf_load_run(&load, session->pool);
    }
    free(chunk_node);
    if (status == CFLOW_OK) {
        session->data = session->copied.data;
    }
    return status;
}

/* ---- working memory ---------------------------------------------------------------------------------------------- */

static void touch_worker(void *argument, int thread)
{
    const cflow_session *session = argument;
    memset(session->workers[thread].arena, 0, session->worker_bytes);
}

void cf_residency_touch(cflow_session *session)
{
    cf_pool_run(session->pool, touch_worker, session);
}

/* ---- row-major ------------------------------------------------------------------------------------------------- */

typedef struct rearrange_job {
    cflow_session *session;
    _Atomic uint32_t next_tensor;
    cf_failure failure;
} rearrange_job;

static int rearranged(const cf_tensor *tensor)
{
    return !cf_tensor_is_vector(tensor) && tensor->role != CFLOW_ROLE_ROUTER;
}

static void rearrange_worker(void *argument, int thread)
{
    (void)thread;
    rearrange_job *job = argument;
    cflow_session *session = job->session;
    const cflow_model *model = session->model;
    while (!atomic_load(&job->failure.failed)) {
        const uint32_t i = atomic_fetch_add(&job->next_tensor, 1);
        if (i >= model->tensor_count) {
            return;
        }
        const cf_tensor *tensor = &model->tensors[i];
        if (!rearranged(tensor)) {
            continue;
        }
        void *parts[3] = {NULL};
        uint8_t *at = (uint8_t *)session->row_major.data + session->row_major_offset[i];
        for (uint32_t part = 0; part < tensor->parts; part++) {
            parts[part] = at;
            at += tensor->rows[part] * (tensor->columns / CF_BLOCK) * cf_row_block_bytes((int)tensor->type);
        }
        const int status = cflow_tiles_unpack((int)tensor->type, (int)tensor->parts, tensor->rows, tensor->columns,
                                              model->param[CFLOW_PARAM_TILE_ROWS], model->param[CFLOW_PARAM_TILE_COLS],
                                              cf_tensor_data(session, tensor), tensor->bytes, parts);
        if (status != CFLOW_OK) {
            cf_failure_keep(&job->failure, status);
        }
    }
}

int cf_residency_row_major(cflow_session *session)
{
    const cflow_model *model = session->model;
    session->row_major_offset = calloc(model->tensor_count, sizeof *session->row_major_offset);
    if (session->row_major_offset == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "out of memory for the row-major layout");
    }
    size_t bytes = 0;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const cf_tensor *tensor = &model->tensors[i];
        if (!rearranged(tensor)) {
            continue;
        }
        if (tensor->type != CFLOW_TYPE_Q4_0) {
            return cf_fail(CFLOW_ERR_UNSUPPORTED, "option layout: row-major kernels exist for q4_0; tensor %s is %s",
                           tensor->name, cflow_type_name((int)tensor->type));
        }
        session->row_major_offset[i] = bytes;
        /* The tiles of a matrix are never smaller than its rows, and their sizes fit in the file. */
        bytes += cf_pad64(tensor->bytes);
    }
    int status = cf_memory_map(&session->row_major, bytes, 1, "row-major copy of the weights");
    if (status != CFLOW_OK) {
        return status;
    }
    rearrange_job job = {.session = session};
    cf_pool_run(session->pool, rearrange_worker, &job);
    return cf_failure_status(&job.failure);
}
