#include "plan.h"

#include "act.h"
#include "error.h"

#include <stdlib.h>
#include <string.h>

/* ---- growing arrays ---------------------------------------------------------------------------------------- */

/* The array with room for one more item, perhaps moved; NULL when memory is out, and the old one still stands. */
static void *reserve(void *items, uint32_t count, uint32_t *capacity, size_t item_bytes)
{
    if (count < *capacity) {
        return items;
    }
    const uint32_t wanted = *capacity == 0 ? 256 : *capacity * 2;
    void *grown = realloc(items, (size_t)wanted * item_bytes);
    if (grown != NULL) {
        *capacity = wanted;
    }
    return grown;
}

static void out_of_memory(cf_builder *b)
{
    b->status = cf_fail(CFLOW_ERR_MEMORY, "out of memory for the schedule");
}

static uint32_t new_value(cf_builder *b, cf_value_kind kind, uint64_t columns)
{
    cf_plan *plan = b->plan;
    if (b->status != CFLOW_OK) {
        return CF_NONE;
    }
    cf_value *values = reserve(plan->values, plan->value_count, &plan->value_capacity, sizeof *values);
    if (values == NULL) {
        out_of_memory(b);
        return CF_NONE;
    }
    plan->values = values;
    cf_value *value = &plan->values[plan->value_count];
    memset(value, 0, sizeof *value);
    value->kind = kind;
    value->columns = (uint32_t)columns;
    return plan->value_count++;
}

static cf_op *new_op(cf_builder *b, cf_op_kind kind)
{
    cf_plan *plan = b->plan;
    if (b->status != CFLOW_OK) {
        return NULL;
    }
    cf_op *ops = reserve(plan->ops, plan->op_count, &plan->op_capacity, sizeof *ops);
    if (ops == NULL) {
        out_of_memory(b);
        return NULL;
    }
    plan->ops = ops;
    cf_op *op = &plan->ops[plan->op_count++];
    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->layer = b->layer;
    op->block = b->block;
    op->level = b->least_level;
    op->input_first = plan->input_count;
    op->output[0] = op->output[1] = op->output[2] = CF_NONE;
    return op;
}

static void add_input(cf_builder *b, cf_op *op, uint32_t value)
{
    cf_plan *plan = b->plan;
    if (b->status != CFLOW_OK || value == CF_NONE) {
        return;
    }
    uint32_t *inputs = reserve(plan->inputs, plan->input_count, &plan->input_capacity, sizeof *inputs);
    if (inputs == NULL) {
        out_of_memory(b);
        return;
    }
    plan->inputs = inputs;
    plan->inputs[plan->input_count++] = value;
    op->input_count++;
}

static void set_output(cf_builder *b, cf_op *op, int index, uint32_t value)
{
    if (b->status == CFLOW_OK) {
        op->output[index] = value;
    }
}

uint32_t cf_build_level(const cf_builder *b, uint32_t value)
{
    return b->status == CFLOW_OK ? b->plan->values[value].level : 0;
}

/* The operation has all its inputs and outputs: fixes its level. */
static void finish_op(cf_builder *b, cf_op *op)
{
    cf_plan *plan = b->plan;
    if (b->status != CFLOW_OK) {
        return;
    }
    for (uint32_t i = 0; i < op->input_count; i++) {
        const cf_value *in = &plan->values[plan->inputs[op->input_first + i]];
        op->level = in->level > op->level ? in->level : op->level;
    }
    for (uint32_t i = 0; i < op->input_count; i++) {
        cf_value *in = &plan->values[plan->inputs[op->input_first + i]];
        in->last_level = op->level > in->last_level ? op->level : in->last_level;
    }
    for (int i = 0; i < 3; i++) {
        if (op->output[i] != CF_NONE) {
            cf_value *out = &plan->values[op->output[i]];
            out->born = op->level;
            out->level = op->level + (op->kind == CF_OP_PIECE);
            out->last_level = out->level;
            out->producer = (uint32_t)(op - plan->ops);
        }
    }
    plan->phase_count = op->level + 1 > plan->phase_count ? op->level + 1 : plan->phase_count;
}

