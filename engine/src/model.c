#define _GNU_SOURCE
#include "model.h"

#include "error.h"
#include "hash.h"
#include "utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEADER_BYTES = 512,
    TENSOR_ENTRY_BYTES = 128,
    EXPERT_ENTRY_BYTES = 32,
    ORDER_OFFSET = 96,
    ORDER_END = 100,
    PARAM_OFFSET = 128,
    PARAM_END = PARAM_OFFSET + 4 * CFLOW_PARAM_COUNT,
    NAME_OFFSET = 440,
    HEADER_HASH_OFFSET = 504,
    MAX_TENSORS = 1 << 20,
    MAX_TOKENIZER_BYTES = 1 << 28,
    ALIGN_TENSOR = 64,
    ALIGN_EXPERT = 4096,
};

static const char MAGIC[8] = {'C', 'F', 'L', 'O', 'W', '\r', '\n', '\x1a'};

static const char *const ORDER_NAMES[CFLOW_ORDER_COUNT] = {
    [CFLOW_ORDER_LAYER] = "layer",
    [CFLOW_ORDER_PHASE] = "phase",
    [CFLOW_ORDER_KIND] = "kind",
};

/* ---- little-endian fields --------------------------------------------------------------------------------- */

static uint32_t get_u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t get_u64(const uint8_t *at)
{
    return (uint64_t)get_u32(at) | (uint64_t)get_u32(at + 4) << 32;
}

static float get_f32_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* What is reserved, or behind the end of a name, is zero: a later version may put something there. */
static int is_zero(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++) {
        if (at[i] != 0) {
            return 0;
        }
    }
    return 1;
}

/* ---- parameters ------------------------------------------------------------------------------------------- */

typedef struct param_rule {
    const char *name;
    uint32_t low;
    uint32_t high;
    uint32_t multiple;
} param_rule;

/* The upper ends are far above any real model and keep every product below 2^63. */
static const param_rule PARAM_RULES[CFLOW_PARAM_COUNT] = {
    [CFLOW_PARAM_LAYERS] = {"layers", 1, 4096, 1},
    [CFLOW_PARAM_BLOCKS] = {"blocks", 1, 4096, 1},
    [CFLOW_PARAM_D_MODEL] = {"d_model", 32, 1 << 18, 32},
    [CFLOW_PARAM_HEADS] = {"heads", 1, 1 << 14, 1},
    [CFLOW_PARAM_KV_HEADS] = {"kv_heads", 1, 1 << 14, 1},
    [CFLOW_PARAM_HEAD_DIM] = {"head_dim", 2, 4096, 2},
    [CFLOW_PARAM_FFN_HIDDEN] = {"ffn_hidden", 0, 1 << 20, 32},
    [CFLOW_PARAM_EXPERTS] = {"experts", 0, 1 << 14, 1},
    [CFLOW_PARAM_EXPERTS_PER_TOKEN] = {"experts_per_token", 0, 1 << 10, 1},
    [CFLOW_PARAM_EXPERT_HIDDEN] = {"expert_hidden", 0, 1 << 20, 32},
    [CFLOW_PARAM_VOCAB] = {"vocab", 1, 1 << 24, 1},
    [CFLOW_PARAM_CONTEXT] = {"context", 1, 1 << 24, 1},
    [CFLOW_PARAM_ARCHITECTURE] = {"architecture", 0, CFLOW_ARCH_COUNT - 1, 1},
    [CFLOW_PARAM_DENSE_DELAY] = {"dense_delay", 0, 64, 1},
    [CFLOW_PARAM_EXPERT_DELAY] = {"expert_delay", 0, 64, 1},
    [CFLOW_PARAM_ROUTE] = {"route", 0, 1, 1},
    [CFLOW_PARAM_ACTIVATION] = {"activation", 0, 1, 1},
    [CFLOW_PARAM_NORM_TOPK] = {"norm_topk", 0, 1, 1},
    [CFLOW_PARAM_TILE_ROWS] = {"tile_rows", 16, 4096, 16},
    [CFLOW_PARAM_TILE_COLS] = {"tile_cols", 32, 65536, 32},
    [CFLOW_PARAM_RMS_EPS_BITS] = {"rms_eps_bits", 0, UINT32_MAX, 1},
    [CFLOW_PARAM_ROPE_BASE_BITS] = {"rope_base_bits", 0, UINT32_MAX, 1},
    [CFLOW_PARAM_TIED_HEAD] = {"tied_head", 0, 1, 1},
    [CFLOW_PARAM_BOS] = {"bos", 0, UINT32_MAX, 1},
    [CFLOW_PARAM_EOS] = {"eos", 0, UINT32_MAX, 1},
};

const char *cflow_model_param_name(int param)
{
    return param >= 0 && param < CFLOW_PARAM_COUNT ? PARAM_RULES[param].name : NULL;
}

