#include "row.h"

#include "half.h"

#include <string.h>

static float load_f32(const uint8_t *at)
{
    float value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* One block of 32 columns of the row in `lane` of a group. head: scales of this block; codes: its codes or values. */
static void read_block(int type, const uint8_t *scales, const uint8_t *minima, const uint8_t *codes, uint32_t lane,
                       float *out)
{
    const float scale = scales == NULL ? 0.0f : cf_load_half(scales + 2 * lane);
    const float minimum = minima == NULL ? 0.0f : cf_load_half(minima + 2 * lane);
    for (uint32_t column = 0; column < CF_BLOCK; column++) {
        if (type == CFLOW_TYPE_F32) {
            out[column] = load_f32(codes + (column * CF_GROUP_ROWS + lane) * 4);
        } else if (type == CFLOW_TYPE_F16) {
            out[column] = cf_load_half(codes + (column * CF_GROUP_ROWS + lane) * 2);
        } else if (type == CFLOW_TYPE_Q8_0) {
            const int8_t code = (int8_t)codes[column / 4 * 64 + lane * 4 + column % 4];
            out[column] = scale * (float)code;
        } else {
            const uint8_t byte = codes[column / 8 * 64 + lane * 4 + column % 4];
            const int code = column % 8 < 4 ? byte & 15 : byte >> 4;
            out[column] = type == CFLOW_TYPE_Q4_0 ? scale * (float)(code - 8) : scale * (float)code + minimum;
        }
    }
}

void cf_tiles_read_row(const cf_tiles *tiles, const uint8_t *data, uint64_t row, float *out)
{
    const uint64_t stripe = row / tiles->tile_rows;
    const uint64_t group = row % tiles->tile_rows / CF_GROUP_ROWS;
    const uint32_t lane = (uint32_t)(row % CF_GROUP_ROWS);
    const uint32_t groups = cf_tiles_groups(tiles, 0, stripe);
    const uint8_t *tile = data + cf_tiles_stripe_offset(tiles, stripe);
    for (uint64_t column = 0; column < tiles->columns; column += tiles->tile_cols) {
        const uint64_t width = tiles->columns - column < tiles->tile_cols ? tiles->columns - column : tiles->tile_cols;
        const uint32_t blocks = (uint32_t)(width / CF_BLOCK);
        const size_t head_bytes = cf_group_head_bytes(tiles->type, blocks);
        const uint8_t *base = tile + group * cf_group_bytes(tiles->type, blocks);
        for (uint32_t block = 0; block < blocks; block++) {
            const size_t at = (size_t)block * CF_GROUP_ROWS * 2;
            read_block(tiles->type, head_bytes > 0 ? base + at : NULL,
                       tiles->type == CFLOW_TYPE_Q4_1 ? base + head_bytes / 2 + at : NULL,
                       base + head_bytes + block * cf_group_block_bytes(tiles->type), lane,
                       out + column + (size_t)block * CF_BLOCK);
        }
        tile += groups * cf_group_bytes(tiles->type, blocks);
    }
}