/* ---- vector operations -------------------------------------------------------------------------------------- */

uint32_t cf_build_embed(cf_builder *b)
{
    const uint32_t out = new_value(b, CF_VALUE_PRIVATE, b->plan->model->param[CFLOW_PARAM_D_MODEL]);
    cf_op *op = new_op(b, CF_OP_EMBED);
    if (op != NULL) {
        op->tensor = cf_model_find(b->plan->model, CF_NONE, CFLOW_ROLE_EMBEDDING);
    }
    set_output(b, op, 0, out);
    finish_op(b, op);
    return out;
}

uint32_t cf_build_binary(cf_builder *b, cf_op_kind kind, uint32_t in0, uint32_t in1, const cf_tensor *vector)
{
    const uint32_t out = new_value(b, CF_VALUE_PRIVATE, b->plan->model->param[CFLOW_PARAM_D_MODEL]);
    cf_op *op = new_op(b, kind);
    add_input(b, op, in0);
    add_input(b, op, in1);
    if (op != NULL) {
        op->vector = vector;
    }
    set_output(b, op, 0, out);
    finish_op(b, op);
    return out;
}

uint32_t cf_build_norm(cf_builder *b, uint32_t in, uint32_t norm_role)
{
    const uint32_t block = norm_role == CFLOW_ROLE_OUTPUT_NORM ? CF_NONE : b->block;
    const uint32_t out = new_value(b, CF_VALUE_ACT, b->plan->model->param[CFLOW_PARAM_D_MODEL]);
    cf_op *op = new_op(b, CF_OP_NORM);
    add_input(b, op, in);
    if (op != NULL) {
        op->vector = cf_model_find(b->plan->model, block, norm_role);
    }
    set_output(b, op, 0, out);
    finish_op(b, op);
    return out;
}

static uint32_t build_prepare(cf_builder *b, uint32_t in, uint64_t columns)
{
    const uint32_t out = new_value(b, CF_VALUE_ACT, columns);
    cf_op *op = new_op(b, CF_OP_PREPARE);
    add_input(b, op, in);
    set_output(b, op, 0, out);
    finish_op(b, op);
    return out;
}

void cf_build_stream(cf_builder *b, uint32_t in0, uint32_t in1)
{
    cf_op *op = new_op(b, CF_OP_STREAM);
    add_input(b, op, in0);
    add_input(b, op, in1);
    finish_op(b, op);
}

/* ---- pieces -------------------------------------------------------------------------------------------------- */

static const cflow_stream STREAM_OF_PIECE[CFLOW_PIECE_KIND_COUNT] = {
    [CFLOW_PIECE_QKV] = CFLOW_STREAM_ATTENTION,
    [CFLOW_PIECE_ATTENTION] = CFLOW_STREAM_ATTENTION,
    [CFLOW_PIECE_OUTPUT] = CFLOW_STREAM_ATTENTION,
    [CFLOW_PIECE_GATE_UP] = CFLOW_STREAM_DENSE,
    [CFLOW_PIECE_DOWN] = CFLOW_STREAM_DENSE,
    [CFLOW_PIECE_ROUTER] = CFLOW_STREAM_ROUTER,
    [CFLOW_PIECE_EXPERT_GATE_UP] = CFLOW_STREAM_EXPERT,
    [CFLOW_PIECE_EXPERT_DOWN] = CFLOW_STREAM_EXPERT,
    [CFLOW_PIECE_HEAD] = CFLOW_STREAM_HEAD,
};

