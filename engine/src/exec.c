/* exec.c - runs the phases of a plan on every worker, token after token. */
#include "session.h"

#include "act.h"
#include "record.h"
#include "row.h"
#include "vector.h"

#include <math.h>
#include <string.h>

static const int STREAM_BYTES[CFLOW_STREAM_COUNT] = {
    [CFLOW_STREAM_ATTENTION] = CFLOW_COUNTER_ATTENTION_BYTES, [CFLOW_STREAM_DENSE] = CFLOW_COUNTER_DENSE_BYTES,
    [CFLOW_STREAM_EXPERT] = CFLOW_COUNTER_EXPERT_BYTES,       [CFLOW_STREAM_ROUTER] = CFLOW_COUNTER_ROUTER_BYTES,
    [CFLOW_STREAM_HEAD] = CFLOW_COUNTER_HEAD_BYTES,
};

static const int STREAM_NS[CFLOW_STREAM_COUNT] = {
    [CFLOW_STREAM_ATTENTION] = CFLOW_COUNTER_ATTENTION_NS, [CFLOW_STREAM_DENSE] = CFLOW_COUNTER_DENSE_NS,
    [CFLOW_STREAM_EXPERT] = CFLOW_COUNTER_EXPERT_NS,       [CFLOW_STREAM_ROUTER] = CFLOW_COUNTER_ROUTER_NS,
    [CFLOW_STREAM_HEAD] = CFLOW_COUNTER_HEAD_NS,
};

/* ---- values -------------------------------------------------------------------------------------------------- */

static float *floats_of(const cflow_session *session, const cf_worker *worker, uint32_t value)
{
    const cf_value *v = &session->plan->values[value];
    uint8_t *arena = v->kind == CF_VALUE_SHARED ? session->shared_arena.data : worker->arena;
    return (float *)(void *)(arena + v->offset);
}

static float *input_of(const cflow_session *session, const cf_worker *worker, const cf_op *op, uint32_t index)
{
    return floats_of(session, worker, session->plan->inputs[op->input_first + index]);
}

static cf_act_arrays act_of(const cflow_session *session, const cf_worker *worker, uint32_t value)
{
    const cf_value *v = &session->plan->values[value];
    return cf_act_place(worker->arena + v->offset, v->columns);
}

/* Fills what the readers of this activation value need, from its own f32 array or from another vector. */
static void prepare_act(const cflow_session *session, const cf_worker *worker, uint32_t value, const float *in)
{
    const cf_value *v = &session->plan->values[value];
    const cf_act_arrays arrays = act_of(session, worker, value);
    cf_act_prepare(&arrays, v->needs, in, v->columns);
}

/* ---- vector operations ----------------------------------------------------------------------------------------- */

static void run_embed(cflow_session *session, cf_worker *worker, const cf_op *op, int thread)
{
    const cf_tensor *table = op->tensor;
    const uint32_t *p = session->model->param;
    cf_tiles tiles;
    /* Described once before, when the file was opened: cannot fail. */
    (void)cf_tiles_describe((int)table->type, 1, table->rows, table->columns, p[CFLOW_PARAM_TILE_ROWS],
                            p[CFLOW_PARAM_TILE_COLS], &tiles);
    cf_tiles_read_row(&tiles, cf_tensor_data(session, table), (uint64_t)session->token,
                      floats_of(session, worker, op->output[0]));
    if (thread == 0) {
        worker->counters[CFLOW_COUNTER_EMBEDDING_BYTES] +=
            table->columns / CF_BLOCK * cf_row_block_bytes((int)table->type);
    }
}

static void run_norm(cflow_session *session, cf_worker *worker, const cf_op *op)
{
    float *normed = act_of(session, worker, op->output[0]).f32;
    const float *gain = (const float *)(const void *)cf_tensor_data(session, op->vector);
    const uint32_t d = session->model->param[CFLOW_PARAM_D_MODEL];
    if (!cf_vector_rmsnorm(normed, input_of(session, worker, op, 0), gain, d, session->model->rms_eps)) {
        const uint32_t layer = op->layer == CF_NONE ? session->model->param[CFLOW_PARAM_LAYERS] : op->layer;
        /* Phases of delayed models mix layers: the lowest counts, not the first that was run. */
        worker->bad_layer = layer < worker->bad_layer ? layer : worker->bad_layer;
    }
    prepare_act(session, worker, op->output[0], normed);
}

