/* verify.c - reads a whole file: hashes, and that every stored float is finite. */
#include "error.h"
#include "half.h"
#include "hash.h"
#include "kernels.h"
#include "model.h"

#include <math.h>
#include <string.h>

static int half_is_finite(uint16_t half)
{
    return (half & 0x7c00u) != 0x7c00u;
}

/* First 16-bit float in [bytes] that is not finite; -1 when all are. */
static int64_t find_bad_half(const uint8_t *data, uint64_t bytes)
{
    for (uint64_t i = 0; i + 2 <= bytes; i += 2) {
        if (!half_is_finite(cf_load_u16(data + i))) {
            return (int64_t)(i / 2);
        }
    }
    return -1;
}

static int64_t find_bad_float(const uint8_t *data, uint64_t bytes)
{
    for (uint64_t i = 0; i + 4 <= bytes; i += 4) {
        float value;
        memcpy(&value, data + i, sizeof value);
        if (!isfinite(value)) {
            return (int64_t)(i / 4);
        }
    }
    return -1;
}

static int not_finite(const cflow_model *model, const cf_tensor *tensor, uint64_t row, uint64_t block)
{
    return cf_fail(CFLOW_ERR_NONFINITE,
                   "%s: tensor %s: a scale or value that is not finite in the 16 rows from %llu, block %llu",
                   model->path, tensor->name, (unsigned long long)row, (unsigned long long)block);
}

/* One group of 16 rows: its scales and minima, or its values. row, column: its first, for the message. */
static int check_group(const cflow_model *model, const cf_tensor *tensor, const uint8_t *group, uint32_t blocks,
                       uint64_t row, uint64_t column)
{
    const int type = (int)tensor->type;
    const size_t head_bytes = cf_group_head_bytes(type, blocks);
    int64_t bad;
    uint64_t per_block;
    if (type == CFLOW_TYPE_F32) {
        bad = find_bad_float(group, cf_group_bytes(type, blocks));
        per_block = (uint64_t)CF_BLOCK * CF_GROUP_ROWS;
    } else {
        bad = find_bad_half(group, head_bytes > 0 ? head_bytes : cf_group_bytes(type, blocks));
        per_block = type == CFLOW_TYPE_F16 ? (uint64_t)CF_BLOCK * CF_GROUP_ROWS : CF_GROUP_ROWS;
    }
    if (bad < 0) {
        return CFLOW_OK;
    }
    /* q4_1 has two sections of scales and minima, the second for the same blocks. */
    const uint64_t section = type == CFLOW_TYPE_Q4_1 ? head_bytes / 4 : UINT64_MAX;
    return not_finite(model, tensor, row, column / CF_BLOCK + (uint64_t)bad % section / per_block);
}

static int check_matrix(const cflow_model *model, const cf_tensor *tensor, const uint8_t *data)
{
    cf_tiles tiles;
    int status = cf_tiles_describe((int)tensor->type, (int)tensor->parts, tensor->rows, tensor->columns,
                                   model->param[CFLOW_PARAM_TILE_ROWS], model->param[CFLOW_PARAM_TILE_COLS], &tiles);
    if (status != CFLOW_OK) {
        return status;
    }
    uint64_t stripes = 0;
    for (uint32_t part = 0; part < tensor->parts; part++) {
        const uint64_t n = (tensor->rows[part] + tiles.tile_rows - 1) / tiles.tile_rows;
        stripes = n > stripes ? n : stripes;
    }
    for (uint64_t stripe = 0; stripe < stripes && status == CFLOW_OK; stripe++) {
        for (uint64_t column = 0; column < tiles.columns && status == CFLOW_OK; column += tiles.tile_cols) {
            const uint64_t width = tiles.columns - column < tiles.tile_cols ? tiles.columns - column : tiles.tile_cols;
            const uint32_t blocks = (uint32_t)(width / CF_BLOCK);
            for (uint32_t part = 0; part < tensor->parts; part++) {
                const uint32_t groups = cf_tiles_groups(&tiles, part, stripe);
                for (uint32_t group = 0; group < groups && status == CFLOW_OK; group++) {
                    status = check_group(model, tensor, data, blocks, stripe * tiles.tile_rows + group * CF_GROUP_ROWS,
                                         column);
                    data += cf_group_bytes((int)tensor->type, blocks);
                }
            }
        }
    }
    return status;
}

int cflow_model_verify(const cflow_model *model, const volatile int *cancel)
{
    if (model == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_model_verify: model is NULL");
    }
    const char *json;
    uint64_t bytes;
    int status = cflow_model_tokenizer(model, &json, &bytes);
    for (uint32_t i = 0; i < model->tensor_count && status == CFLOW_OK; i++) {
        const cf_tensor *tensor = &model->tensors[i];
        const uint8_t *data = model->map + tensor->offset;
        if (cancel != NULL && *cancel != 0) {
            return cf_fail(CFLOW_ERR_CANCELLED, "verification cancelled after %u of %u tensors", i,
                           model->tensor_count);
        }
        if (cf_xxh64_of(data, tensor->bytes) != tensor->hash) {
            return cf_fail(CFLOW_ERR_CHECKSUM, "%s: tensor %s does not match its hash", model->path, tensor->name);
        }
        if (cf_tensor_is_vector(tensor)) {
            const int64_t bad = find_bad_float(data, tensor->bytes);
            status = bad < 0 ? CFLOW_OK
                             : cf_fail(CFLOW_ERR_NONFINITE, "%s: tensor %s: value %lld is not finite", model->path,
                                       tensor->name, (long long)bad);
        } else {
            status = check_matrix(model, tensor, data);
        }
    }
    const uint32_t blobs = model->param[CFLOW_PARAM_BLOCKS] * model->param[CFLOW_PARAM_EXPERTS];
    for (uint32_t i = 0; i < blobs && status == CFLOW_OK; i++) {
        const cf_expert_blob *blob = &model->experts[i];
        if (cancel != NULL && *cancel != 0) {
            return cf_fail(CFLOW_ERR_CANCELLED, "verification cancelled after %u of %u experts", i, blobs);
        }
        if (cf_xxh64_of(model->map + blob->offset, blob->bytes) != blob->hash) {
            status = cf_fail(CFLOW_ERR_CHECKSUM, "%s: expert %u of block %u does not match its hash", model->path,
                             i % model->param[CFLOW_PARAM_EXPERTS], i / model->param[CFLOW_PARAM_EXPERTS]);
        }
    }
    return status;
}
