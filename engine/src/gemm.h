/*
 * gemm.h - products of tiles with several vectors: each tile is loaded once for all of them, and per vector the result
 * has the bits of the matrix-vector kernel.
 */
#ifndef CF_GEMM_H
#define CF_GEMM_H

#include "kernels.h"

enum { CF_MAX_BATCH = 32 }; /* vectors of a product; a multiple of CF_PANEL */

/*
 * Vectors of one product. Each CF_PANEL of them are copied into a panel, where block b of vector n is block
 * b * CF_PANEL + n: a panel kernel reads all its vectors in one ascending stream. The remainder, and every vector when
 * the instruction set has no panel kernel, is multiplied by the vector kernel while the tile is in the first-level cache.
 */
typedef struct cf_gemm {
    const cf_kernel *kernel; /* of vectors */
    cf_gemm_fn panel_kernel; /* NULL when there is none */
    uint32_t count;          /* 1 .. CF_MAX_BATCH */
    uint32_t panels;
    cf_act x[CF_MAX_BATCH];
    cf_act panel[CF_MAX_BATCH / CF_PANEL];
} cf_gemm;

/* Bytes that cf_gemm_prepare() needs for `count` vectors. */
size_t cf_gemm_bytes(unsigned needs, size_t columns, uint32_t count);
/*
 * kernel, count and x[0 .. count - 1] are set: chooses the panel kernel and fills the panels, which lie in `memory`
 * (64-byte aligned, cf_gemm_bytes() bytes for the kernel's needs).
 */
void cf_gemm_prepare(cf_gemm *gemm, void *memory, size_t columns);
/*
 * Vector n: y[n * y_stride ..] += `groups` consecutive groups of one tile, whose first column is `column`, times x[n].
 * Meanwhile the `ahead_bytes` bytes at `ahead`, which are needed next, are fetched into the second-level cache.
 */
void cf_gemm_tile(const cf_gemm *gemm, const uint8_t *weights, uint32_t groups, uint32_t blocks, size_t column,
                  float *y, size_t y_stride, const uint8_t *ahead, size_t ahead_bytes);

#endif
