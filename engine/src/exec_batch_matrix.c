/*
 * exec_batch_matrix.c - the matrix pieces for a chunk: every tile is loaded once and multiplied by all tokens that need it.
 * The rows of a stripe are summed side by side in the worker's memory, token after token; then bias or gating takes
 * them to the tokens' own values.
 */
#include "exec.h"

#include "record.h"
#include "vector.h"

#include <math.h>
#include <string.h>

/* A matrix and the tokens that it is multiplied by. */
typedef struct batch_product {
    const cf_op *op; /* shape, stream and what follows the product: the same for all tokens */
    const cf_tensor *tensor;
    cf_gemm gemm;
    float *out[CF_MAX_BATCH][CF_MAX_PARTS]; /* whole vectors; of a gated piece one */
} batch_product;

/* Groups of one tile that wait to be multiplied until it is known what comes after them. */
typedef struct tile_run {
    const uint8_t *weights;
    uint32_t groups; /* 0: none wait */
    uint32_t blocks;
    size_t column;
    float *y;
    size_t bytes;
} tile_run;

static int is_gated(const cf_op *op)
{
    return op->piece == CFLOW_PIECE_GATE_UP || op->piece == CFLOW_PIECE_EXPERT_GATE_UP;
}

static void run_waiting(cflow_session *session, cf_worker *worker, const batch_product *product, int thread,
                        tile_run *run, const uint8_t *ahead, size_t ahead_bytes)
{
    if (run->groups > 0) {
        cf_gemm_tile(&product->gemm, run->weights, run->groups, run->blocks, run->column, run->y,
                     product->op->tiles.tile_rows, ahead, ahead_bytes);
        const uint64_t inside = (uint64_t)(run->weights - cf_tensor_data(session, product->tensor));
        cf_exec_record_load(session, worker, product->op, thread, product->tensor->offset + inside, run->bytes);
        run->groups = 0;
    }
}

/* Rows `row` .. of a stripe to the tokens' values: bias or gating as in decode. sums: as in multiply_stripe(). */
static void finish_stripe(const cflow_session *session, const batch_product *product, float *sums, uint64_t stripe,
                          uint32_t begin, uint32_t end)
{
    const cf_op *op = product->op;
    const size_t stripe_rows = op->tiles.tile_rows, part_floats = product->gemm.count * stripe_rows;
    const uint64_t first = stripe * stripe_rows + (uint64_t)begin * CF_GROUP_ROWS;
    const float *bias = op->vector == NULL ? NULL : (const float *)(const void *)cf_tensor_data(session, op->vector);
    for (uint32_t part = 0; part < (is_gated(op) ? 1 : op->tiles.parts); part++) {
        const uint64_t total = op->tiles.rows[part];
        const uint64_t wanted = (uint64_t)(end - begin) * CF_GROUP_ROWS;
        const size_t rows = first >= total ? 0 : total - first < wanted ? total - first : wanted;
        for (uint32_t n = 0; n < product->gemm.count && rows > 0; n++) {
            const float *y = sums + part * part_floats + n * stripe_rows + (size_t)begin * CF_GROUP_ROWS;
            float *out = product->out[n][part] + first;
            if (is_gated(op)) {
                cf_vector_glu(out, y, y + part_floats, rows, (int)session->model->param[CFLOW_PARAM_ACTIVATION]);
            } else if (bias != NULL) {
                cf_vector_add(out, y, bias + first, rows);
            } else {
                memcpy(out, y, rows * sizeof *out);
            }
        }
        bias = bias == NULL ? NULL : bias + total;
    }
}