const cf_kernel *cf_plan_kernel(const cf_plan_options *options, uint32_t role, uint32_t type)
{
    /* The router decides by small differences and is f32 in the file: it takes f32 activations, always in tiles. */
    if (role == CFLOW_ROLE_ROUTER) {
        return cf_kernel_find((int)type, 0, options->isa, 0);
    }
    return cf_kernel_find((int)type, options->q8, options->isa, (int)options->rows_per_pass);
}

static cf_op *new_piece(cf_builder *b, cflow_piece_kind kind, uint32_t slot, const cf_tensor *tensor)
{
    cf_plan *plan = b->plan;
    cf_op *op = new_op(b, CF_OP_PIECE);
    if (op == NULL) {
        return NULL;
    }
    op->piece = kind;
    op->stream = STREAM_OF_PIECE[kind];
    op->slot = slot;
    op->piece_index = plan->piece_count++;
    op->tensor = tensor;
    if (tensor == NULL) {
        op->units = plan->model->param[CFLOW_PARAM_HEADS];
        return op;
    }
    const uint32_t *p = plan->model->param;
    b->status = cf_tiles_describe((int)tensor->type, (int)tensor->parts, tensor->rows, tensor->columns,
                                  p[CFLOW_PARAM_TILE_ROWS], p[CFLOW_PARAM_TILE_COLS], &op->tiles);
    if (b->status != CFLOW_OK) {
        return NULL;
    }
    for (uint32_t part = 0; part < tensor->parts; part++) {
        const uint64_t groups = (tensor->rows[part] + CF_GROUP_ROWS - 1) / CF_GROUP_ROWS;
        op->units = groups > op->units ? groups : op->units;
        op->weights += tensor->rows[part] * tensor->columns;
    }
    op->bytes = tensor->bytes;
    if (plan->options.rows_per_pass > 0 && tensor->role != CFLOW_ROLE_ROUTER) {
        op->bytes = op->weights / CF_BLOCK * cf_row_block_bytes((int)tensor->type);
    }
    return op;
}

/* A matrix piece reads activations `in` (and the route value for experts) and writes one shared vector. */
static uint32_t build_matrix(cf_builder *b, cflow_piece_kind kind, uint32_t slot, const cf_tensor *tensor, uint32_t in,
                             uint32_t route, uint64_t out_rows)
{
    const uint32_t out = new_value(b, CF_VALUE_SHARED, out_rows);
    cf_op *op = new_piece(b, kind, slot, tensor);
    add_input(b, op, in);
    add_input(b, op, route);
    set_output(b, op, 0, out);
    finish_op(b, op);
    if (b->status == CFLOW_OK) {
        b->plan->values[in].needs |= cf_plan_kernel(&b->plan->options, tensor->role, tensor->type)->needs;
    }
    return out;
}

uint32_t cf_build_attention(cf_builder *b, uint32_t normed)
{
    const cflow_model *model = b->plan->model;
    const uint64_t q = (uint64_t)model->param[CFLOW_PARAM_HEADS] * model->param[CFLOW_PARAM_HEAD_DIM];
    const uint64_t kv = (uint64_t)model->param[CFLOW_PARAM_KV_HEADS] * model->param[CFLOW_PARAM_HEAD_DIM];
    const cf_tensor *qkv_tensor = cf_model_find(model, b->block, CFLOW_ROLE_ATTN_QKV);
    const uint32_t queries = new_value(b, CF_VALUE_SHARED, q);
    const uint32_t keys = new_value(b, CF_VALUE_SHARED, kv);
    const uint32_t values = new_value(b, CF_VALUE_SHARED, kv);
    cf_op *qkv = new_piece(b, CFLOW_PIECE_QKV, 0, qkv_tensor);
    add_input(b, qkv, normed);
    if (qkv != NULL) {
        qkv->vector = cf_model_find(model, b->block, CFLOW_ROLE_ATTN_QKV_BIAS);
        b->plan->values[normed].needs |= cf_plan_kernel(&b->plan->options, qkv_tensor->role, qkv_tensor->type)->needs;
    }
    set_output(b, qkv, 0, queries);
    set_output(b, qkv, 1, keys);
    set_output(b, qkv, 2, values);
    finish_op(b, qkv);

    const uint32_t mixed = new_value(b, CF_VALUE_SHARED, q);
    cf_op *core = new_piece(b, CFLOW_PIECE_ATTENTION, 0, NULL);
    add_input(b, core, queries);
    add_input(b, core, keys);
    add_input(b, core, values);
    set_output(b, core, 0, mixed);
    finish_op(b, core);

    return build_matrix(b, CFLOW_PIECE_OUTPUT, 0, cf_model_find(model, b->block, CFLOW_ROLE_ATTN_OUTPUT),
                        build_prepare(b, mixed, q), CF_NONE, model->param[CFLOW_PARAM_D_MODEL]);
}

