/* tiles.c - sizes of matrices in tiles, and the way between tiles and row-major rows. Layout: cflow.h, MATRIX DATA. */
#include <string.h>

#include "error.h"
#include "kernels.h"

#define TILE_ROWS_MAX 4096u
#define TILE_COLS_MAX 65536u

static uint64_t groups_of(uint64_t rows)
{
    return rows / CF_GROUP_ROWS + (rows % CF_GROUP_ROWS != 0);
}

static int check_shape(int type, int parts, const uint64_t *rows, uint64_t columns, uint32_t tile_rows,
                       uint32_t tile_cols)
{
    if (cf_row_block_bytes(type) == 0) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "tiles: type is %d; allowed are 0 .. %d", type, CFLOW_TYPE_COUNT - 1);
    }
    if (parts < 1 || parts > (int)CF_MAX_PARTS) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "tiles: parts is %d; allowed are 1 .. 3", parts);
    }
    for (int p = 0; p < parts; p++) {
        if (rows[p] == 0) {
            return cf_fail(CFLOW_ERR_ARGUMENT, "tiles: part %d has 0 rows; at least 1 is needed", p);
        }
    }
    if (columns == 0 || columns % CF_BLOCK != 0) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "tiles: columns is %llu; allowed are positive multiples of 32",
                       (unsigned long long)columns);
    }
    if (tile_rows == 0 || tile_rows % CF_GROUP_ROWS != 0 || tile_rows > TILE_ROWS_MAX) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "tiles: tile_rows is %lu; allowed are multiples of 16, 16 .. 4096",
                       (unsigned long)tile_rows);
    }
    if (tile_cols == 0 || tile_cols % CF_BLOCK != 0 || tile_cols > TILE_COLS_MAX) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "tiles: tile_cols is %lu; allowed are multiples of 32, 32 .. 65536",
                       (unsigned long)tile_cols);
    }
    return CFLOW_OK;
}

/* Sums with every step checked; 0 when a size leaves uint64_t or, for memory, size_t. */
static int fill_sizes(cf_tiles *tiles)
{
    const uint64_t full_slices = tiles->columns / tiles->tile_cols;
    const uint32_t last_blocks = (uint32_t)(tiles->columns % tiles->tile_cols) / CF_BLOCK;
    uint64_t groups = 0;
    for (uint32_t p = 0; p < tiles->parts; p++) {
        if (__builtin_add_overflow(groups, groups_of(tiles->rows[p]), &groups)) {
            return 0;
        }
    }
    uint64_t row_bytes = 0; /* of one row-major row: pack and unpack multiply it by rows */
    for (uint32_t p = 0; p < tiles->parts; p++) {
        uint64_t part_bytes = 0;
        if (__builtin_mul_overflow(tiles->columns / CF_BLOCK, (uint64_t)cf_row_block_bytes(tiles->type), &row_bytes) ||
            __builtin_mul_overflow(row_bytes, tiles->rows[p], &part_bytes) || part_bytes > SIZE_MAX) {
            return 0;
        }
    }
    const uint64_t full_bytes = cf_group_bytes(tiles->type, tiles->tile_cols / CF_BLOCK);
    const uint64_t last_bytes = cf_group_bytes(tiles->type, last_blocks);
    return !__builtin_mul_overflow(full_slices, full_bytes, &tiles->band_bytes) &&
           !__builtin_add_overflow(tiles->band_bytes, last_bytes, &tiles->band_bytes) &&
           !__builtin_mul_overflow(groups, tiles->band_bytes, &tiles->bytes) && tiles->bytes <= SIZE_MAX;
}

int cf_tiles_describe(int type, int parts, const uint64_t *rows, uint64_t columns, uint32_t tile_rows,
                      uint32_t tile_cols, cf_tiles *tiles_out)
{
    const int status = check_shape(type, parts, rows, columns, tile_rows, tile_cols);
    if (status != CFLOW_OK) {
        return status;
    }
    cf_tiles tiles = {
        .type = type, .parts = (uint32_t)parts, .columns = columns, .tile_rows = tile_rows, .tile_cols = tile_cols};
    memcpy(tiles.rows, rows, (size_t)parts * sizeof rows[0]);
    if (!fill_sizes(&tiles)) {
        return cf_fail(CFLOW_ERR_FORMAT, "tiles: %d part(s) of %llu rows (first part) x %llu columns of %s overflow",
                       parts, (unsigned long long)rows[0], (unsigned long long)columns, cflow_type_name(type));
    }
    *tiles_out = tiles;
    return CFLOW_OK;
}

