/* gemm.c - several vectors at once: panels, tiles, and one product on the calling thread for tests and measurement. */
#include "gemm.h"

#include <stdlib.h>
#include <string.h>

#include "act.h"
#include "error.h"
#include "kernel_inline.h"

/* ---- panels ----------------------------------------------------------------------------------------------------- */

/* Bytes of one array of a panel: `block_bytes` for every block of every vector. */
static size_t array_bytes(size_t columns, size_t block_bytes)
{
    return cf_pad64(columns / CF_BLOCK * CF_PANEL * block_bytes);
}

static size_t panel_bytes(unsigned needs, size_t columns)
{
    const size_t whole = array_bytes(columns, CF_BLOCK * sizeof(float)), single = array_bytes(columns, sizeof(float));
    return ((needs & CF_NEED_F32) != 0 ? whole : 0) + ((needs & CF_NEED_F32_SCALED) != 0 ? whole : 0) +
           ((needs & CF_NEED_F32_SUMS) != 0 ? single : 0) +
           ((needs & CF_NEED_Q8) != 0 ? array_bytes(columns, CF_BLOCK) + 2 * single : 0);
}

size_t cf_gemm_bytes(unsigned needs, size_t columns, uint32_t count)
{
    return count / CF_PANEL * panel_bytes(needs, columns);
}

/*
 * Interleaves the blocks of CF_PANEL arrays at *memory, which then moves on; returns where they are. Inlined, so that
 * block_bytes is a constant.
 */
CF_INLINE void *interleave(uint8_t **memory, const void *const from[CF_PANEL], size_t blocks, size_t block_bytes)
{
    uint8_t *const panel = *memory;
    for (uint32_t n = 0; n < CF_PANEL; n++) {
        const uint8_t *in = from[n];
        uint8_t *out = panel + n * block_bytes;
        for (size_t b = 0; b < blocks; b++, in += block_bytes, out += CF_PANEL * block_bytes) {
            memcpy(out, in, block_bytes);
        }
    }
    *memory += cf_pad64(blocks * CF_PANEL * block_bytes);
    return panel;
}

#define INTERLEAVE(field, block_bytes)                                                                                 \
    interleave(&memory, (const void *const[CF_PANEL]){x[0].field, x[1].field, x[2].field, x[3].field}, blocks,         \
               (block_bytes))

static cf_act pack(uint8_t *memory, unsigned needs, const cf_act x[CF_PANEL], size_t columns)
{
    const size_t blocks = columns / CF_BLOCK;
    cf_act panel = {.f32 = NULL};
    if ((needs & CF_NEED_F32) != 0) {
        panel.f32 = INTERLEAVE(f32, CF_BLOCK * sizeof(float));
    }
    if ((needs & CF_NEED_F32_SCALED) != 0) {
        panel.f32_scaled = INTERLEAVE(f32_scaled, CF_BLOCK * sizeof(float));
    }
    if ((needs & CF_NEED_F32_SUMS) != 0) {
        panel.f32_sums = INTERLEAVE(f32_sums, sizeof(float));
    }
    if ((needs & CF_NEED_Q8) != 0) {
        panel.codes = INTERLEAVE(codes, CF_BLOCK);
        panel.scales = INTERLEAVE(scales, sizeof(float));
        panel.sums = INTERLEAVE(sums, sizeof(int32_t));
    }
    return panel;
}

void cf_gemm_prepare(cf_gemm *gemm, void *memory, size_t columns)
{
    const cf_kernel *const found = cf_kernel_gemm(gemm->kernel);
    gemm->panel_kernel = found == NULL ? NULL : found->gemm;
    gemm->panels = found == NULL ? 0 : gemm->count / CF_PANEL;
    const size_t bytes = panel_bytes(gemm->kernel->needs, columns);
    for (uint32_t p = 0; p < gemm->panels; p++) {
        gemm->panel[p] =
            pack((uint8_t *)memory + p * bytes, gemm->kernel->needs, gemm->x + (size_t)p * CF_PANEL, columns);
    }
}

/* ---- tiles ------------------------------------------------------------------------------------------------------ */

static void fetch(const uint8_t *from, size_t begin, size_t end)
{
    for (size_t at = begin; at < end; at += CF_CACHE_LINE) {
        __builtin_prefetch(from + at, 0, 2);
    }
}