/* NaN ranks above everything: it is chosen, and the token then fails at its logits instead of passing unseen. */
static float rank_of(float logit)
{
    return isnan(logit) ? INFINITY : logit;
}

/*
 * Choice of experts: the k largest logits, the lower index first among equals, in ascending order of index, with the
 * softmax over all logits as their weights. The control arm that reads all experts gives the others weight 0.
 */
static void run_route(cflow_session *session, cf_worker *worker, const cf_op *op, int thread)
{
    const uint32_t experts = session->model->param[CFLOW_PARAM_EXPERTS];
    const uint32_t k = session->model->param[CFLOW_PARAM_EXPERTS_PER_TOKEN];
    const uint32_t slots = session->plan->slots;
    const float *logits = input_of(session, worker, op, 0);
    float *chosen = floats_of(session, worker, op->output[0]);
    float *weights = chosen + slots;
    float *probability = weights + slots;
    memcpy(probability, logits, experts * sizeof *logits);
    cf_vector_softmax(probability, experts);
    float *picked = slots == experts ? probability + experts : chosen; /* [k] indices in order of choice */
    float sum = 0.0f;
    float previous = INFINITY;
    int64_t previous_index = -1;
    for (uint32_t count = 0; count < k; count++) {
        int64_t best = -1;
        for (uint32_t i = 0; i < experts; i++) {
            const int after = rank_of(logits[i]) < previous || (rank_of(logits[i]) == previous && i > previous_index);
            if (after && (best < 0 || rank_of(logits[i]) > rank_of(logits[best]))) {
                best = i;
            }
        }
        previous = rank_of(logits[best]);
        previous_index = best;
        sum += probability[best];
        /* Insertion keeps the indices ascending. */
        uint32_t at = count;
        for (; at > 0 && picked[at - 1] > (float)best; at--) {
            picked[at] = picked[at - 1];
        }
        picked[at] = (float)best;
    }
    const float norm = session->model->param[CFLOW_PARAM_NORM_TOPK] != 0 ? sum : 1.0f;
    if (slots == experts) {
        for (uint32_t slot = 0; slot < slots; slot++) {
            weights[slot] = 0.0f;
        }
    }
    for (uint32_t i = 0; i < k; i++) {
        const uint32_t expert = (uint32_t)picked[i];
        weights[slots == experts ? expert : i] = probability[expert] / norm;
        if (thread == 0) {
            session->routing[(size_t)op->layer * k + i] = (int32_t)expert;
            session->routing_weights[(size_t)op->layer * k + i] = probability[expert] / norm;
        }
    }
    for (uint32_t slot = 0; slots == experts && slot < slots; slot++) {
        chosen[slot] = (float)slot;
    }
}

static void run_expert_sum(cflow_session *session, cf_worker *worker, const cf_op *op)
{
    const uint32_t slots = session->plan->slots;
    const float *weights = input_of(session, worker, op, 0) + slots;
    float *out = floats_of(session, worker, op->output[0]);
    for (uint32_t slot = 0; slot < slots; slot++) {
        cf_vector_accumulate(out, weights[slot], input_of(session, worker, op, slot + 1),
                             session->model->param[CFLOW_PARAM_D_MODEL], slot == 0);
    }
}