/* Groups of a part in stripes 0 .. stripe - 1. */
static uint64_t groups_before(const cf_tiles *tiles, uint32_t part, uint64_t stripe)
{
    const uint64_t stripe_groups = tiles->tile_rows / CF_GROUP_ROWS;
    const uint64_t part_groups = groups_of(tiles->rows[part]);
    return stripe <= part_groups / stripe_groups ? stripe * stripe_groups : part_groups;
}

uint32_t cf_tiles_groups(const cf_tiles *tiles, uint32_t part, uint64_t stripe)
{
    return (uint32_t)(groups_before(tiles, part, stripe + 1) - groups_before(tiles, part, stripe));
}

uint64_t cf_tiles_stripe_offset(const cf_tiles *tiles, uint64_t stripe)
{
    uint64_t groups = 0;
    for (uint32_t p = 0; p < tiles->parts; p++) {
        groups += groups_before(tiles, p, stripe);
    }
    return groups * tiles->band_bytes;
}

/* ---- one group -------------------------------------------------------------------------------------------------- */

/* A group beside its rows: 16 (or, at the end of a part, fewer) rows of `blocks` blocks. */
typedef struct group_place {
    int type;
    uint32_t blocks;
    uint32_t rows;
    size_t row_bytes;  /* from row to row of the row-major side */
    size_t first_byte; /* of the group's first block in a row */
} group_place;

/* Bytes of a GGUF block before its codes: scale, and minimum in q4_1; 0 for f16 and f32. */
static size_t block_head_bytes(int type)
{
    switch (type) {
    case CFLOW_TYPE_Q4_0:
    case CFLOW_TYPE_Q8_0:
        return 2;
    case CFLOW_TYPE_Q4_1:
        return 4;
    default:
        return 0;
    }
}

static uint32_t load_u32(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static void store_u32(uint8_t *bytes, uint32_t value)
{
    memcpy(bytes, &value, sizeof value);
}

/*
 * GGUF: byte c holds columns c (low) and c + 16 (high). Group: byte (k, j) holds columns 8k + j and 8k + 4 + j. Four
 * bytes at a time; the shifts stay inside bytes because of the masks, so byte order does not matter.
 */
static void pack_nibbles(const uint8_t *from, uint8_t *to)
{
    const uint32_t low = 0x0f0f0f0fu;
    const uint32_t high = 0xf0f0f0f0u;
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t a = load_u32(from + 8 * k);
        const uint32_t b = load_u32(from + 8 * k + 4);
        store_u32(to + (size_t)k * 64, (a & low) | (b & low) << 4);
        store_u32(to + (size_t)(k + 2) * 64, (a >> 4 & low) | (b & high));
    }
}

static void unpack_nibbles(const uint8_t *from, uint8_t *to)
{
    const uint32_t low = 0x0f0f0f0fu;
    const uint32_t high = 0xf0f0f0f0u;
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t a = load_u32(from + (size_t)k * 64);
        const uint32_t b = load_u32(from + (size_t)(k + 2) * 64);
        store_u32(to + 8 * k, (a & low) | (b & low) << 4);
        store_u32(to + 8 * k + 4, (a >> 4 & low) | (b & high));
    }
}

/* Moves `count` values of `bytes` bytes between a row (adjacent) and a group (16 values apart). */
static void pack_values(const uint8_t *from, uint8_t *to, uint32_t count, size_t bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        memcpy(to + i * CF_GROUP_ROWS * bytes, from + i * bytes, bytes);
    }
}

static void unpack_values(const uint8_t *from, uint8_t *to, uint32_t count, size_t bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        memcpy(to + i * bytes, from + i * CF_GROUP_ROWS * bytes, bytes);
    }
}

