/* exec_batch_attention.c - the attention core for a chunk: first all keys and values, then all heads of all tokens. */
#include "exec.h"

static size_t row_bytes_of(const cflow_session *session)
{
    return session->model->param[CFLOW_PARAM_HEAD_DIM] * session->kv_ops->element_bytes;
}

/* Keys of one head from position 0 on; values lie session->kv_half_bytes behind. */
static uint8_t *cached_keys_of(const cflow_session *session, const cf_op *op, uint32_t kv_head)
{
    const size_t rows = ((size_t)op->layer * session->model->param[CFLOW_PARAM_KV_HEADS] + kv_head) * session->context;
    return (uint8_t *)session->kv.data + rows * row_bytes_of(session);
}

void cf_batch_store_keys(cflow_session *session, cf_worker *worker, const cf_op *op)
{
    const uint32_t head_dim = session->model->param[CFLOW_PARAM_HEAD_DIM];
    const cf_kv_ops *ops = session->kv_ops;
    const float *keys = cf_exec_input(session, worker, op, 1);
    const float *values = cf_exec_input(session, worker, op, 2);
    const float *cosines = session->batch_rotation + (size_t)worker->slot * head_dim;
    float *key = worker->queries;
    for (uint32_t head = 0; head < session->model->param[CFLOW_PARAM_KV_HEADS]; head++) {
        uint8_t *row =
            cached_keys_of(session, op, head) + ((size_t)session->position + worker->slot) * row_bytes_of(session);
        cf_exec_rotate_head(session, worker, op, CFLOW_ROLE_ATTN_K_NORM, cosines, keys + (size_t)head * head_dim, key);
        ops->store(row, key, head_dim);
        ops->store(row + session->kv_half_bytes, values + (size_t)head * head_dim, head_dim);
    }
}

/* One head of `count` tokens from `slot` on. */
static void head_of_tokens(const cflow_session *session, cf_worker *worker, const cf_op *op, uint32_t head,
                           uint32_t slot, uint32_t count)
{
    const uint32_t *p = session->model->param;
    const uint32_t head_dim = p[CFLOW_PARAM_HEAD_DIM], shared = p[CFLOW_PARAM_HEADS] / p[CFLOW_PARAM_KV_HEADS];
    const size_t row_bytes = row_bytes_of(session), before = (size_t)session->position + slot;
    const uint8_t *keys = cached_keys_of(session, op, head / shared), *values = keys + session->kv_half_bytes;
    for (uint32_t i = 0; i < count; i++) {
        worker->slot = slot + i;
        cf_exec_rotate_head(
            session, worker, op, CFLOW_ROLE_ATTN_Q_NORM, session->batch_rotation + (size_t)worker->slot * head_dim,
            cf_exec_input(session, worker, op, 0) + (size_t)head * head_dim, worker->queries + (size_t)i * head_dim);
        worker->counters[CFLOW_COUNTER_KV_BYTES] += 2 * (uint64_t)(before + i) * row_bytes;
    }
    worker->slot = slot;
    const cf_queries group = {
        .queries = worker->queries,
        .count = count,
        .step = 1,
        .out = cf_exec_floats(session, worker, op->output[0]) + (size_t)head * head_dim,
        .out_stride = session->plan->values[op->output[0]].bytes / sizeof(float),
        .scores = worker->scores,
        .stride = cf_scores_stride(session->context),
    };
    cf_attention(session->kv_ops, &group, (cf_kv_rows){keys, values}, before,
                 (cf_kv_rows){keys + before * row_bytes, values + before * row_bytes}, head_dim);
}

void cf_batch_attention(cflow_session *session, cf_worker *worker, const cf_op *op, int thread)
{
    const uint64_t items = (uint64_t)session->model->param[CFLOW_PARAM_HEADS] * session->chunk;
    const uint64_t threads = (uint64_t)cf_pool_threads(session->pool);
    const uint64_t end = items * ((uint64_t)thread + 1) / threads;
    /* Head by head, so that a worker goes over few heads' keys and finds them in its cache. */
    for (uint64_t i = items * (uint64_t)thread / threads, next; i < end; i = next) {
        const uint32_t slot = (uint32_t)(i % session->chunk);
        next = i - slot + session->chunk;
        next = next < end ? next : end;
        next = next < i + CF_QUERIES ? next : i + CF_QUERIES;
        head_of_tokens(session, worker, op, (uint32_t)(i / session->chunk), slot, (uint32_t)(next - i));
    }
}
