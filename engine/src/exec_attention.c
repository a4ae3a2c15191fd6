/* exec_attention.c - the attention core of a plan: rotation, KV cache, and the heads of a worker. */
#include "exec.h"

#include <string.h>

void cf_exec_attention(cflow_session *session, cf_worker *worker, const cf_op *op, int thread)
{
    const uint32_t *p = session->model->param;
    const uint32_t head_dim = p[CFLOW_PARAM_HEAD_DIM];
    const uint32_t shared = p[CFLOW_PARAM_HEADS] / p[CFLOW_PARAM_KV_HEADS];
    const cf_kv_ops *ops = session->kv_ops;
    const size_t row_bytes = head_dim * ops->element_bytes;
    const float *queries = cf_exec_input(session, worker, op, 0);
    const float *keys = cf_exec_input(session, worker, op, 1);
    const float *values = cf_exec_input(session, worker, op, 2);
    float *out = cf_exec_floats(session, worker, op->output[0]);
    /* The current position's rows: every worker makes those it needs for itself, one of them also fills the cache. */
    float *query = worker->scores + session->context, *key = query + head_dim;
    uint8_t *key_row = (uint8_t *)(key + head_dim), *value_row = key_row + head_dim * sizeof(float);
    const float *cosines = worker->rotation, *sines = cosines + head_dim / 2;
    uint32_t current = CF_NONE;
    for (uint64_t head = op->split[thread]; head < op->split[thread + 1]; head++) {
        const uint32_t kv_head = (uint32_t)head / shared;
        const size_t rows = ((size_t)op->layer * p[CFLOW_PARAM_KV_HEADS] + kv_head) * session->context;
        uint8_t *cached_keys = (uint8_t *)session->kv.data + rows * row_bytes;
        uint8_t *cached_values = cached_keys + session->kv_half_bytes;
        if (current != kv_head) {
            cf_rope_rotate(key, keys + (size_t)kv_head * head_dim, cosines, sines, head_dim);
            ops->store(key_row, key, head_dim);
            ops->store(value_row, values + (size_t)kv_head * head_dim, head_dim);
            current = kv_head;
        }
        if (head % shared == 0) {
            memcpy(cached_keys + session->position * row_bytes, key_row, row_bytes);
            memcpy(cached_values + session->position * row_bytes, value_row, row_bytes);
        }
        cf_rope_rotate(query, queries + head * head_dim, cosines, sines, head_dim);
        cf_attention_head(ops, out + head * head_dim, query, cached_keys, cached_values, session->position, key_row,
                          value_row, head_dim, worker->scores);
        worker->counters[CFLOW_COUNTER_KV_BYTES] += 2 * (uint64_t)session->position * row_bytes;
    }
}
