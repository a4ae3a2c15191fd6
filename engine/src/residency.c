/*
 * residency.c - where weights are read from: the mapping, a copy in anonymous memory (all, or all but the experts), or a
 * row-major rearrangement of it for the control arm.
 */
#include "error.h"
#include "load.h"
#include "session.h"

#include <stdlib.h>
#include <string.h>

/* ---- copy -------------------------------------------------------------------------------------------------------- */

/* Adds bytes [begin, end) of the copy to what `node` reads of each chunk. tally: [chunks][nodes]. */
static void tally_range(uint64_t *tally, uint32_t nodes, uint32_t node, uint64_t begin, uint64_t end)
{
    while (begin < end) {
        const uint64_t chunk = begin / CF_CHUNK_BYTES, chunk_end = (chunk + 1) * CF_CHUNK_BYTES;
        const uint64_t stop = chunk_end < end ? chunk_end : end;
        tally[chunk * nodes + node] += stop - begin;
        begin = stop;
    }
}

/* The stripes of a piece's matrix that begin with a unit of each worker. at: of the matrix in the copy. */
static void tally_piece(const cf_plan *plan, const cf_op *op, const cf_worker_nodes *nodes, uint64_t at,
                        uint64_t *tally)
{
    const uint64_t stripe_groups = op->tiles.tile_rows / CF_GROUP_ROWS;
    const uint64_t stripes = (op->units + stripe_groups - 1) / stripe_groups;
    for (uint32_t thread = 0; thread < plan->options.threads; thread++) {
        const uint64_t first = (op->split[thread] + stripe_groups - 1) / stripe_groups;
        const uint64_t last = (op->split[thread + 1] + stripe_groups - 1) / stripe_groups;
        const uint64_t begin = first >= stripes ? op->tensor->bytes : cf_tiles_stripe_offset(&op->tiles, first);
        const uint64_t end = last >= stripes ? op->tensor->bytes : cf_tiles_stripe_offset(&op->tiles, last);
        tally_range(tally, nodes->count, nodes->of[thread], at + begin, at + end);
    }
}