uint32_t cf_build_dense(cf_builder *b, uint32_t normed)
{
    const cflow_model *model = b->plan->model;
    const uint64_t hidden = model->param[CFLOW_PARAM_FFN_HIDDEN];
    const uint32_t gated = build_matrix(
        b, CFLOW_PIECE_GATE_UP, 0, cf_model_find(model, b->block, CFLOW_ROLE_FFN_GATE_UP), normed, CF_NONE, hidden);
    return build_matrix(b, CFLOW_PIECE_DOWN, 0, cf_model_find(model, b->block, CFLOW_ROLE_FFN_DOWN),
                        build_prepare(b, gated, hidden), CF_NONE, model->param[CFLOW_PARAM_D_MODEL]);
}

uint32_t cf_build_route(cf_builder *b, uint32_t normed)
{
    const cflow_model *model = b->plan->model;
    const uint32_t experts = model->param[CFLOW_PARAM_EXPERTS];
    const uint32_t logits = build_matrix(b, CFLOW_PIECE_ROUTER, 0, cf_model_find(model, b->block, CFLOW_ROLE_ROUTER),
                                         normed, CF_NONE, experts);
    const uint32_t route = new_value(b, CF_VALUE_PRIVATE, (uint64_t)b->plan->slots * 2 + 2 * (uint64_t)experts);
    cf_op *choose = new_op(b, CF_OP_ROUTE);
    add_input(b, choose, logits);
    set_output(b, choose, 0, route);
    finish_op(b, choose);
    return route;
}

uint32_t cf_build_experts(cf_builder *b, uint32_t normed, uint32_t route)
{
    cf_plan *plan = b->plan;
    const cflow_model *model = plan->model;
    const uint32_t d = model->param[CFLOW_PARAM_D_MODEL];
    const uint32_t hidden = model->param[CFLOW_PARAM_EXPERT_HIDDEN];
    const cf_tensor *const *bank =
        (const cf_tensor *const *)model->bank + (size_t)b->block * model->param[CFLOW_PARAM_EXPERTS] * 2;
    uint32_t *outputs = malloc((size_t)plan->slots * sizeof *outputs);
    if (outputs == NULL) {
        out_of_memory(b);
        return CF_NONE;
    }
    for (uint32_t slot = 0; slot < plan->slots; slot++) {
        const uint32_t gated = build_matrix(b, CFLOW_PIECE_EXPERT_GATE_UP, slot, bank[0], normed, route, hidden);
        outputs[slot] =
            build_matrix(b, CFLOW_PIECE_EXPERT_DOWN, slot, bank[1], build_prepare(b, gated, hidden), route, d);
    }
    const uint32_t sum = new_value(b, CF_VALUE_PRIVATE, d);
    cf_op *add = new_op(b, CF_OP_EXPERT_SUM);
    add_input(b, add, route);
    for (uint32_t slot = 0; slot < plan->slots; slot++) {
        add_input(b, add, outputs[slot]);
    }
    free(outputs);
    set_output(b, add, 0, sum);
    finish_op(b, add);
    return sum;
}

