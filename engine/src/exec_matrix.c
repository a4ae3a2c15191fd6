/* exec_matrix.c - the matrix pieces of a plan: products over tiles, then bias, gating, or the best logit. */
#include "exec.h"

#include "record.h"
#include "vector.h"
#include "walk.h"

#include <math.h>
#include <string.h>

const int cf_exec_stream_bytes[CFLOW_STREAM_COUNT] = {
    [CFLOW_STREAM_ATTENTION] = CFLOW_COUNTER_ATTENTION_BYTES, [CFLOW_STREAM_DENSE] = CFLOW_COUNTER_DENSE_BYTES,
    [CFLOW_STREAM_EXPERT] = CFLOW_COUNTER_EXPERT_BYTES,       [CFLOW_STREAM_ROUTER] = CFLOW_COUNTER_ROUTER_BYTES,
    [CFLOW_STREAM_HEAD] = CFLOW_COUNTER_HEAD_BYTES,
};

void cf_exec_trace(const cflow_session *session, cf_worker *worker, uint64_t offset, uint64_t bytes, int thread,
                   uint64_t phase)
{
    if (session->trace_capacity == 0) {
        return;
    }
    if (worker->trace_count < session->trace_capacity) {
        uint64_t *record = worker->trace + worker->trace_count * CF_TRACE_FIELDS;
        record[0] = offset;
        record[1] = bytes;
        record[2] = (uint64_t)thread;
        record[3] = phase;
    }
    worker->trace_count++;
}

void cf_exec_record_load(const cflow_session *session, cf_worker *worker, const cf_op *op, int thread, uint64_t offset,
                         uint64_t bytes)
{
    worker->counters[cf_exec_stream_bytes[op->stream]] += bytes;
    cf_exec_trace(session, worker, offset, bytes, thread, op->level);
}

/* Whose loads are recorded. */
typedef struct reader {
    const cflow_session *session;
    cf_worker *worker;
    const cf_op *op;
    int thread;
    const uint8_t *weights; /* of the matrix, which lies in the file at: */
    uint64_t offset;
} reader;

static void record_load(void *context, const uint8_t *address, uint64_t bytes)
{
    const reader *r = context;
    cf_exec_record_load(r->session, r->worker, r->op, r->thread, r->offset + (uint64_t)(address - r->weights), bytes);
}

/* Rows of one part that units first .. last - 1 cover. */
static void rows_of_units(const cf_op *op, uint32_t part, uint64_t first, uint64_t last, uint64_t *row, uint64_t *rows)
{
    const uint64_t total = op->tiles.rows[part];
    const uint64_t begin = first * CF_GROUP_ROWS, end = last * CF_GROUP_ROWS;
    *row = begin < total ? begin : total;
    *rows = (end < total ? end : total) - *row;
}

static void run_row_major(cflow_session *session, cf_worker *worker, const cf_op *op, const cf_tensor *tensor,
                          cf_rows_fn kernel, const cf_act *x, float *const y[3], uint64_t first, uint64_t last)
{
    const size_t row_bytes = tensor->columns / CF_BLOCK * cf_row_block_bytes((int)tensor->type);
    const uint8_t *rows_of_part =
        (const uint8_t *)session->row_major.data + session->row_major_offset[tensor - session->model->tensors];
    for (uint32_t part = 0; part < tensor->parts; part++) {
        uint64_t row, rows;
        rows_of_units(op, part, first, last, &row, &rows);
        if (rows > 0) {
            kernel(rows_of_part + row * row_bytes, row_bytes, (uint32_t)rows, (uint32_t)(tensor->columns / CF_BLOCK), x,
                   y[part] + row);
            worker->counters[cf_exec_stream_bytes[op->stream]] += rows * row_bytes;
        }
        rows_of_part += tensor->rows[part] * row_bytes;
    }
}

static const cf_tensor *tensor_of(const cflow_session *session, const cf_worker *worker, const cf_op *op)
{
    if (op->stream != CFLOW_STREAM_EXPERT) {
        return op->tensor;
    }
    const float *chosen = cf_exec_input(session, worker, op, 1);
    const size_t expert = (size_t)chosen[op->slot];
    const size_t bank = (size_t)op->block * session->model->param[CFLOW_PARAM_EXPERTS] + expert;
    return session->model->bank[bank * 2 + (op->piece == CFLOW_PIECE_EXPERT_DOWN)];
}