int cf_residency_chunk_nodes(const cf_plan *plan, const cf_spans *spans, const cf_worker_nodes *nodes,
                             uint32_t *chunk_node)
{
    const uint64_t chunks = cf_load_chunks(spans);
    uint64_t *tally = calloc(chunks * nodes->count, sizeof *tally);
    if (tally == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for the places of its weights", plan->model->path);
    }
    for (uint32_t i = 0; i < plan->piece_count; i++) {
        const cf_op *op = &plan->ops[plan->pieces[i]];
        /* Shared blocks: the first application decides. Experts may be read in any slot, hence by any worker. */
        if (op->tensor != NULL && op->stream != CFLOW_STREAM_EXPERT && cf_spans_hold(spans, op->tensor) &&
            (op->layer == CF_NONE || op->layer == op->block)) {
            tally_piece(plan, op, nodes, cf_spans_position(spans, op->tensor), tally);
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

static int load_spans(cflow_session *session, const cf_spans *spans)
{
    const cflow_model *model = session->model;
    uint32_t *chunk_node = NULL;
    cf_worker_nodes nodes;
    cf_worker_nodes_of(session->pool, &nodes);
    int status = CFLOW_OK;
    if (nodes.count > 1) {
        chunk_node = malloc(cf_load_chunks(spans) * sizeof *chunk_node);
        status = chunk_node == NULL
                     ? cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for the places of its weights", model->path)
                     : cf_residency_chunk_nodes(session->plan, spans, &nodes, chunk_node);
    }
    if (status == CFLOW_OK) {
        cf_load load = {
            .model = model, .spans = spans, .target = session->copied.data, .chunk_node = chunk_node, .verify = 1};
        status = cf_load_run(&load, session->pool);
    }
    free(chunk_node);
    return status;
}

static int copy_spans(cflow_session *session, const cf_spans *spans)
{
    const cflow_model *model = session->model;
    int status = cf_memory_map(&session->copied, spans->bytes, 1, "copy of the weights", &session->held_bytes);
    if (status == CFLOW_OK) {
        status = load_spans(session, spans);
    }
    if (status == CFLOW_OK) {
        session->data = session->copied.data;
        for (uint32_t i = 0; i < model->tensor_count; i++) {
            const cf_tensor *tensor = &model->tensors[i];
            session->place[i] = cf_spans_hold(spans, tensor) ? cf_spans_position(spans, tensor) : UINT64_MAX;
        }
    }
    return status;
}

int cf_residency_copy(cflow_session *session)
{
    cf_spans spans;
    int status = cf_spans_create(session->model, 1, NULL, &spans);
    if (status == CFLOW_OK) {
        status = copy_spans(session, &spans);
    }
    cf_spans_free(&spans);
    return status;
}

int cf_residency_map(cflow_session *session)
{
    const cflow_model *model = session->model;
    session->place = malloc(model->tensor_count * sizeof *session->place);
    if (session->place == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for the places of its weights", model->path);
    }
    session->data = model->map;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        session->place[i] = model->tensors[i].offset;
    }
    return CFLOW_OK;
}

/* ---- direct ------------------------------------------------------------------------------------------------------ */

uint64_t cf_residency_memory(const cflow_session *session)
{
    return session->kv.bytes + session->copied.bytes + session->row_major.bytes + session->private_arenas.bytes +
           session->shared_arena.bytes + session->batch_arena.bytes + session->batch_scratch.bytes +
           (session->experts == NULL ? 0 : cf_experts_memory(session->experts)) +
           (session->stream == NULL ? 0 : cf_stream_memory(session->stream));
}

/* What the budget leaves for experts. copy_bytes: of the weights that are about to be copied. */
static int share_budget(const cflow_session *session, uint64_t copy_bytes, uint64_t *expert_bytes)
{
    const uint64_t budget = (uint64_t)session->options.value[CFLOW_OPTION_RAM_BUDGET];
    *expert_bytes = 0;
    if (budget == 0) {
        return CFLOW_OK;
    }
    /* Memory comes in whole huge pages: one is added for each of the two. */
    const uint64_t others = cf_residency_memory(session) + copy_bytes + CF_CHUNK_BYTES;
    const uint64_t least = session->plan->slots == 0 ? 0 : cf_experts_least_bytes(session->plan) + CF_CHUNK_BYTES;
    if (budget < others || budget - others < least) {
        return cf_fail(
            CFLOW_ERR_MEMORY,
            "option ram_budget is %llu bytes; %s needs at least %llu with these options: %llu for the experts "
            "in use, %llu for everything else",
            (unsigned long long)budget, session->model->path, (unsigned long long)(others + least),
            (unsigned long long)least, (unsigned long long)others);
    }
    *expert_bytes = budget - others - CF_CHUNK_BYTES * (least > 0);
    return CFLOW_OK;
}

static int make_experts(cflow_session *session, uint64_t bytes)
{
    const int64_t *value = session->options.value;
    const cf_experts_options options = {
        .reader = session->reader,
        .sync = value[CFLOW_OPTION_EXPERT_READS] == CFLOW_EXPERT_READS_SYNC,
        .verify = (int)value[CFLOW_OPTION_VERIFY],
        .bytes = bytes,
        .lane = &session->lane,
        .held_bytes = &session->held_bytes,
    };
    return cf_experts_create(session->plan, &options, &session->experts);
}

/* One for experts and streamed weights: they come from one device. */
static int make_reader(cflow_session *session)
{
    const cflow_model *model = session->model;
    int64_t *value = session->options.value;
    const int streams = value[CFLOW_OPTION_STREAM_BYTES] != 0;
    if (session->plan->slots == 0 && !streams) {
        return CFLOW_OK;
    }
    const uint32_t expert_reads = session->plan->slots == 0 ? 0 : cf_experts_reads(session->plan);
    if (session->plan->slots > 0 && expert_reads == 0) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for the experts in use", model->path);
    }
    const cf_reader_options options = {
        .kind = (int)value[CFLOW_OPTION_READER],
        .path = (int)value[CFLOW_OPTION_READ_PATH],
        .request_bytes = (uint64_t)value[CFLOW_OPTION_READ_BYTES],
        .bytes_per_s = (uint64_t)value[CFLOW_OPTION_READ_RATE],
        .reads = expert_reads + (streams ? cf_stream_reads(session->plan) : 0),
    };
    const int status = cf_reader_create(model->fd, model->path, model->file_bytes, &options, &session->reader);
    if (status == CFLOW_OK) {
        value[CFLOW_OPTION_READER] = cf_reader_kind(session->reader);
        value[CFLOW_OPTION_READ_PATH] = cf_reader_path(session->reader);
    }
    return status;
}

static int make_stream(cflow_session *session)
{
    const int64_t *value = session->options.value;
    return value[CFLOW_OPTION_STREAM_BYTES] == 0
               ? CFLOW_OK
               : cf_stream_create(session->plan, session->reader, (uint64_t)value[CFLOW_OPTION_STREAM_BYTES],
                                  (int)value[CFLOW_OPTION_VERIFY], &session->lane, &session->held_bytes,
                                  &session->stream);
}

int cf_residency_direct(cflow_session *session)
{
    cf_spans spans = {0};
    uint64_t expert_bytes = 0;
    int status = make_reader(session);
    if (status == CFLOW_OK) {
        status = make_stream(session);
    }
    if (status == CFLOW_OK) {
        status = cf_spans_create(session->model, 0, cf_stream_tensors(session->stream), &spans);
    }
    if (status == CFLOW_OK) {
        status = share_budget(session, spans.bytes, &expert_bytes);
    }
    if (status == CFLOW_OK) {
        status = copy_spans(session, &spans);
    }
    cf_spans_free(&spans);
    if (status == CFLOW_OK && session->plan->slots > 0) {
        status = make_experts(session, expert_bytes);
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
    int status = cf_memory_map(&session->row_major, bytes, 1, "row-major copy of the weights", &session->held_bytes);
    if (status != CFLOW_OK) {
        return status;
    }
    rearrange_job job = {.session = session};
    cf_pool_run(session->pool, rearrange_worker, &job);
    return cf_failure_status(&job.failure);
}