static void pack_codes(int type, const uint8_t *from, uint8_t *to, uint32_t row)
{
    switch (type) {
    case CFLOW_TYPE_Q8_0:
        pack_values(from, to + row * 4u, CF_BLOCK / 4, 4);
        break;
    case CFLOW_TYPE_F16:
        pack_values(from, to + row * 2u, CF_BLOCK, 2);
        break;
    case CFLOW_TYPE_F32:
        pack_values(from, to + row * 4u, CF_BLOCK, 4);
        break;
    default:
        pack_nibbles(from, to + row * 4u);
        break;
    }
}

static void unpack_codes(int type, const uint8_t *from, uint8_t *to, uint32_t row)
{
    switch (type) {
    case CFLOW_TYPE_Q8_0:
        unpack_values(from + row * 4u, to, CF_BLOCK / 4, 4);
        break;
    case CFLOW_TYPE_F16:
        unpack_values(from + row * 2u, to, CF_BLOCK, 2);
        break;
    case CFLOW_TYPE_F32:
        unpack_values(from + row * 4u, to, CF_BLOCK, 4);
        break;
    default:
        unpack_nibbles(from + row * 4u, to);
        break;
    }
}

static void pack_group(const group_place *place, const uint8_t *rows, uint8_t *group)
{
    const size_t head = block_head_bytes(place->type);
    const size_t section = cf_pad64((size_t)place->blocks * CF_GROUP_ROWS * 2u);
    uint8_t *const codes = group + cf_group_head_bytes(place->type, place->blocks);
    memset(group, 0, cf_group_bytes(place->type, place->blocks));
    for (uint32_t b = 0; b < place->blocks; b++) {
        for (uint32_t r = 0; r < place->rows; r++) {
            const uint8_t *const block =
                rows + r * place->row_bytes + place->first_byte + b * cf_row_block_bytes(place->type);
            for (size_t i = 0; i < head / 2; i++) {
                memcpy(group + i * section + ((size_t)b * CF_GROUP_ROWS + r) * 2u, block + 2 * i, 2);
            }
            pack_codes(place->type, block + head, codes + b * cf_group_block_bytes(place->type), r);
        }
    }
}

static void unpack_group(const group_place *place, const uint8_t *group, uint8_t *rows)
{
    const size_t head = block_head_bytes(place->type);
    const size_t section = cf_pad64((size_t)place->blocks * CF_GROUP_ROWS * 2u);
    const uint8_t *const codes = group + cf_group_head_bytes(place->type, place->blocks);
    for (uint32_t b = 0; b < place->blocks; b++) {
        for (uint32_t r = 0; r < place->rows; r++) {
            uint8_t *const block =
                rows + r * place->row_bytes + place->first_byte + b * cf_row_block_bytes(place->type);
            for (size_t i = 0; i < head / 2; i++) {
                memcpy(block + 2 * i, group + i * section + ((size_t)b * CF_GROUP_ROWS + r) * 2u, 2);
            }
            unpack_codes(place->type, codes + b * cf_group_block_bytes(place->type), block + head, r);
        }
    }
}

/* ---- whole matrices --------------------------------------------------------------------------------------------- */

/* One group in storage order: `part`, its first row, and where it lies. */
typedef void (*group_visitor)(const group_place *place, uint32_t part, uint64_t first_row, uint64_t offset,
                              void *context);

static void visit_groups(const cf_tiles *tiles, group_visitor visit, void *context)
{
    const size_t block_bytes = cf_row_block_bytes(tiles->type);
    uint64_t offset = 0;
    for (uint64_t stripe = 0; offset < tiles->bytes; stripe++) {
        for (uint64_t column = 0; column < tiles->columns; column += tiles->tile_cols) {
            const uint64_t left = tiles->columns - column;
            const uint32_t width = left < tiles->tile_cols ? (uint32_t)left : tiles->tile_cols;
            for (uint32_t p = 0; p < tiles->parts; p++) {
                const uint32_t groups = cf_tiles_groups(tiles, p, stripe);
                for (uint32_t g = 0; g < groups; g++) {
                    const uint64_t row = stripe * tiles->tile_rows + (uint64_t)g * CF_GROUP_ROWS;
                    const uint64_t rows_left = tiles->rows[p] - row;
                    const group_place place = {
                        .type = tiles->type,
                        .blocks = width / CF_BLOCK,
                        .rows = rows_left < CF_GROUP_ROWS ? (uint32_t)rows_left : CF_GROUP_ROWS,
                        .row_bytes = (size_t)(tiles->columns / CF_BLOCK) * block_bytes,
                        .first_byte = (size_t)(column / CF_BLOCK) * block_bytes,
                    };
                    visit(&place, p, row, offset, context);
                    offset += cf_group_bytes(tiles->type, place.blocks);
                }
            }
        }
    }
}