uint32_t cf_build_head(cf_builder *b, uint32_t in)
{
    const cflow_model *model = b->plan->model;
    const cf_tensor *head = cf_model_find(model, CF_NONE, CFLOW_ROLE_HEAD);
    if (head == NULL) {
        head = cf_model_find(model, CF_NONE, CFLOW_ROLE_EMBEDDING);
    }
    b->layer = CF_NONE;
    const uint32_t logits = build_matrix(b, CFLOW_PIECE_HEAD, 0, head, cf_build_norm(b, in, CFLOW_ROLE_OUTPUT_NORM),
                                         CF_NONE, model->param[CFLOW_PARAM_VOCAB]);
    if (b->status == CFLOW_OK) {
        b->plan->head_phase = b->plan->values[logits].born;
    }
    return logits;
}

/* ---- phases, split and buffers ------------------------------------------------------------------------------ */

/* Operations of a phase run in this order; those of one sort in program order. */
enum { SORT_VECTOR, SORT_PIECE, SORT_LATE_PIECE, SORT_COUNT };

static uint32_t sort_key(const cf_plan *plan, const cf_op *op)
{
    const int late = plan->options.late_experts && op->stream == CFLOW_STREAM_EXPERT;
    return op->level * SORT_COUNT + (op->kind != CF_OP_PIECE ? SORT_VECTOR : late ? SORT_LATE_PIECE : SORT_PIECE);
}

static int order_phases(cf_plan *plan)
{
    plan->order = malloc(plan->op_count * sizeof *plan->order);
    plan->phase_first = calloc((size_t)plan->phase_count + 1, sizeof *plan->phase_first);
    plan->phase_experts = malloc(plan->phase_count * sizeof *plan->phase_experts);
    plan->pieces = malloc(plan->piece_count * sizeof *plan->pieces);
    /* Stable counting sort. */
    uint32_t *next = calloc((size_t)plan->phase_count * SORT_COUNT + 1, sizeof *next);
    if (plan->order == NULL || plan->phase_first == NULL || plan->phase_experts == NULL || plan->pieces == NULL ||
        next == NULL) {
        free(next);
        return cf_fail(CFLOW_ERR_MEMORY, "out of memory for the schedule");
    }
    for (uint32_t i = 0; i < plan->op_count; i++) {
        next[sort_key(plan, &plan->ops[i]) + 1]++;
    }
    for (uint32_t key = 1; key <= plan->phase_count * SORT_COUNT; key++) {
        next[key] += next[key - 1];
    }
    for (uint32_t phase = 0; phase <= plan->phase_count; phase++) {
        plan->phase_first[phase] = next[(size_t)phase * SORT_COUNT];
    }
    for (uint32_t phase = 0; phase < plan->phase_count; phase++) {
        plan->phase_experts[phase] = plan->phase_first[phase + 1];
    }
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const cf_op *op = &plan->ops[i];
        const uint32_t at = next[sort_key(plan, op)]++;
        plan->order[at] = i;
        if (op->kind == CF_OP_PIECE) {
            plan->pieces[op->piece_index] = i;
        }
    }
    /* The counters have moved on to the end of their sort: that of the sort before late pieces is where those begin. */
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const cf_op *op = &plan->ops[i];
        if (sort_key(plan, op) % SORT_COUNT == SORT_LATE_PIECE && op->piece == CFLOW_PIECE_EXPERT_GATE_UP) {
            plan->phase_experts[op->level] = next[op->level * SORT_COUNT + SORT_PIECE];
        }
    }
    free(next);
    return CFLOW_OK;
}

/* Cost of the first `units` units of a piece, in bands of 16 rows over all columns. */
static uint64_t bands_before(const cf_op *op, uint64_t units)
{
    uint64_t bands = 0;
    for (uint32_t part = 0; part < op->tiles.parts; part++) {
        const uint64_t groups = (op->tiles.rows[part] + CF_GROUP_ROWS - 1) / CF_GROUP_ROWS;
        bands += units < groups ? units : groups;
    }
    return bands;
}

