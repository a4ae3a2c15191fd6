/*
 * walk.h - a matrix-vector product over the tiles of a matrix, or of some of its rows, on the calling thread.
 *
 * A CPU core reads one sequence of addresses slower than several side by side: a hardware prefetcher follows each
 * sequence within a page of 4 KiB and starts again at the next, and while it starts nothing else is on its way
 * (docs/performance.md has the ratios). So a worker's rows are cut into up to four runs, which take turns inside the
 * kernel and share each activation load. With one run the fused parts of a matrix do, and the file is read in its order.
 */
#ifndef CF_WALK_H
#define CF_WALK_H

#include "kernels.h"

typedef struct cf_walk {
    cf_gemv_fn kernel;
    const cf_tiles *tiles;
    const uint8_t *weights; /* the matrix */
    const cf_act *x;
    float *y[CF_MAX_PARTS]; /* [padded rows] per part, accumulated into */
    uint32_t streams;       /* 1 .. CF_MAX_LANES runs of rows read side by side */
    int32_t prefetch_hint;  /* as in cf_gemv_call */
    uint32_t prefetch_bytes;
    /* Told of every run of weights after it was used, in order of use; may be NULL. */
    void (*loaded)(void *context, const uint8_t *address, uint64_t bytes);
    void *context;
} cf_walk;

/*
 * y[part] += rows 16 first .. 16 last - 1 of parts part_first .. part_last - 1 times x. Rows that a part does not have
 * are left out.
 */
void cf_walk_parts(const cf_walk *walk, uint32_t part_first, uint32_t part_last, uint64_t first, uint64_t last);

#endif