static int check_params(cflow_model *model)
{
    const uint32_t *p = model->param;
    for (int i = 0; i < CFLOW_PARAM_COUNT; i++) {
        const param_rule *rule = &PARAM_RULES[i];
        if (p[i] < rule->low || p[i] > rule->high || p[i] % rule->multiple != 0) {
            return cf_fail(CFLOW_ERR_FORMAT, "%s: header field %s is %u; allowed: %u to %u in steps of %u", model->path,
                           rule->name, p[i], rule->low, rule->high, rule->multiple);
        }
    }
    if (p[CFLOW_PARAM_BLOCKS] > p[CFLOW_PARAM_LAYERS]) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: header field blocks is %u, more than layers (%u)", model->path,
                       p[CFLOW_PARAM_BLOCKS], p[CFLOW_PARAM_LAYERS]);
    }
    if (p[CFLOW_PARAM_HEADS] % p[CFLOW_PARAM_KV_HEADS] != 0) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: header field kv_heads (%u) does not divide heads (%u)", model->path,
                       p[CFLOW_PARAM_KV_HEADS], p[CFLOW_PARAM_HEADS]);
    }
    if (p[CFLOW_PARAM_HEADS] * p[CFLOW_PARAM_HEAD_DIM] % 32 != 0) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: heads * head_dim is %u, not a multiple of 32", model->path,
                       p[CFLOW_PARAM_HEADS] * p[CFLOW_PARAM_HEAD_DIM]);
    }
    const uint32_t experts = p[CFLOW_PARAM_EXPERTS];
    if ((experts == 0) != (p[CFLOW_PARAM_EXPERT_HIDDEN] == 0) ||
        (experts == 0) != (p[CFLOW_PARAM_EXPERTS_PER_TOKEN] == 0) || p[CFLOW_PARAM_EXPERTS_PER_TOKEN] > experts) {
        return cf_fail(CFLOW_ERR_FORMAT,
                       "%s: header fields experts (%u), experts_per_token (%u) and expert_hidden (%u) contradict each "
                       "other: all zero, or 1 <= experts_per_token <= experts",
                       model->path, experts, p[CFLOW_PARAM_EXPERTS_PER_TOKEN], p[CFLOW_PARAM_EXPERT_HIDDEN]);
    }
    if (experts == 0 && p[CFLOW_PARAM_FFN_HIDDEN] == 0) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: header fields ffn_hidden and experts are both 0", model->path);
    }
    if (p[CFLOW_PARAM_ARCHITECTURE] != CFLOW_ARCH_DELAYED &&
        (p[CFLOW_PARAM_DENSE_DELAY] != 0 || p[CFLOW_PARAM_EXPERT_DELAY] != 0 ||
         p[CFLOW_PARAM_ROUTE] != CFLOW_ROUTE_CURRENT)) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: delays and pre-dense routing need architecture 0, the header has %u",
                       model->path, p[CFLOW_PARAM_ARCHITECTURE]);
    }
    for (int i = CFLOW_PARAM_BOS; i <= CFLOW_PARAM_EOS; i++) {
        if (p[i] != CF_NONE && p[i] >= p[CFLOW_PARAM_VOCAB]) {
            return cf_fail(CFLOW_ERR_FORMAT, "%s: header field %s is %u; allowed: 0 to %u, or %u for none", model->path,
                           PARAM_RULES[i].name, p[i], p[CFLOW_PARAM_VOCAB] - 1, CF_NONE);
        }
    }
    model->rms_eps = get_f32_bits(p[CFLOW_PARAM_RMS_EPS_BITS]);
    model->rope_base = get_f32_bits(p[CFLOW_PARAM_ROPE_BASE_BITS]);
    if (!(model->rms_eps >= 0.0f && model->rms_eps < 1.0f)) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: header field rms_eps is %g; allowed: 0 to 1", model->path,
                       (double)model->rms_eps);
    }
    if (!(model->rope_base >= 1.0f && isfinite(model->rope_base))) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: header field rope_base is %g; allowed: 1 or more", model->path,
                       (double)model->rope_base);
    }
    return CFLOW_OK;
}

/* ---- tensors ---------------------------------------------------------------------------------------------- */

typedef enum role_place { PLACE_MODEL, PLACE_BLOCK, PLACE_EXPERT } role_place;

typedef struct role_rule {
    role_place place;
    uint32_t parts;
    int vector;
} role_rule;

static const role_rule ROLE_RULES[CFLOW_ROLE_COUNT] = {
    [CFLOW_ROLE_EMBEDDING] = {PLACE_MODEL, 1, 0},    [CFLOW_ROLE_ATTN_NORM] = {PLACE_BLOCK, 1, 1},
    [CFLOW_ROLE_ATTN_QKV] = {PLACE_BLOCK, 3, 0},     [CFLOW_ROLE_ATTN_QKV_BIAS] = {PLACE_BLOCK, 1, 1},
    [CFLOW_ROLE_ATTN_OUTPUT] = {PLACE_BLOCK, 1, 0},  [CFLOW_ROLE_FFN_NORM] = {PLACE_BLOCK, 1, 1},
    [CFLOW_ROLE_FFN_GATE_UP] = {PLACE_BLOCK, 2, 0},  [CFLOW_ROLE_FFN_DOWN] = {PLACE_BLOCK, 1, 0},
    [CFLOW_ROLE_MOE_NORM] = {PLACE_BLOCK, 1, 1},     [CFLOW_ROLE_ROUTER] = {PLACE_BLOCK, 1, 0},
    [CFLOW_ROLE_REGISTER] = {PLACE_BLOCK, 1, 1},     [CFLOW_ROLE_OUTPUT_NORM] = {PLACE_MODEL, 1, 1},
    [CFLOW_ROLE_HEAD] = {PLACE_MODEL, 1, 0},         [CFLOW_ROLE_EXPERT_GATE_UP] = {PLACE_EXPERT, 2, 0},
    [CFLOW_ROLE_EXPERT_DOWN] = {PLACE_EXPERT, 1, 0}, [CFLOW_ROLE_ATTN_Q_NORM] = {PLACE_BLOCK, 1, 1},
    [CFLOW_ROLE_ATTN_K_NORM] = {PLACE_BLOCK, 1, 1},
};