/* Groups begin .. end - 1 of one stripe. sums: [parts][tokens][tile_rows]. */
static void multiply_stripe(cflow_session *session, cf_worker *worker, const batch_product *product, int thread,
                            uint64_t stripe, uint32_t begin, uint32_t end, int more)
{
    const cf_tiles *tiles = &product->op->tiles;
    const size_t part_floats = (size_t)product->gemm.count * tiles->tile_rows;
    float *sums = worker->stripe;
    memset(sums, 0, tiles->parts * part_floats * sizeof *sums);
    const uint8_t *tile = cf_tensor_data(session, product->tensor) + cf_tiles_stripe_offset(tiles, stripe);
    tile_run waiting = {.groups = 0};
    size_t tile_bytes = 0;
    for (uint64_t column = 0; column < tiles->columns; column += tiles->tile_cols) {
        const uint64_t width = tiles->columns - column < tiles->tile_cols ? tiles->columns - column : tiles->tile_cols;
        const uint32_t blocks = (uint32_t)(width / CF_BLOCK);
        const size_t group_bytes = cf_group_bytes(tiles->type, blocks);
        for (uint32_t part = 0; part < tiles->parts; part++) {
            const uint32_t groups = cf_tiles_groups(tiles, part, stripe);
            const uint32_t stop = groups < end ? groups : end;
            if (begin < stop) {
                const tile_run next = {
                    .weights = tile + begin * group_bytes,
                    .groups = stop - begin,
                    .blocks = blocks,
                    .column = (size_t)column,
                    .y = sums + part * part_floats + (size_t)begin * CF_GROUP_ROWS,
                    .bytes = (stop - begin) * group_bytes,
                };
                run_waiting(session, worker, product, thread, &waiting, next.weights, next.bytes);
                waiting = next;
            }
            tile_bytes = groups * group_bytes;
            tile += tile_bytes;
        }
    }
    /* The next stripe follows. */
    run_waiting(session, worker, product, thread, &waiting, tile, more ? tile_bytes : 0);
    finish_stripe(session, product, sums, stripe, begin, end);
}

/* Units first .. last - 1. product->gemm.kernel, count, x and product->out are set. */
static void multiply(cflow_session *session, cf_worker *worker, batch_product *product, int thread, uint64_t first,
                     uint64_t last)
{
    const uint32_t stripe_groups = product->op->tiles.tile_rows / CF_GROUP_ROWS;
    cf_gemm_prepare(&product->gemm, worker->panels, product->tensor->columns);
    CF_RECORD_PIECE(product->op->piece);
    for (uint64_t unit = first; unit < last;) {
        const uint64_t stripe = unit / stripe_groups;
        const uint32_t begin = (uint32_t)(unit - stripe * stripe_groups);
        const uint64_t left = last - stripe * stripe_groups;
        const uint32_t end = left < stripe_groups ? (uint32_t)left : stripe_groups;
        multiply_stripe(session, worker, product, thread, stripe, begin, end, left > stripe_groups);
        unit += end - begin;
    }
    CF_RECORD_PIECE(CFLOW_PIECE_KIND_COUNT);
}

static void add_token(const cflow_session *session, const cf_worker *worker, batch_product *product, const cf_op *op,
                      uint32_t slot)
{
    const uint32_t n = product->gemm.count++;
    const uint32_t in = session->plan->inputs[op->input_first];
    const cf_act_arrays arrays =
        cf_act_place(cf_exec_value(session, worker, in, slot), session->plan->values[in].columns);
    product->gemm.x[n] = cf_act_view(&arrays);
    for (uint32_t part = 0; part < CF_MAX_PARTS && op->output[part] != CF_NONE; part++) {
        product->out[n][part] = (float *)(void *)cf_exec_value(session, worker, op->output[part], slot);
    }
}

static void start_product(const cflow_session *session, batch_product *product, const cf_op *op,
                          const cf_tensor *tensor)
{
    product->op = op;
    product->tensor = tensor;
    product->gemm.kernel = cf_plan_kernel(&session->plan->options, tensor->role, tensor->type);
    product->gemm.count = 0;
}

void cf_batch_matrix(cflow_session *session, cf_worker *worker, const cf_op *op, int thread)
{
    const uint64_t first = op->split[thread], last = op->split[thread + 1];
    if (first >= last) {
        return;
    }
    batch_product product;
    start_product(session, &product, op, op->tensor);
    for (uint32_t slot = 0; slot < session->chunk; slot++) {
        add_token(session, worker, &product, op, slot);
    }
    multiply(session, worker, &product, thread, first, last);
}

void cf_batch_head(cflow_session *session, cf_worker *worker, const cf_op *op, int thread)
{
    const uint64_t first = op->split[thread], last = op->split[thread + 1];
    if (first >= last) {
        return;
    }
    const size_t vocab = session->model->param[CFLOW_PARAM_VOCAB];
    float *logits = session->all_logits + session->done * vocab;
    batch_product product;
    start_product(session, &product, op, op->tensor);
    for (uint32_t slot = 0; slot < session->chunk; slot++) {
        add_token(session, worker, &product, op, slot);
        product.out[slot][0] = logits + slot * vocab;
    }
    multiply(session, worker, &product, thread, first, last);
    const size_t row = (size_t)first * CF_GROUP_ROWS, end = (size_t)last * CF_GROUP_ROWS;
    const size_t rows = (end < vocab ? end : vocab) - row;
    for (uint32_t slot = 0; slot < session->chunk; slot++) {
        worker->slot = slot;
        for (size_t i = row; i < row + rows; i++) {
            if (!isfinite(logits[slot * vocab + i])) {
                cf_exec_not_finite(worker, CF_NONE);
            }
        }
    }
    float *of_last = (float *)(void *)(worker->base[CF_VALUE_LOGITS]);
    memcpy(of_last + row, logits + (session->chunk - 1) * vocab + row, rows * sizeof *of_last);
}