typedef struct pack_context {
    const void *const *row_major;
    uint8_t *tiles;
} pack_context;

static void pack_visit(const group_place *place, uint32_t part, uint64_t first_row, uint64_t offset, void *context)
{
    const pack_context *const to = context;
    const uint8_t *const rows = to->row_major[part];
    pack_group(place, rows + (size_t)first_row * place->row_bytes, to->tiles + offset);
}

typedef struct unpack_context {
    const uint8_t *tiles;
    void *const *row_major;
} unpack_context;

static void unpack_visit(const group_place *place, uint32_t part, uint64_t first_row, uint64_t offset, void *context)
{
    const unpack_context *const from = context;
    uint8_t *const rows = from->row_major[part];
    unpack_group(place, from->tiles + offset, rows + (size_t)first_row * place->row_bytes);
}

int cflow_tiles_bytes(int type, uint64_t rows, uint64_t columns, uint32_t tile_rows, uint32_t tile_cols,
                      uint64_t *bytes_out)
{
    if (bytes_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_tiles_bytes: bytes_out must not be NULL");
    }
    cf_tiles tiles;
    const int status = cf_tiles_describe(type, 1, &rows, columns, tile_rows, tile_cols, &tiles);
    if (status == CFLOW_OK) {
        *bytes_out = tiles.bytes;
    }
    return status;
}

/* Shape and buffers of a pack or unpack call. */
static int check_transfer(const char *caller, int type, int parts, const uint64_t *rows, uint64_t columns,
                          uint32_t tile_rows, uint32_t tile_cols, const void *const *row_major, const void *buffer,
                          uint64_t bytes, cf_tiles *tiles_out)
{
    if (rows == NULL || row_major == NULL || buffer == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "%s: rows, the row-major buffers and the tiles must not be NULL", caller);
    }
    const int status = cf_tiles_describe(type, parts, rows, columns, tile_rows, tile_cols, tiles_out);
    if (status != CFLOW_OK) {
        return status;
    }
    for (int p = 0; p < parts; p++) {
        if (row_major[p] == NULL) {
            return cf_fail(CFLOW_ERR_ARGUMENT, "%s: the row-major buffer of part %d is NULL", caller, p);
        }
    }
    if (bytes != tiles_out->bytes) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "%s: tiles_bytes is %llu; this shape needs %llu", caller,
                       (unsigned long long)bytes, (unsigned long long)tiles_out->bytes);
    }
    return CFLOW_OK;
}

int cflow_tiles_pack(int type, int parts, const uint64_t *rows, uint64_t columns, uint32_t tile_rows,
                     uint32_t tile_cols, const void *const *row_major, void *tiles_out, uint64_t tiles_bytes)
{
    cf_tiles tiles;
    const int status = check_transfer("cflow_tiles_pack", type, parts, rows, columns, tile_rows, tile_cols, row_major,
                                      tiles_out, tiles_bytes, &tiles);
    if (status == CFLOW_OK) {
        pack_context context = {row_major, tiles_out};
        visit_groups(&tiles, pack_visit, &context);
    }
    return status;
}

int cflow_tiles_unpack(int type, int parts, const uint64_t *rows, uint64_t columns, uint32_t tile_rows,
                       uint32_t tile_cols, const void *tiles_in, uint64_t tiles_bytes, void *const *row_major_out)
{
    cf_tiles tiles;
    const int status = check_transfer("cflow_tiles_unpack", type, parts, rows, columns, tile_rows, tile_cols,
                                      (const void *const *)row_major_out, tiles_in, tiles_bytes, &tiles);
    if (status == CFLOW_OK) {
        unpack_context context = {tiles_in, row_major_out};
        visit_groups(&tiles, unpack_visit, &context);
    }
    return status;
}