/* Tensors that a block may lack whatever the header says. */
static int role_is_optional(uint32_t role)
{
    return role == CFLOW_ROLE_ATTN_QKV_BIAS || role == CFLOW_ROLE_ATTN_Q_NORM || role == CFLOW_ROLE_ATTN_K_NORM;
}

/* The shape that the header demands of a role; 0 when the model must not have it. */
static int expected_shape(const cflow_model *model, uint32_t role, uint64_t rows[3], uint64_t *columns)
{
    const uint32_t *p = model->param;
    const uint64_t d = p[CFLOW_PARAM_D_MODEL];
    const uint64_t q = (uint64_t)p[CFLOW_PARAM_HEADS] * p[CFLOW_PARAM_HEAD_DIM];
    const uint64_t kv = (uint64_t)p[CFLOW_PARAM_KV_HEADS] * p[CFLOW_PARAM_HEAD_DIM];
    const uint64_t ffn = p[CFLOW_PARAM_FFN_HIDDEN];
    const uint64_t expert = p[CFLOW_PARAM_EXPERT_HIDDEN];
    rows[0] = d;
    rows[1] = rows[2] = 0;
    *columns = 1;
    switch (role) {
    case CFLOW_ROLE_EMBEDDING:
        rows[0] = p[CFLOW_PARAM_VOCAB];
        *columns = d;
        return 1;
    case CFLOW_ROLE_HEAD:
        rows[0] = p[CFLOW_PARAM_VOCAB];
        *columns = d;
        return p[CFLOW_PARAM_TIED_HEAD] == 0;
    case CFLOW_ROLE_ATTN_NORM:
    case CFLOW_ROLE_OUTPUT_NORM:
        return 1;
    case CFLOW_ROLE_ATTN_QKV:
        rows[0] = q;
        rows[1] = rows[2] = kv;
        *columns = d;
        return 1;
    case CFLOW_ROLE_ATTN_QKV_BIAS:
        rows[0] = q + 2 * kv;
        return 1;
    case CFLOW_ROLE_ATTN_Q_NORM:
    case CFLOW_ROLE_ATTN_K_NORM:
        rows[0] = p[CFLOW_PARAM_HEAD_DIM];
        return 1;
    case CFLOW_ROLE_ATTN_OUTPUT:
        *columns = q;
        return 1;
    case CFLOW_ROLE_FFN_NORM:
        return ffn > 0;
    case CFLOW_ROLE_FFN_GATE_UP:
        rows[0] = rows[1] = ffn;
        *columns = d;
        return ffn > 0;
    case CFLOW_ROLE_FFN_DOWN:
        *columns = ffn;
        return ffn > 0;
    case CFLOW_ROLE_MOE_NORM:
        return expert > 0;
    case CFLOW_ROLE_ROUTER:
        rows[0] = p[CFLOW_PARAM_EXPERTS];
        *columns = d;
        return expert > 0;
    case CFLOW_ROLE_REGISTER:
        return p[CFLOW_PARAM_ARCHITECTURE] == CFLOW_ARCH_REGISTER;
    case CFLOW_ROLE_EXPERT_GATE_UP:
        rows[0] = rows[1] = expert;
        *columns = d;
        return expert > 0;
    default: /* CFLOW_ROLE_EXPERT_DOWN */
        *columns = expert;
        return expert > 0;
    }
}

static int stored_bytes(const cflow_model *model, const cf_tensor *tensor, uint64_t *bytes)
{
    *bytes = 0;
    if (cf_tensor_is_vector(tensor)) {
        *bytes = (tensor->rows[0] * sizeof(float) + ALIGN_TENSOR - 1) / ALIGN_TENSOR * ALIGN_TENSOR;
        return CFLOW_OK;
    }
    for (uint32_t part = 0; part < tensor->parts; part++) {
        uint64_t part_bytes;
        int status =
            cflow_tiles_bytes((int)tensor->type, tensor->rows[part], tensor->columns,
                              model->param[CFLOW_PARAM_TILE_ROWS], model->param[CFLOW_PARAM_TILE_COLS], &part_bytes);
        if (status != CFLOW_OK) {
            return status;
        }
        if (__builtin_add_overflow(*bytes, part_bytes, bytes)) {
            return cf_fail(CFLOW_ERR_FORMAT, "%s: tensor %s: its size overflows 64 bits", model->path, tensor->name);
        }
    }
    return CFLOW_OK;
}

static int region_inside(uint64_t offset, uint64_t bytes, uint64_t low, uint64_t high)
{
#ifdef CFLOW_MUTANT_UNCHECKED_REGIONS
    high = UINT64_MAX;
#endif
    return offset >= low && offset <= high && bytes <= high - offset;
}