static const uint8_t *weights_of(const cflow_session *session, const cf_op *op, const cf_tensor *tensor)
{
    if (session->experts != NULL && op->stream == CFLOW_STREAM_EXPERT) {
        return cf_experts_tensor(session->experts, op->layer, op->slot, tensor);
    }
    const uint8_t *streamed = session->stream == NULL ? NULL : cf_stream_weights(session->stream, op);
    return streamed != NULL ? streamed : cf_tensor_data(session, tensor);
}

void cf_exec_matrix(cflow_session *session, cf_worker *worker, const cf_op *op, int thread)
{
    const uint64_t first = op->split[thread], last = op->split[thread + 1];
    if (first >= last) {
        return;
    }
    const cf_tensor *tensor = tensor_of(session, worker, op);
    const int gated = op->piece == CFLOW_PIECE_GATE_UP || op->piece == CFLOW_PIECE_EXPERT_GATE_UP;
    const uint64_t padded = (op->tiles.rows[0] + CF_GROUP_ROWS - 1) / CF_GROUP_ROWS * CF_GROUP_ROWS;
    const cf_act_arrays arrays = cf_exec_act(session, worker, session->plan->inputs[op->input_first]);
    const cf_act x = cf_act_view(&arrays);
    float *y[3] = {NULL};
    for (uint32_t part = 0; part < tensor->parts; part++) {
        y[part] = gated ? worker->scratch + part * padded : cf_exec_floats(session, worker, op->output[part]);
    }
    const cf_kernel *kernel = cf_plan_kernel(&session->plan->options, tensor->role, tensor->type);
    CF_RECORD_PIECE(op->piece);
    if (kernel->rows != NULL) {
        run_row_major(session, worker, op, tensor, kernel->rows, &x, y, first, last);
    } else {
        for (uint32_t part = 0; part < tensor->parts; part++) {
            const uint64_t groups = (op->tiles.rows[part] + CF_GROUP_ROWS - 1) / CF_GROUP_ROWS;
            const uint64_t end = last < groups ? last : groups;
            if (first < end) {
                memset(y[part] + first * CF_GROUP_ROWS, 0, (end - first) * CF_GROUP_ROWS * sizeof(float));
            }
        }
        uint32_t together = session->options.value[CFLOW_OPTION_FUSED] ? tensor->parts : 1;
#ifdef CFLOW_MUTANT_UNFUSED
        together = 1;
#endif
        const uint8_t *weights = weights_of(session, op, tensor);
        reader self = {session, worker, op, thread, weights, tensor->offset};
        const cf_walk walk = {.kernel = kernel->tile,
                              .tiles = &op->tiles,
                              .weights = weights,
                              .x = &x,
                              .y = {y[0], y[1], y[2]},
                              .streams = (uint32_t)session->options.value[CFLOW_OPTION_READ_STREAMS],
                              .prefetch_hint = (int32_t)session->options.value[CFLOW_OPTION_PREFETCH_HINT],
                              .prefetch_bytes = (uint32_t)session->options.value[CFLOW_OPTION_PREFETCH_BYTES],
                              .loaded = record_load,
                              .context = &self};
        for (uint32_t part = 0; part < tensor->parts; part += together) {
#ifdef CFLOW_MUTANT_STRIPES_OUT_OF_ORDER
            const uint64_t middle = (first + last) / 2;
            cf_walk_parts(&walk, part, part + together, middle, last);
            cf_walk_parts(&walk, part, part + together, first, middle);
#else
            cf_walk_parts(&walk, part, part + together, first, last);
#endif
        }
    }
    CF_RECORD_PIECE(CFLOW_PIECE_KIND_COUNT);
    uint64_t row, rows;
    if (gated) {
        rows_of_units(op, 0, first, last, &row, &rows);
        cf_vector_glu(cf_exec_floats(session, worker, op->output[0]) + row, y[0] + row, y[1] + row, rows,
                      (int)session->model->param[CFLOW_PARAM_ACTIVATION]);
    } else if (op->vector != NULL) {
        const float *bias = (const float *)(const void *)cf_tensor_data(session, op->vector);
        for (uint32_t part = 0; part < tensor->parts; bias += op->tiles.rows[part], part++) {
            rows_of_units(op, part, first, last, &row, &rows);
            cf_vector_add(y[part] + row, y[part] + row, bias + row, rows);
        }
    } else if (op->piece == CFLOW_PIECE_HEAD) {
        rows_of_units(op, 0, first, last, &row, &rows);
        for (uint64_t i = row; i < row + rows; i++) {
            worker->logits_finite &= isfinite(y[0][i]) != 0;
            if (worker->best_token < 0 || y[0][i] > worker->best_logit) {
                worker->best_logit = y[0][i];
                worker->best_token = (int32_t)i;
            }
        }
    }
}