/* Smallest number of units whose cost reaches `bytes`. */
static uint64_t units_at(const cf_op *op, uint64_t bytes)
{
    uint64_t low = 0, high = op->units;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (bands_before(op, middle) * op->tiles.band_bytes < bytes) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/*
 * Gives each worker a contiguous share of the bytes of the pieces order[first .. end) between two barriers: with two
 * experts among them and two workers each takes one. A unit (16 rows of every part) belongs to one worker, so results do
 * not depend on how many there are.
 */
static int split_pieces(cf_plan *plan, uint32_t first, uint32_t end)
{
    const uint32_t threads = plan->options.threads;
    uint64_t total = 0;
    for (uint32_t i = first; i < end; i++) {
        const cf_op *op = &plan->ops[plan->order[i]];
        if (op->kind == CF_OP_PIECE && op->tensor != NULL) {
            total += bands_before(op, op->units) * op->tiles.band_bytes;
        }
    }
    uint64_t before = 0;
    for (uint32_t i = first; i < end; i++) {
        cf_op *op = &plan->ops[plan->order[i]];
        if (op->kind != CF_OP_PIECE) {
            continue;
        }
        op->split = malloc(((size_t)threads + 1) * sizeof *op->split);
        if (op->split == NULL) {
            return cf_fail(CFLOW_ERR_MEMORY, "out of memory for the schedule");
        }
        const uint64_t cost = op->tensor == NULL ? 0 : bands_before(op, op->units) * op->tiles.band_bytes;
        for (uint32_t thread = 0; thread <= threads; thread++) {
            if (op->tensor == NULL) {
                op->split[thread] = op->units * thread / threads;
                continue;
            }
            /* total < 2^63 (file sizes), threads <= 256: split the product to stay inside 64 bits */
            const uint64_t share = total / threads * thread + total % threads * thread / threads;
            const uint64_t inside = share <= before ? 0 : share - before < cost ? share - before : cost;
            op->split[thread] = units_at(op, inside);
        }
        before += cost;
    }
    return CFLOW_OK;
}

static size_t value_bytes(const cf_value *value)
{
    const size_t n = value->columns;
    if (value->kind == CF_VALUE_ACT) {
        return cf_act_bytes(n);
    }
    return cf_pad64((n + CF_GROUP_ROWS - 1) / CF_GROUP_ROWS * CF_GROUP_ROWS * sizeof(float));
}

/* First-fit reuse of buffers whose last reader's phase is over when the new value is written. */
static int place_values(cf_plan *plan)
{
    typedef struct buffer {
        size_t offset, bytes;
        uint32_t busy_until;
        int shared;
    } buffer;
    buffer *buffers = malloc((size_t)plan->value_count * sizeof *buffers);
    if (buffers == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "out of memory for the schedule");
    }
    size_t count = 0;
    /* Values are created in an order in which `born` may step back (delayed experts), so go phase by phase. */
    for (uint32_t phase = 0; phase < plan->phase_count; phase++) {
        for (uint32_t i = plan->phase_first[phase]; i < plan->phase_first[phase + 1]; i++) {
            const cf_op *op = &plan->ops[plan->order[i]];
            for (int out = 0; out < 3 && op->output[out] != CF_NONE; out++) {
                cf_value *value = &plan->values[op->output[out]];
                if (value->kind == CF_VALUE_LOGITS) {
                    /* They outlive their token, and the tokens after it that do not reach the head. */
                    plan->logits_bytes = value_bytes(value);
                    continue;
                }
                const int shared = value->kind == CF_VALUE_SHARED;
                value->bytes = value_bytes(value);
                size_t chosen = count;
                for (size_t k = 0; k < count && chosen == count; k++) {
                    if (buffers[k].shared == shared && buffers[k].bytes == value->bytes &&
                        buffers[k].busy_until < phase) {
                        chosen = k;
                    }
                }
                if (chosen == count) {
                    size_t *total = shared ? &plan->shared_bytes : &plan->private_bytes;
                    buffers[count++] = (buffer){*total, value->bytes, 0, shared};
                    *total += value->bytes;
                }
                value->offset = buffers[chosen].offset;
                buffers[chosen].busy_until = value->last_level;
            }
        }
    }
    free(buffers);
    return CFLOW_OK;
}