static int parse_tensor(cflow_model *model, const uint8_t *entry, uint32_t index, cf_tensor *tensor)
{
    const uint32_t blocks = model->param[CFLOW_PARAM_BLOCKS];
    const uint32_t experts = model->param[CFLOW_PARAM_EXPERTS];
    tensor->role = get_u32(entry);
    tensor->block = get_u32(entry + 4);
    tensor->expert = get_u32(entry + 8);
    tensor->type = get_u32(entry + 12);
    tensor->parts = get_u32(entry + 16);
    for (int part = 0; part < 3; part++) {
        tensor->rows[part] = get_u64(entry + 24 + 8 * part);
    }
    tensor->columns = get_u64(entry + 48);
    tensor->offset = get_u64(entry + 56);
    tensor->bytes = get_u64(entry + 64);
    tensor->hash = get_u64(entry + 72);
    memcpy(tensor->name, entry + 80, sizeof tensor->name);
    if (tensor->name[sizeof tensor->name - 1] != '\0') {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: tensor %u: its name is not terminated", model->path, index);
    }
    const size_t name_bytes = strlen(tensor->name);
    if (name_bytes == 0 || !is_zero(tensor->name + name_bytes, sizeof tensor->name - name_bytes)) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: tensor %u: its name is empty, or not padded with zeros", model->path,
                       index);
    }
    for (const char *c = tensor->name; *c != '\0'; c++) {
        if (*c < 0x21 || *c > 0x7e) {
            return cf_fail(CFLOW_ERR_FORMAT, "%s: tensor %u: its name has a character outside printable ASCII",
                           model->path, index);
        }
    }
    if (!is_zero(entry + 20, 4)) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: tensor %s: reserved field is %u; allowed: 0", model->path, tensor->name,
                       get_u32(entry + 20));
    }
    if (tensor->role >= CFLOW_ROLE_COUNT) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: tensor %s: role %u is unknown; allowed: 0 to %d", model->path,
                       tensor->name, tensor->role, CFLOW_ROLE_COUNT - 1);
    }
    const role_rule *rule = &ROLE_RULES[tensor->role];
    const int block_ok = rule->place == PLACE_MODEL ? tensor->block == CF_NONE : tensor->block < blocks;
    const int expert_ok = rule->place == PLACE_EXPERT ? tensor->expert < experts : tensor->expert == CF_NONE;
    if (!block_ok || !expert_ok) {
        return cf_fail(CFLOW_ERR_FORMAT,
                       "%s: tensor %s: block %u, expert %u do not fit role %u of %u blocks, %u experts", model->path,
                       tensor->name, tensor->block, tensor->expert, tensor->role, blocks, experts);
    }
    if (tensor->type >= CFLOW_TYPE_COUNT ||
        ((rule->vector || tensor->role == CFLOW_ROLE_ROUTER) && tensor->type != CFLOW_TYPE_F32)) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: tensor %s: type %u is not allowed for role %u", model->path, tensor->name,
                       tensor->type, tensor->role);
    }
    uint64_t rows[3], columns;
    if (!expected_shape(model, tensor->role, rows, &columns)) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: tensor %s: the header's architecture has no tensor of role %u",
                       model->path, tensor->name, tensor->role);
    }
    if (tensor->parts != rule->parts || tensor->columns != columns || memcmp(tensor->rows, rows, sizeof rows) != 0) {
        return cf_fail(CFLOW_ERR_FORMAT,
                       "%s: tensor %s: shape %u part(s) of %llu/%llu/%llu x %llu, the header demands %u of "
                       "%llu/%llu/%llu x %llu",
                       model->path, tensor->name, tensor->parts, (unsigned long long)tensor->rows[0],
                       (unsigned long long)tensor->rows[1], (unsigned long long)tensor->rows[2],
                       (unsigned long long)tensor->columns, rule->parts, (unsigned long long)rows[0],
                       (unsigned long long)rows[1], (unsigned long long)rows[2], (unsigned long long)columns);
    }
    uint64_t bytes;
    int status = stored_bytes(model, tensor, &bytes);
    if (status != CFLOW_OK) {
        return status;
    }
    if (tensor->bytes != bytes) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: tensor %s: %llu bytes, its shape takes %llu", model->path, tensor->name,
                       (unsigned long long)tensor->bytes, (unsigned long long)bytes);
    }
    if (tensor->offset % ALIGN_TENSOR != 0 ||
        !region_inside(tensor->offset, tensor->bytes, model->data_offset, model->file_bytes)) {
        return cf_fail(CFLOW_ERR_FORMAT,
                       "%s: tensor %s: offset %llu, %llu bytes: unaligned or outside the data (%llu to %llu)",
                       model->path, tensor->name, (unsigned long long)tensor->offset, (unsigned long long)tensor->bytes,
                       (unsigned long long)model->data_offset, (unsigned long long)model->file_bytes);
    }
    return CFLOW_OK;
}

const cf_tensor *cf_model_find(const cflow_model *model, uint32_t block, uint32_t role)
{
    const uint32_t row = block == CF_NONE ? model->param[CFLOW_PARAM_BLOCKS] : block;
    return model->by_role[(size_t)row * CFLOW_ROLE_COUNT + role];
}