/* ---- experts ---------------------------------------------------------------------------------------------------- */

/*
 * Sorts the choices of all tokens by expert: expert e was chosen by entries starts[e] .. starts[e + 1] - 1 of `pairs`, each
 * slot * batch + token. Both lie in worker->choices.
 */
static void sort_choices(const cflow_session *session, const cf_worker *worker, const cf_op *first, uint32_t *starts,
                         uint32_t *pairs)
{
    const uint32_t experts = session->model->param[CFLOW_PARAM_EXPERTS], slots = session->plan->slots;
    const uint32_t route = session->plan->inputs[first->input_first + 1];
    memset(starts, 0, ((size_t)experts + 1) * sizeof *starts);
    for (uint32_t token = 0; token < session->chunk; token++) {
        const float *chosen = (const float *)(const void *)cf_exec_value(session, worker, route, token);
        for (uint32_t slot = 0; slot < slots; slot++) {
            starts[(uint32_t)chosen[slot]]++;
        }
    }
    uint32_t total = 0;
    for (uint32_t expert = 0; expert <= experts; expert++) {
        total += starts[expert];
        starts[expert] = total;
    }
    /* Filled from behind: each start moves down to the first of its entries, tokens ascending. */
    for (uint32_t token = session->chunk; token-- > 0;) {
        const float *chosen = (const float *)(const void *)cf_exec_value(session, worker, route, token);
        for (uint32_t slot = 0; slot < slots; slot++) {
            pairs[--starts[(uint32_t)chosen[slot]]] = slot * session->batch + token;
        }
    }
}

/* Cost of a unit of an expert that `count` tokens chose, in products with one token: its load counts like a few. */
static uint64_t unit_cost(uint32_t count)
{
    return count == 0 ? 0 : (uint64_t)count + CF_PANEL;
}

/* The first of an expert's units that do not lie before `share` of the cost. */
static uint64_t unit_at(uint64_t share, uint64_t before, uint64_t cost, uint64_t units)
{
    const uint64_t unit = share <= before ? 0 : (share - before + cost - 1) / cost;
    return unit < units ? unit : units;
}

void cf_batch_experts(cflow_session *session, cf_worker *worker, uint32_t first, int thread)
{
    const cf_plan *plan = session->plan;
    const cf_op *op = &plan->ops[plan->order[first]];
    const uint32_t experts = session->model->param[CFLOW_PARAM_EXPERTS];
    const uint64_t threads = (uint64_t)cf_pool_threads(session->pool);
    uint32_t *starts = worker->choices, *pairs = starts + experts + 1;
    sort_choices(session, worker, op, starts, pairs);
    uint64_t total = 0;
    for (uint32_t expert = 0; expert < experts; expert++) {
        total += unit_cost(starts[expert + 1] - starts[expert]) * op->units;
    }
    const uint64_t low = total * (uint64_t)thread / threads, high = total * ((uint64_t)thread + 1) / threads;
    uint64_t before = 0;
    for (uint32_t expert = 0; expert < experts; expert++) {
        const uint32_t count = starts[expert + 1] - starts[expert];
        const uint64_t cost = unit_cost(count);
        if (count == 0) {
            continue;
        }
        const uint64_t begin = unit_at(low, before, cost, op->units), end = unit_at(high, before, cost, op->units);
        before += cost * op->units;
        if (begin >= end) {
            continue;
        }
        const size_t bank = (size_t)op->block * experts + expert;
        batch_product product;
        start_product(session, &product, op, session->model->bank[bank * 2 + (op->piece == CFLOW_PIECE_EXPERT_DOWN)]);
        for (uint32_t i = starts[expert]; i < starts[expert + 1]; i++) {
            const cf_op *of_slot = &plan->ops[plan->order[first + pairs[i] / session->batch]];
            add_token(session, worker, &product, of_slot, pairs[i] % session->batch);
        }
        multiply(session, worker, &product, thread, begin, end);
    }
}
