/* exec_matrix.c - the matrix pieces of a plan: products over tiles, then bias, gating, or the best logit. */
#include "exec.h"

#include "record.h"
#include "vector.h"

#include <math.h>
#include <string.h>

static const int STREAM_BYTES[CFLOW_STREAM_COUNT] = {
    [CFLOW_STREAM_ATTENTION] = CFLOW_COUNTER_ATTENTION_BYTES, [CFLOW_STREAM_DENSE] = CFLOW_COUNTER_DENSE_BYTES,
    [CFLOW_STREAM_EXPERT] = CFLOW_COUNTER_EXPERT_BYTES,       [CFLOW_STREAM_ROUTER] = CFLOW_COUNTER_ROUTER_BYTES,
    [CFLOW_STREAM_HEAD] = CFLOW_COUNTER_HEAD_BYTES,
};

static void record_load(const cflow_session *session, cf_worker *worker, const cf_op *op, int thread,
                        const uint8_t *address, uint64_t bytes)
{
    worker->counters[STREAM_BYTES[op->stream]] += bytes;
    if (session->trace_capacity == 0) {
        return;
    }
    if (worker->trace_count < session->trace_capacity) {
        uint64_t *record = worker->trace + worker->trace_count * CF_TRACE_FIELDS;
        record[0] = (uint64_t)(address - session->data) + session->model->data_offset;
        record[1] = bytes;
        record[2] = (uint64_t)thread;
        record[3] = op->level;
    }
    worker->trace_count++;
}

/* Units first .. last - 1 of parts part_first .. part_last - 1, which share each activation load. y[part]: whole vectors. */
static void run_tiles(cflow_session *session, cf_worker *worker, const cf_op *op, int thread, const cf_tensor *tensor,
                      cf_gemv_fn kernel, const cf_act *x, float *const y[3], uint64_t first, uint64_t last,
                      uint32_t part_first, uint32_t part_last)
{
    const cf_tiles *tiles = &op->tiles;
    const uint32_t stripe_groups = tiles->tile_rows / CF_GROUP_ROWS;
    cf_gemv_call call = {.prefetch_hint = (int32_t)session->options.value[CFLOW_OPTION_PREFETCH_HINT],
                         .prefetch_bytes = (uint32_t)session->options.value[CFLOW_OPTION_PREFETCH_BYTES]};
    for (uint64_t unit = first; unit < last;) {
        const uint64_t stripe = unit / stripe_groups;
        const uint32_t begin = (uint32_t)(unit - stripe * stripe_groups);
        const uint64_t left = last - stripe * stripe_groups;
        uint32_t end = left < stripe_groups ? (uint32_t)left : stripe_groups;
#ifdef CFLOW_MUTANT_WRONG_TILE_ORDER
        end = begin + 1;
#endif
        uint32_t groups[3] = {0}, before[3] = {0}, all = 0;
        for (uint32_t part = 0; part < tiles->parts; part++) {
            groups[part] = cf_tiles_groups(tiles, part, stripe);
            before[part] = all;
            all += groups[part];
        }
        const uint8_t *base = cf_tensor_data(session, tensor) + cf_tiles_stripe_offset(tiles, stripe);
        for (uint64_t column = 0; column < tiles->columns; column += tiles->tile_cols) {
            const uint64_t width =
                tiles->columns - column < tiles->tile_cols ? tiles->columns - column : tiles->tile_cols;
            call.blocks = (uint32_t)(width / CF_BLOCK);
            call.x = cf_act_at(x, column);
            const size_t group_bytes = cf_group_bytes((int)tensor->type, call.blocks);
            /* A run of groups over which the same parts exist: all of them, unless parts differ in rows. */
            for (uint32_t group = begin; group < end;) {
                uint32_t stop = end;
                call.parts = 0;
                for (uint32_t part = part_first; part < part_last; part++) {
                    if (groups[part] <= group) {
                        continue;
                    }
                    stop = groups[part] < stop ? groups[part] : stop;
                    call.weights[call.parts] = base + (before[part] + group) * group_bytes;
                    call.y[call.parts] = y[part] + (stripe * stripe_groups + group) * CF_GROUP_ROWS;
                    call.parts++;
                }
                if (call.parts == 0) {
                    break;
                }
                call.groups = stop - group;
                kernel(&call);
                for (uint32_t part = 0; part < call.parts; part++) {
                    record_load(session, worker, op, thread, call.weights[part], call.groups * group_bytes);
                }
                group = stop;
            }
            base += all * group_bytes;
        }
        unit += end - begin;
    }
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
            worker->counters[STREAM_BYTES[op->stream]] += rows * row_bytes;
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
        for (uint32_t part = 0; part < tensor->parts; part += together) {
#ifdef CFLOW_MUTANT_STRIPES_OUT_OF_ORDER
            const uint64_t middle = (first + last) / 2;
            run_tiles(session, worker, op, thread, tensor, kernel->tile, &x, y, middle, last, part, part + together);
            run_tiles(session, worker, op, thread, tensor, kernel->tile, &x, y, first, middle, part, part + together);
#else
            run_tiles(session, worker, op, thread, tensor, kernel->tile, &x, y, first, last, part, part + together);
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