/* Puts the tensors in their places; each required one exactly once. */
static int index_tensors(cflow_model *model)
{
    const uint32_t blocks = model->param[CFLOW_PARAM_BLOCKS];
    const uint32_t experts = model->param[CFLOW_PARAM_EXPERTS];
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const cf_tensor *tensor = &model->tensors[i];
        const cf_tensor **place;
        if (tensor->expert != CF_NONE) {
            place = &model->bank[((size_t)tensor->block * experts + tensor->expert) * 2 +
                                 (tensor->role == CFLOW_ROLE_EXPERT_DOWN)];
        } else {
            const uint32_t row = tensor->block == CF_NONE ? blocks : tensor->block;
            place = &model->by_role[(size_t)row * CFLOW_ROLE_COUNT + tensor->role];
        }
        if (*place != NULL) {
            return cf_fail(CFLOW_ERR_FORMAT, "%s: tensors %s and %s have the same role and place", model->path,
                           (*place)->name, tensor->name);
        }
        *place = tensor;
    }
    for (uint32_t role = 0; role < CFLOW_ROLE_COUNT; role++) {
        uint64_t rows[3], columns;
        if (role_is_optional(role) || !expected_shape(model, role, rows, &columns)) {
            continue;
        }
        const role_place place = ROLE_RULES[role].place;
        for (uint32_t block = 0; block < (place == PLACE_MODEL ? 1 : blocks); block++) {
            if (place == PLACE_EXPERT) {
                for (uint32_t expert = 0; expert < experts; expert++) {
                    if (model->bank[((size_t)block * experts + expert) * 2 + (role == CFLOW_ROLE_EXPERT_DOWN)] ==
                        NULL) {
                        return cf_fail(CFLOW_ERR_FORMAT, "%s: block %u, expert %u lacks its tensor of role %u",
                                       model->path, block, expert, role);
                    }
                }
            } else if (cf_model_find(model, place == PLACE_MODEL ? CF_NONE : block, role) == NULL) {
                return cf_fail(CFLOW_ERR_FORMAT, "%s: block %u lacks its tensor of role %u", model->path, block, role);
            }
        }
    }
    for (uint32_t block = 0; block < blocks; block++) {
        if ((cf_model_find(model, block, CFLOW_ROLE_ATTN_Q_NORM) == NULL) !=
            (cf_model_find(model, block, CFLOW_ROLE_ATTN_K_NORM) == NULL)) {
            return cf_fail(CFLOW_ERR_FORMAT,
                           "%s: block %u has one of the tensors of role %d and %d; allowed: both or none", model->path,
                           block, CFLOW_ROLE_ATTN_Q_NORM, CFLOW_ROLE_ATTN_K_NORM);
        }
    }
    return CFLOW_OK;
}

static int parse_experts(cflow_model *model, const uint8_t *table)
{
    const uint32_t experts = model->param[CFLOW_PARAM_EXPERTS];
    const uint32_t count = model->param[CFLOW_PARAM_BLOCKS] * experts;
    for (uint32_t i = 0; i < count; i++, table += EXPERT_ENTRY_BYTES) {
        cf_expert_blob *blob = &model->experts[i];
        blob->offset = get_u64(table);
        blob->bytes = get_u64(table + 8);
        blob->hash = get_u64(table + 16);
        if (!is_zero(table + 24, 8)) {
            return cf_fail(CFLOW_ERR_FORMAT, "%s: expert table entry %u: reserved field is %llu; allowed: 0",
                           model->path, i, (unsigned long long)get_u64(table + 24));
        }
        const cf_tensor *gate_up = model->bank[(size_t)i * 2];
        const cf_tensor *down = model->bank[(size_t)i * 2 + 1];
        /* The schedule is made before the router chooses: the experts of a block must be read alike. */
        const cf_tensor *const *first = (const cf_tensor *const *)model->bank + (size_t)(i - i % experts) * 2;
        if (gate_up->type != first[0]->type || down->type != first[1]->type) {
            return cf_fail(CFLOW_ERR_FORMAT,
                           "%s: tensors %s (%s, %s) and %s (%s, %s): the experts of a block have one type", model->path,
                           gate_up->name, cflow_type_name((int)gate_up->type), cflow_type_name((int)down->type),
                           first[0]->name, cflow_type_name((int)first[0]->type), cflow_type_name((int)first[1]->type));
        }
        const uint64_t down_at = (gate_up->bytes + ALIGN_TENSOR - 1) / ALIGN_TENSOR * ALIGN_TENSOR;
        if (blob->offset % ALIGN_EXPERT != 0 ||
            !region_inside(blob->offset, blob->bytes, model->data_offset, model->file_bytes) ||
            gate_up->offset != blob->offset || down->offset != blob->offset + down_at ||
            blob->bytes != down_at + down->bytes) {
            return cf_fail(CFLOW_ERR_FORMAT,
                           "%s: expert table entry %u (offset %llu, %llu bytes) does not agree with tensors %s and %s",
                           model->path, i, (unsigned long long)blob->offset, (unsigned long long)blob->bytes,
                           gate_up->name, down->name);
        }
    }
    return CFLOW_OK;
}

typedef struct region {
    uint64_t offset;
    uint64_t bytes;
    const char *name;
} region;

static int compare_regions(const void *a, const void *b)
{
    const region *left = a, *right = b;
    return (left->offset > right->offset) - (left->offset < right->offset);
}

static int check_overlaps(cflow_model *model, const region *tables, size_t table_count)
{
    size_t count = table_count + model->tensor_count;
    region *regions = malloc(count * sizeof *regions);
    if (regions == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for %zu regions", model->path, count);
    }
    memcpy(regions, tables, table_count * sizeof *regions);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        regions[table_count + i] = (region){model->tensors[i].offset, model->tensors[i].bytes, model->tensors[i].name};
    }
    qsort(regions, count, sizeof *regions, compare_regions);
    int status = CFLOW_OK;
    for (size_t i = 1; i < count && status == CFLOW_OK; i++) {
        if (regions[i].offset - regions[i - 1].offset < regions[i - 1].bytes) {
            status = cf_fail(CFLOW_ERR_FORMAT, "%s: %s (offset %llu) overlaps %s", model->path, regions[i].name,
                             (unsigned long long)regions[i].offset, regions[i - 1].name);
        }
    }
    free(regions);
    return status;
}