static void run_vector_op(cflow_session *session, cf_worker *worker, const cf_op *op, int thread)
{
    const size_t d = session->model->param[CFLOW_PARAM_D_MODEL];
    switch (op->kind) {
    case CF_OP_EMBED:
        run_embed(session, worker, op, thread);
        break;
    case CF_OP_ADD:
        cf_vector_add(floats_of(session, worker, op->output[0]), input_of(session, worker, op, 0),
                      input_of(session, worker, op, 1), d);
        break;
    case CF_OP_MIX:
        cf_vector_mix(floats_of(session, worker, op->output[0]), input_of(session, worker, op, 0),
                      input_of(session, worker, op, 1), d);
        break;
    case CF_OP_REGISTER:
        cf_vector_register(
            floats_of(session, worker, op->output[0]), (const float *)(const void *)cf_tensor_data(session, op->vector),
            op->input_count > 1 ? input_of(session, worker, op, 1) : NULL, input_of(session, worker, op, 0), d);
        break;
    case CF_OP_NORM:
        run_norm(session, worker, op);
        break;
    case CF_OP_PREPARE:
        prepare_act(session, worker, op->output[0], input_of(session, worker, op, 0));
        break;
    case CF_OP_ROUTE:
        run_route(session, worker, op, thread);
        break;
    case CF_OP_EXPERT_SUM:
        run_expert_sum(session, worker, op);
        break;
    case CF_OP_STREAM:
        for (uint32_t i = 0; thread == 0 && i < op->input_count; i++) {
            session->residual_norms[op->layer + (size_t)i * session->model->param[CFLOW_PARAM_LAYERS]] =
                sqrtf(cf_vector_square_sum(input_of(session, worker, op, i), d));
        }
        break;
    case CF_OP_PIECE:
        break;
    }
}

/* ---- matrix pieces --------------------------------------------------------------------------------------------- */

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
    const float *chosen = input_of(session, worker, op, 1);
    const size_t expert = (size_t)chosen[op->slot];
    const size_t bank = (size_t)op->block * session->model->param[CFLOW_PARAM_EXPERTS] + expert;
    return session->model->bank[bank * 2 + (op->piece == CFLOW_PIECE_EXPERT_DOWN)];
}