void cf_gemm_tile(const cf_gemm *gemm, const uint8_t *weights, uint32_t groups, uint32_t blocks, size_t column,
                  float *y, size_t y_stride, const uint8_t *ahead, size_t ahead_bytes)
{
    /* A share of the next tile before each step, so that its arrival hides behind the arithmetic of this one. */
    const uint32_t steps = gemm->panels + (gemm->count - gemm->panels * CF_PANEL);
    const size_t share = cf_pad64((ahead_bytes + steps - 1) / steps);
    size_t fetched = 0;
    for (uint32_t step = 0; step < steps; step++) {
        const size_t until = fetched + share < ahead_bytes ? fetched + share : ahead_bytes;
        fetch(ahead, fetched, until);
        fetched = until;
        if (step < gemm->panels) {
            const cf_gemm_call call = {
                .weights = weights,
                .y = y + (size_t)step * CF_PANEL * y_stride,
                .y_stride = y_stride,
                .groups = groups,
                .blocks = blocks,
                .panel = cf_act_at(&gemm->panel[step], column * CF_PANEL),
            };
            gemm->panel_kernel(&call);
            continue;
        }
        const uint32_t n = step - gemm->panels + gemm->panels * CF_PANEL;
        const cf_gemv_call call = {
            .weights = {weights},
            .y = {y + n * y_stride},
            .parts = 1,
            .groups = groups,
            .blocks = blocks,
            .x = cf_act_at(&gemm->x[n], column),
            .prefetch_hint = CFLOW_PREFETCH_NONE,
        };
        gemm->kernel->tile(&call);
    }
}

/* ---- cflow_gemm -------------------------------------------------------------------------------------------------- */

typedef struct scratch {
    void *memory;
    float *y; /* [vectors][padded rows], zero */
} scratch;

static int scratch_create(cf_gemm *gemm, const float *x, size_t columns, size_t padded_rows, scratch *out)
{
    const size_t act_bytes = cf_act_bytes(columns);
    const size_t panels_bytes = cf_gemm_bytes(gemm->kernel->needs, columns, gemm->count);
    const size_t y_bytes = cf_pad64(padded_rows * gemm->count * sizeof(float));
    uint8_t *memory = aligned_alloc(CF_CACHE_LINE, act_bytes * gemm->count + panels_bytes + y_bytes);
    if (memory == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "cflow_gemm: out of memory for %u vectors of %zu columns", gemm->count,
                       columns);
    }
    out->memory = memory;
    for (uint32_t n = 0; n < gemm->count; n++, memory += act_bytes) {
        const cf_act_arrays arrays = cf_act_place(memory, columns);
        cf_act_prepare(&arrays, gemm->kernel->needs, x + n * columns, columns);
        gemm->x[n] = cf_act_view(&arrays);
    }
    cf_gemm_prepare(gemm, memory, columns);
    out->y = (float *)(void *)(memory + panels_bytes);
    memset(out->y, 0, y_bytes);
    return CFLOW_OK;
}

int cflow_gemm(uint32_t kernel, const void *weights, uint64_t weights_bytes, uint64_t rows, uint64_t columns,
               uint32_t tile_rows, uint32_t tile_cols, const float *x, uint32_t vectors, float *y_out)
{
    const cf_kernel *const found = cf_kernel_at(kernel);
    if (found == NULL || found->gemm == NULL || weights == NULL || x == NULL || y_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_gemm: NULL argument, or kernel %u is not a matrix-matrix kernel",
                       kernel);
    }
    if (vectors == 0 || vectors > CF_MAX_BATCH) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_gemm: vectors is %u; allowed: 1 to %d", vectors, CF_MAX_BATCH);
    }
    cf_tiles tiles;
    int status = cf_tiles_describe(found->type, 1, &rows, columns, tile_rows, tile_cols, &tiles);
    if (status == CFLOW_OK) {
        status = cf_gemv_check("cflow_gemm", found, weights, weights_bytes, &tiles);
    }
    if (status != CFLOW_OK) {
        return status;
    }
    cf_gemm gemm = {.kernel = cf_kernel_find(found->type, found->q8, found->isa, 0), .count = vectors};
    const size_t padded_rows = ((size_t)rows + CF_GROUP_ROWS - 1) / CF_GROUP_ROWS * CF_GROUP_ROWS;
    scratch work = {NULL, NULL};
    status = scratch_create(&gemm, x, (size_t)columns, padded_rows, &work);
    if (status != CFLOW_OK) {
        return status;
    }
    const uint8_t *tile = weights;
    for (uint64_t row = 0; row < rows; row += tile_rows) {
        const uint32_t groups = cf_tiles_groups(&tiles, 0, row / tile_rows);
        for (uint64_t column = 0; column < columns; column += tile_cols) {
            const uint32_t blocks =
                (columns - column < tile_cols ? (uint32_t)(columns - column) : tile_cols) / CF_BLOCK;
            cf_gemm_tile(&gemm, tile, groups, blocks, (size_t)column, work.y + row, padded_rows, NULL, 0);
            tile += groups * cf_group_bytes(tiles.type, blocks);
        }
    }
    for (uint32_t n = 0; n < vectors; n++) {
        memcpy(y_out + n * rows, work.y + n * padded_rows, (size_t)rows * sizeof(float));
    }
    free(work.memory);
    return CFLOW_OK;
}