/* ---- opening ---------------------------------------------------------------------------------------------- */

/* The name is shown on terminals and in pages. */
static int check_name(const cflow_model *model)
{
    if (model->name[sizeof model->name - 1] != '\0') {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: header field model name is not terminated", model->path);
    }
    const uint8_t *name = (const uint8_t *)model->name;
    const size_t bytes = strlen(model->name);
    if (!is_zero(name + bytes, sizeof model->name - bytes)) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: header field model name is not padded with zeros", model->path);
    }
    const size_t valid = cf_utf8_valid(name, bytes);
    if (valid < bytes) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: header field model name is not UTF-8 at its byte %zu", model->path,
                       valid);
    }
    for (size_t i = 0; i < bytes; i++) {
        /* U+0000 to U+001F, U+007F, and in two bytes U+0080 to U+009F. */
        if (name[i] < 0x20 || name[i] == 0x7f || (name[i] == 0xc2 && name[i + 1] < 0xa0)) {
            return cf_fail(CFLOW_ERR_FORMAT, "%s: header field model name has a control character at its byte %zu",
                           model->path, i);
        }
    }
    return CFLOW_OK;
}

static int parse(cflow_model *model)
{
    const uint8_t *header = model->map;
    if (memcmp(header, MAGIC, sizeof MAGIC) != 0) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: not a .cflow file: its first 8 bytes are not the magic number",
                       model->path);
    }
    if (get_u32(header + 8) != 1) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: format version %u; this build reads version 1", model->path,
                       get_u32(header + 8));
    }
    if (get_u64(header + HEADER_HASH_OFFSET) != cf_xxh64_of(header, HEADER_HASH_OFFSET)) {
        return cf_fail(CFLOW_ERR_CHECKSUM, "%s: the header does not match its hash", model->path);
    }
    if (get_u32(header + 12) != HEADER_BYTES || get_u32(header + 36) != TENSOR_ENTRY_BYTES ||
        get_u32(header + 52) != EXPERT_ENTRY_BYTES) {
        return cf_fail(CFLOW_ERR_FORMAT,
                       "%s: header_bytes %u, tensor_entry_bytes %u and expert_entry_bytes %u; version 1 has 512, 128 "
                       "and 32",
                       model->path, get_u32(header + 12), get_u32(header + 36), get_u32(header + 52));
    }
    if (get_u64(header + 16) != model->file_bytes) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: truncated or extended: %llu bytes, the header says %llu", model->path,
                       (unsigned long long)model->file_bytes, (unsigned long long)get_u64(header + 16));
    }
    model->order = get_u32(header + ORDER_OFFSET);
    if (model->order >= CFLOW_ORDER_COUNT) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: header field order is %u; allowed: 0 (%s), 1 (%s), 2 (%s)", model->path,
                       model->order, ORDER_NAMES[0], ORDER_NAMES[1], ORDER_NAMES[2]);
    }
    for (int i = 0; i < CFLOW_PARAM_COUNT; i++) {
        model->param[i] = get_u32(header + PARAM_OFFSET + 4 * i);
    }
    if (!is_zero(header + ORDER_END, PARAM_OFFSET - ORDER_END) ||
        !is_zero(header + PARAM_END, NAME_OFFSET - PARAM_END)) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: the header has something in bytes %d to %d or %d to %d; allowed: zeros",
                       model->path, ORDER_END, PARAM_OFFSET - 1, PARAM_END, NAME_OFFSET - 1);
    }
    memcpy(model->name, header + NAME_OFFSET, sizeof model->name);
    int status = check_name(model);
    if (status == CFLOW_OK) {
        status = check_params(model);
    }
    if (status != CFLOW_OK) {
        return status;
    }

    const uint64_t table_offset = get_u64(header + 24);
    model->tensor_count = get_u32(header + 32);
    const uint64_t expert_offset = get_u64(header + 40);
    const uint32_t expert_count = get_u32(header + 48);
    const uint64_t bank = (uint64_t)model->param[CFLOW_PARAM_BLOCKS] * model->param[CFLOW_PARAM_EXPERTS];
    model->tokenizer_offset = get_u64(header + 56);
    model->tokenizer_bytes = get_u64(header + 64);
    model->tokenizer_hash = get_u64(header + 72);
    model->data_offset = get_u64(header + 88);
    if (model->tensor_count == 0 || model->tensor_count > MAX_TENSORS || bank > MAX_TENSORS / 2) {
        return cf_fail(CFLOW_ERR_FORMAT,
                       "%s: header field tensor_count is %u with %llu experts; allowed: 1 to %d tensors", model->path,
                       model->tensor_count, (unsigned long long)bank, MAX_TENSORS);
    }
    if (expert_count != bank) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: header field expert_entry_count is %u; blocks * experts is %llu",
                       model->path, expert_count, (unsigned long long)bank);
    }
    if (model->tokenizer_bytes > MAX_TOKENIZER_BYTES) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: header field tokenizer_bytes is %llu; allowed: 0 to %d", model->path,
                       (unsigned long long)model->tokenizer_bytes, MAX_TOKENIZER_BYTES);
    }
    const uint64_t table_bytes = (uint64_t)model->tensor_count * TENSOR_ENTRY_BYTES;
    const uint64_t expert_bytes = bank * EXPERT_ENTRY_BYTES;
    if (model->data_offset % ALIGN_EXPERT != 0 || model->data_offset > model->file_bytes ||
        table_offset % ALIGN_TENSOR != 0 || expert_offset % ALIGN_TENSOR != 0 ||
        !region_inside(table_offset, table_bytes, HEADER_BYTES, model->data_offset) ||
        (bank > 0 && !region_inside(expert_offset, expert_bytes, HEADER_BYTES, model->data_offset)) ||
        (model->tokenizer_bytes > 0 &&
         !region_inside(model->tokenizer_offset, model->tokenizer_bytes, HEADER_BYTES, model->data_offset))) {
        return cf_fail(
            CFLOW_ERR_FORMAT,
            "%s: tensor table (at %llu), expert table (%llu), tokenizer (%llu) or data_offset (%llu): unaligned or "
            "outside their part of the file",
            model->path, (unsigned long long)table_offset, (unsigned long long)expert_offset,
            (unsigned long long)model->tokenizer_offset, (unsigned long long)model->data_offset);
    }
    cf_xxh64 tables;
    cf_xxh64_init(&tables);
    cf_xxh64_update(&tables, model->map + table_offset, (size_t)table_bytes);
    if (bank > 0) {
        cf_xxh64_update(&tables, model->map + expert_offset, (size_t)expert_bytes);
    }
    if (cf_xxh64_digest(&tables) != get_u64(header + 80)) {
        return cf_fail(CFLOW_ERR_CHECKSUM, "%s: the tensor and expert tables do not match their hash", model->path);
    }

    const size_t blocks = model->param[CFLOW_PARAM_BLOCKS];
    model->tensors = calloc(model->tensor_count, sizeof *model->tensors);
    model->by_role = calloc((blocks + 1) * CFLOW_ROLE_COUNT, sizeof *model->by_role);
    model->experts = calloc((size_t)bank + 1, sizeof *model->experts);
    model->bank = calloc((size_t)bank * 2 + 1, sizeof *model->bank);
    if (model->tensors == NULL || model->by_role == NULL || model->experts == NULL || model->bank == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for the tables", model->path);
    }
    for (uint32_t i = 0; i < model->tensor_count && status == CFLOW_OK; i++) {
        status =
            parse_tensor(model, model->map + table_offset + (uint64_t)i * TENSOR_ENTRY_BYTES, i, &model->tensors[i]);
    }
    if (status == CFLOW_OK) {
        status = index_tensors(model);
    }
    if (status == CFLOW_OK && bank > 0) {
        status = parse_experts(model, model->map + expert_offset);
    }
    if (status == CFLOW_OK) {
        const region fixed[] = {
            {0, HEADER_BYTES, "the header"},
            {table_offset, table_bytes, "the tensor table"},
            {expert_offset, expert_bytes, "the expert table"},
            {model->tokenizer_offset, model->tokenizer_bytes, "the tokenizer"},
        };
        /* Absent tables have no bytes and would sort before the header. */
        region present[4];
        size_t count = 0;
        for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
            if (fixed[i].bytes > 0) {
                present[count++] = fixed[i];
            }
        }
        status = check_overlaps(model, present, count);
    }
    return status;
}