int cf_plan_create(const cflow_model *model, const cf_plan_options *options, cf_plan **plan_out)
{
    *plan_out = NULL;
    const uint64_t slots =
        model->param[options->read_all_experts ? CFLOW_PARAM_EXPERTS : CFLOW_PARAM_EXPERTS_PER_TOKEN];
    if (slots * model->param[CFLOW_PARAM_LAYERS] > CF_MAX_SLOTS) {
        return cf_fail(CFLOW_ERR_UNSUPPORTED, "%u layers with %llu experts each: a schedule holds at most %d of them",
                       model->param[CFLOW_PARAM_LAYERS], (unsigned long long)slots, CF_MAX_SLOTS);
    }
    cf_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "out of memory for the schedule");
    }
    plan->model = model;
    plan->options = *options;
    plan->slots = (uint32_t)slots;
    cf_builder builder = {.plan = plan, .status = CFLOW_OK};
    cf_build_forward(&builder);
    int status = builder.status;
    if (status == CFLOW_OK) {
        plan->values[plan->logits].kind = CF_VALUE_LOGITS;
        status = order_phases(plan);
    }
    for (uint32_t phase = 0; status == CFLOW_OK && phase < plan->phase_count; phase++) {
        status = split_pieces(plan, plan->phase_first[phase], plan->phase_experts[phase]);
        if (status == CFLOW_OK) {
            status = split_pieces(plan, plan->phase_experts[phase], plan->phase_first[phase + 1]);
        }
    }
    if (status == CFLOW_OK) {
        status = place_values(plan);
    }
    if (status != CFLOW_OK) {
        cf_plan_destroy(plan);
        return status;
    }
    *plan_out = plan;
    return CFLOW_OK;
}

void cf_plan_destroy(cf_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    for (uint32_t i = 0; i < plan->op_count; i++) {
        free(plan->ops[i].split);
    }
    free(plan->ops);
    free(plan->values);
    free(plan->inputs);
    free(plan->order);
    free(plan->phase_first);
    free(plan->phase_experts);
    free(plan->pieces);
    free(plan);
}

int cf_plan_dependencies(const cf_plan *plan, uint32_t op, uint32_t *pieces_out, size_t count, size_t *total_out)
{
    uint32_t *pending = malloc(((size_t)plan->input_count + 1) * sizeof *pending);
    uint8_t *seen = calloc(plan->op_count, 1);
    if (pending == NULL || seen == NULL) {
        free(pending);
        free(seen);
        return cf_fail(CFLOW_ERR_MEMORY, "out of memory for the dependencies");
    }
    size_t waiting = 0;
    pending[waiting++] = op;
    *total_out = 0;
    while (waiting > 0) {
        const cf_op *reader = &plan->ops[pending[--waiting]];
        for (uint32_t i = 0; i < reader->input_count; i++) {
            const uint32_t producer = plan->values[plan->inputs[reader->input_first + i]].producer;
            if (seen[producer]) {
                continue;
            }
            seen[producer] = 1;
            if (plan->ops[producer].kind != CF_OP_PIECE) {
                pending[waiting++] = producer;
                continue;
            }
            if (*total_out < count) {
                pieces_out[*total_out] = plan->ops[producer].piece_index;
            }
            ++*total_out;
        }
    }
    free(pending);
    free(seen);
    return CFLOW_OK;
}