static void run_matrix(cflow_session *session, cf_worker *worker, const cf_op *op, int thread)
{
    const uint64_t first = op->split[thread], last = op->split[thread + 1];
    if (first >= last) {
        return;
    }
    const cf_tensor *tensor = tensor_of(session, worker, op);
    const int gated = op->piece == CFLOW_PIECE_GATE_UP || op->piece == CFLOW_PIECE_EXPERT_GATE_UP;
    const uint64_t padded = (op->tiles.rows[0] + CF_GROUP_ROWS - 1) / CF_GROUP_ROWS * CF_GROUP_ROWS;
    const cf_act_arrays arrays = act_of(session, worker, session->plan->inputs[op->input_first]);
    const cf_act x = cf_act_view(&arrays);
    float *y[3] = {NULL};
    for (uint32_t part = 0; part < tensor->parts; part++) {
        y[part] = gated ? worker->scratch + part * padded : floats_of(session, worker, op->output[part]);
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
        cf_vector_glu(floats_of(session, worker, op->output[0]) + row, y[0] + row, y[1] + row, rows,
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

/* ---- attention core -------------------------------------------------------------------------------------------- */

static void run_attention(cflow_session *session, cf_worker *worker, const cf_op *op, int thread)
{
    const uint32_t *p = session->model->param;
    const uint32_t head_dim = p[CFLOW_PARAM_HEAD_DIM];
    const uint32_t shared = p[CFLOW_PARAM_HEADS] / p[CFLOW_PARAM_KV_HEADS];
    const cf_kv_ops *ops = session->kv_ops;
    const size_t row_bytes = head_dim * ops->element_bytes;
    const float *queries = input_of(session, worker, op, 0);
    const float *keys = input_of(session, worker, op, 1);
    const float *values = input_of(session, worker, op, 2);
    float *out = floats_of(session, worker, op->output[0]);
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

/* ---- tokens ---------------------------------------------------------------------------------------------------- */

static void at_phase_end(void *argument)
{
    cflow_session *session = argument;
    if (atomic_load_explicit(&session->cancel, memory_order_relaxed)) {
        session->job_status = CFLOW_ERR_CANCELLED;
        atomic_store_explicit(&session->abort, 1, memory_order_relaxed);
    }
}

/* The next token of a call, or the end of it. */
static void next_token(cflow_session *session)
{
    if (session->done == session->feed_count) {
        atomic_store_explicit(&session->abort, 1, memory_order_relaxed);
        return;
    }
    if (!session->generate) {
        session->token = session->feed[session->done];
        session->want_logits = session->done + 1 == session->feed_count;
    }
    if (atomic_load_explicit(&session->cancel, memory_order_relaxed)) {
        session->job_status = CFLOW_ERR_CANCELLED;
        atomic_store_explicit(&session->abort, 1, memory_order_relaxed);
    }
}

static void at_token_end(void *argument)
{
    cflow_session *session = argument;
    const uint64_t now_ns = cf_now_ns();
    const uint64_t token_ns = now_ns - session->token_start_ns;
    session->token_start_ns = now_ns;
    const int threads = cf_pool_threads(session->pool);
    const cf_worker *best = NULL;
    int finite = 1;
    uint32_t bad_layer = CF_NONE;
    for (int i = 0; i < threads; i++) {
        const cf_worker *worker = &session->workers[i];
        finite &= worker->logits_finite;
        bad_layer = worker->bad_layer < bad_layer ? worker->bad_layer : bad_layer;
        /* Workers hold ascending rows: only a strictly larger logit beats a lower id. */
        if (worker->best_token >= 0 && (best == NULL || worker->best_logit > best->best_logit)) {
            best = worker;
        }
    }
    if (!finite || bad_layer != CF_NONE) {
        session->job_status = CFLOW_ERR_NONFINITE;
        session->job_bad_layer = bad_layer;
        atomic_store_explicit(&session->abort, 1, memory_order_relaxed);
        return;
    }
    session->position++;
    session->tokens++;
    session->wall_ns += token_ns;
    if (session->generate) {
        session->token = best->best_token;
        session->tokens_out[session->done] = session->token;
    }
    if (session->ns_out != NULL) {
        session->ns_out[session->done] = token_ns;
    }
    session->done++;
    next_token(session);
}

static void run_token(cflow_session *session, cf_worker *worker, int thread)
{
    const cf_plan *plan = session->plan;
    const uint32_t phases = session->want_logits ? plan->phase_count : plan->head_phase;
    const uint32_t head_dim = session->model->param[CFLOW_PARAM_HEAD_DIM];
    worker->best_token = -1;
    worker->logits_finite = 1;
    worker->bad_layer = CF_NONE;
    uint64_t clock_ns = cf_now_ns();
    cf_rope_rotation(worker->rotation, worker->rotation + head_dim / 2, session->position, head_dim,
                     session->model->rope_base);
    for (uint32_t phase = 0; phase < phases; phase++) {
        int in_pieces = 0;
        for (uint32_t i = plan->phase_first[phase]; i < plan->phase_first[phase + 1]; i++) {
            const cf_op *op = &plan->ops[plan->order[i]];
            if (op->kind != CF_OP_PIECE) {
                run_vector_op(session, worker, op, thread);
                continue;
            }
            if (!in_pieces) {
                const uint64_t now_ns = cf_now_ns();
                worker->counters[CFLOW_COUNTER_VECTOR_NS] += now_ns - clock_ns;
                clock_ns = now_ns;
                in_pieces = 1;
            }
            if (op->tensor == NULL) {
                run_attention(session, worker, op, thread);
            } else {
                run_matrix(session, worker, op, thread);
            }
            const uint64_t now_ns = cf_now_ns();
            worker->counters[STREAM_NS[op->stream]] += now_ns - clock_ns;
            clock_ns = now_ns;
        }
        const int is_last = phase + 1 == phases;
        if (thread == 0) {
            session->phases++;
        }
        cf_pool_barrier(session->pool, is_last ? at_token_end : at_phase_end, session);
        const uint64_t now_ns = cf_now_ns();
        worker->counters[CFLOW_COUNTER_BARRIER_NS] += now_ns - clock_ns;
        clock_ns = now_ns;
        if (atomic_load_explicit(&session->abort, memory_order_relaxed)) {
            return;
        }
    }
}

static void at_start(void *argument)
{
    cflow_session *session = argument;
    session->token_start_ns = atomic_load_explicit(&session->first_in_ns, memory_order_relaxed);
    next_token(session);
}

void cf_exec_job(void *argument, int thread)
{
    cflow_session *session = argument;
    uint64_t unset = 0;
    (void)atomic_compare_exchange_strong(&session->first_in_ns, &unset, cf_now_ns());
    cf_pool_barrier(session->pool, at_start, session);
    while (!atomic_load_explicit(&session->abort, memory_order_relaxed)) {
        run_token(session, &session->workers[thread], thread);
    }
}