static int map_file(cflow_model *model)
{
    /* O_NONBLOCK: a pipe would wait for its other end. */
    model->fd = open(model->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (model->fd < 0) {
        return cf_fail(CFLOW_ERR_IO, "%s: cannot open: %s", model->path, strerror(errno));
    }
    struct stat info;
    if (fstat(model->fd, &info) != 0) {
        return cf_fail(CFLOW_ERR_IO, "%s: fstat: %s", model->path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return cf_fail(CFLOW_ERR_IO, "%s: not a regular file", model->path);
    }
    if (fcntl(model->fd, F_SETFL, 0) != 0) {
        return cf_fail(CFLOW_ERR_IO, "%s: fcntl: %s", model->path, strerror(errno));
    }
    if (info.st_size < HEADER_BYTES) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: %lld bytes, too short for a .cflow file", model->path,
                       (long long)info.st_size);
    }
    if ((uint64_t)info.st_size > SIZE_MAX / 2) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: too large to map", model->path);
    }
    model->file_bytes = (uint64_t)info.st_size;
    void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, model->fd, 0);
    if (map == MAP_FAILED) {
        return cf_fail(CFLOW_ERR_IO, "%s: mmap of %llu bytes: %s", model->path, (unsigned long long)info.st_size,
                       strerror(errno));
    }
    model->map = map;
    return CFLOW_OK;
}

int cflow_model_open(const char *path, cflow_model **model_out)
{
    if (path == NULL || model_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_model_open: NULL argument");
    }
    *model_out = NULL;
    cflow_model *model = calloc(1, sizeof *model);
    if (model == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "cflow_model_open: out of memory");
    }
    model->fd = -1;
    model->path = strdup(path);
    int status = model->path == NULL ? cf_fail(CFLOW_ERR_MEMORY, "cflow_model_open: out of memory") : map_file(model);
    if (status == CFLOW_OK) {
        status = parse(model);
    }
    if (status != CFLOW_OK) {
        cflow_model_close(model);
        return status;
    }
    *model_out = model;
    return CFLOW_OK;
}

