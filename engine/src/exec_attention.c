/* exec_attention.c - the attention core of a plan: rotation, KV cache, and the heads of a worker. */
#include "exec.h"

#include "vector.h"

#include <string.h>

void cf_exec_rotate_head(const cflow_session *session, cf_worker *worker, const cf_op *op, cflow_role norm_role,
                         const float *cosines, const float *head, float *out)
{
    const uint32_t head_dim = session->model->param[CFLOW_PARAM_HEAD_DIM];
    const cf_tensor *norm = cf_model_find(session->model, op->block, norm_role);
    if (norm != NULL) {
        const float *gain = (const float *)(const void *)cf_tensor_data(session, norm);
        if (!cf_vector_rmsnorm(out, head, gain, head_dim, session->model->rms_eps)) {
            cf_exec_not_finite(worker, op->layer);
        }
        head = out;
    }
    cf_rope_rotate(out, head, cosines, cosines + head_dim / 2, head_dim);
}

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
    float *key = worker->queries + (size_t)CF_QUERIES * head_dim;
    uint8_t *key_row = (uint8_t *)(key + head_dim), *value_row = key_row + head_dim * sizeof(float);
    uint32_t current = CF_NONE;
    for (uint64_t head = op->split[thread], next; head < op->split[thread + 1]; head = next) {
        const uint32_t kv_head = (uint32_t)head / shared;
        const size_t rows = ((size_t)op->layer * p[CFLOW_PARAM_KV_HEADS] + kv_head) * session->context;
        uint8_t *cached_keys = (uint8_t *)session->kv.data + rows * row_bytes;
        uint8_t *cached_values = cached_keys + session->kv_half_bytes;
        if (current != kv_head) {
            cf_exec_rotate_head(session, worker, op, CFLOW_ROLE_ATTN_K_NORM, worker->rotation,
                                keys + (size_t)kv_head * head_dim, key);
            ops->store(key_row, key, head_dim);
            ops->store(value_row, values + (size_t)kv_head * head_dim, head_dim);
            current = kv_head;
        }
        if (head % shared == 0) {
            memcpy(cached_keys + session->position * row_bytes, key_row, row_bytes);
            memcpy(cached_values + session->position * row_bytes, value_row, row_bytes);
        }
        /* The heads from here on that read the same rows. */
        next = (uint64_t)(kv_head + 1) * shared;
        next = next < op->split[thread + 1] ? next : op->split[thread + 1];
        next = next < head + CF_QUERIES ? next : head + CF_QUERIES;
        for (uint64_t i = head; i < next; i++) {
            cf_exec_rotate_head(session, worker, op, CFLOW_ROLE_ATTN_Q_NORM, worker->rotation, queries + i * head_dim,
                                worker->queries + (i - head) * head_dim);
        }
        const cf_queries group = {
            .queries = worker->queries,
            .count = (size_t)(next - head),
            .step = 0,
            .out = out + head * head_dim,
            .out_stride = head_dim,
            .scores = worker->scores,
            .stride = cf_scores_stride(session->context),
        };
        cf_attention(ops, &group, (cf_kv_rows){cached_keys, cached_values}, session->position,
                     (cf_kv_rows){key_row, value_row}, head_dim);
        worker->counters[CFLOW_COUNTER_KV_BYTES] += 2 * (uint64_t)session->position * row_bytes * group.count;
    }
}