int cflow_model_advise(cflow_model *model, int advice)
{
    static const int flags[] = {
        [CFLOW_ADVICE_NORMAL] = MADV_NORMAL,
        [CFLOW_ADVICE_RANDOM] = MADV_RANDOM,
        [CFLOW_ADVICE_SEQUENTIAL] = MADV_SEQUENTIAL,
    };
    static const int count = sizeof flags / sizeof flags[0];
    if (model == NULL || advice < 0 || advice >= count) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_model_advise: model is NULL or advice is %d; allowed: 0 to %d",
                       advice, count - 1);
    }
    if (madvise((void *)(uintptr_t)model->map, (size_t)model->file_bytes, flags[advice]) != 0) {
        return cf_fail(CFLOW_ERR_IO, "%s: madvise of %llu bytes, advice %d: %s", model->path,
                       (unsigned long long)model->file_bytes, advice, strerror(errno));
    }
    return CFLOW_OK;
}

void cflow_model_close(cflow_model *model)
{
    if (model == NULL) {
        return;
    }
    if (model->map != NULL) {
        (void)munmap((void *)(uintptr_t)model->map, (size_t)model->file_bytes);
    }
    if (model->fd >= 0) {
        (void)close(model->fd);
    }
    free(model->tensors);
    free(model->experts);
    free((void *)model->by_role);
    free((void *)model->bank);
    free(model->path);
    free(model);
}

/* ---- reading the tables ----------------------------------------------------------------------------------- */

int cflow_model_param(const cflow_model *model, int param, uint32_t *value_out)
{
    if (model == NULL || value_out == NULL || param < 0 || param >= CFLOW_PARAM_COUNT) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_model_param: NULL argument or parameter %d out of range", param);
    }
    *value_out = model->param[param];
    return CFLOW_OK;
}

const char *cflow_model_name(const cflow_model *model)
{
    return model == NULL ? "" : model->name;
}

uint64_t cflow_model_file_bytes(const cflow_model *model)
{
    return model == NULL ? 0 : model->file_bytes;
}

int cflow_model_order(const cflow_model *model)
{
    return model == NULL ? CFLOW_ORDER_LAYER : (int)model->order;
}

const char *cflow_order_name(int order)
{
    return order >= 0 && order < CFLOW_ORDER_COUNT ? ORDER_NAMES[order] : NULL;
}

uint32_t cflow_model_tensor_count(const cflow_model *model)
{
    return model == NULL ? 0 : model->tensor_count;
}

int cflow_model_tensor(const cflow_model *model, uint32_t index, uint64_t *fields_out)
{
    if (model == NULL || fields_out == NULL || index >= model->tensor_count) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_model_tensor: NULL argument or tensor %u out of range", index);
    }
    const cf_tensor *tensor = &model->tensors[index];
    fields_out[CFLOW_TENSOR_ROLE] = tensor->role;
    fields_out[CFLOW_TENSOR_BLOCK] = tensor->block;
    fields_out[CFLOW_TENSOR_EXPERT] = tensor->expert;
    fields_out[CFLOW_TENSOR_TYPE] = tensor->type;
    fields_out[CFLOW_TENSOR_PARTS] = tensor->parts;
    fields_out[CFLOW_TENSOR_ROWS0] = tensor->rows[0];
    fields_out[CFLOW_TENSOR_ROWS1] = tensor->rows[1];
    fields_out[CFLOW_TENSOR_ROWS2] = tensor->rows[2];
    fields_out[CFLOW_TENSOR_COLUMNS] = tensor->columns;
    fields_out[CFLOW_TENSOR_OFFSET] = tensor->offset;
    fields_out[CFLOW_TENSOR_BYTES] = tensor->bytes;
    fields_out[CFLOW_TENSOR_HASH] = tensor->hash;
    return CFLOW_OK;
}

const char *cflow_model_tensor_name(const cflow_model *model, uint32_t index)
{
    return model == NULL || index >= model->tensor_count ? NULL : model->tensors[index].name;
}

int cflow_model_tensor_data(const cflow_model *model, uint32_t index, const void **data_out, uint64_t *bytes_out)
{
    if (model == NULL || data_out == NULL || bytes_out == NULL || index >= model->tensor_count) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_model_tensor_data: NULL argument or tensor %u out of range", index);
    }
    *data_out = model->map + model->tensors[index].offset;
    *bytes_out = model->tensors[index].bytes;
    return CFLOW_OK;
}

int cflow_model_tokenizer(const cflow_model *model, const char **json_out, uint64_t *bytes_out)
{
    if (model == NULL || json_out == NULL || bytes_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_model_tokenizer: NULL argument");
    }
    *json_out = "";
    *bytes_out = 0;
    if (model->tokenizer_bytes == 0) {
        return CFLOW_OK;
    }
    const uint8_t *json = model->map + model->tokenizer_offset;
    if (cf_xxh64_of(json, (size_t)model->tokenizer_bytes) != model->tokenizer_hash) {
        return cf_fail(CFLOW_ERR_CHECKSUM, "%s: the tokenizer does not match its hash", model->path);
    }
    const uint64_t valid = cf_utf8_valid(json, model->tokenizer_bytes);
    if (valid < model->tokenizer_bytes) {
        return cf_fail(CFLOW_ERR_FORMAT, "%s: the tokenizer is not UTF-8 at its byte %llu", model->path,
                       (unsigned long long)valid);
    }
    *json_out = (const char *)json;
    *bytes_out = model->tokenizer_bytes;
    return CFLOW_OK;
}
