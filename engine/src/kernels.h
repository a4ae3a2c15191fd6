/*
 * kernels.h - kernels of matrix products: what the executor calls, and the table that every instruction set fills.
 * The layouts of weights are in cflow.h, "MATRIX DATA" (tiles) and in the GGUF block formats (row-major).
 *
 * Tiled q8 kernels give the same bits on every instruction set: per (row, block) an exact integer dot product `isum`,
 * then, blocks ascending, one accumulator per row, every fmaf with a single rounding:
 *   q4_0  acc = fmaf(isum - 8 * sums[b], wscale * xscale, acc)
 *   q4_1  acc = fmaf(isum, wscale * xscale, acc); acc = fmaf(wmin, xscale * sums[b], acc)
 *   q8_0  acc = fmaf(isum, wscale * xscale, acc)
 * The row-major twins use the same formula per block, but may spread a row's accumulator over lanes.
 */
#ifndef CF_KERNELS_H
#define CF_KERNELS_H

#include "cflow.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the engine reads little-endian files in place: big-endian processors are not supported"
#endif
#if defined(__SIZEOF_POINTER__) && __SIZEOF_POINTER__ < 8
#error "the engine maps model files of any size: 32-bit processors are not supported"
#endif

#define CF_BLOCK 32u      /* columns that share a scale */
#define CF_GROUP_ROWS 16u /* rows of a group */
#define CF_MAX_PARTS 3u
#define CF_MAX_LANES 4u /* groups that a kernel reads side by side */
#define CF_PANEL 4u     /* vectors that a matrix-matrix kernel multiplies at once */
#define CF_CACHE_LINE 64u
#define CF_PREFETCH_DEFAULT_BYTES 4096u

/* ---- activations ---------------------------------------------------------------------------------------------- */

/* One input vector, prepared. Arrays cover all columns, are 64-byte aligned and owned by the caller. */
typedef struct cf_act {
    const float *f32;        /* [columns] */
    const float *f32_sums;   /* [columns / 32] sums of f32 per block */
    const float *f32_scaled; /* [columns] in the order and scale of cf_act_scale_nibbles() */
    const int8_t *codes;     /* [columns] q8, -127 .. 127 */
    const float *scales;     /* [columns / 32] */
    const int32_t *sums;     /* [columns / 32] sums of codes per block */
} cf_act;

/* Arrays of cf_act that a kernel reads; the others may be NULL. */
enum {
    CF_NEED_F32 = 1,        /* f32 */
    CF_NEED_F32_SUMS = 2,   /* f32_sums */
    CF_NEED_F32_SCALED = 4, /* f32_scaled */
    CF_NEED_Q8 = 8          /* codes, scales, sums */
};

/*
 * x[columns] to q8: per block scale = max|x| / 127, codes = rint(x * (127 / max|x|)), ties to even.
 * A block whose largest magnitude is under about 2^-121 (127 / max|x| would overflow) counts as zero: scale 0, codes 0.
 * A block that holds NaN or infinity gets that value as its scale and zero codes, so that it shows in every result.
 */
void cf_act_quantize(const float *x, size_t columns, int8_t *codes, float *scales, int32_t *sums);

/* sums[columns / 32] of x[columns] per block, in one fixed order of addition on all machines. */
void cf_act_sums(const float *x, size_t columns, float *sums);

/*
 * For kernels that convert a nibble where it lies in a 32-bit word: entry 8k + i is x[8k + i/2 + 4(i mod 2)] * 2^(-4i)
 * for i < 7, and x[8k + 7] for i = 7. Exact unless |x| is under 2^-102.
 */
void cf_act_scale_nibbles(const float *x, size_t columns, float *scaled);

/* ---- kernels -------------------------------------------------------------------------------------------------- */

/* Consecutive groups of tiles of the same columns: of fused parts at the same place, or of other rows. */
typedef struct cf_gemv_call {
    const uint8_t *weights[CF_MAX_LANES]; /* first group of each, 64-byte aligned */
    float *y[CF_MAX_LANES];               /* 16 * groups floats each, accumulated into */
    uint32_t parts;                       /* 1 .. 4 that share each activation load */
    uint32_t groups;         /* groups of 16 rows, cf_group_bytes(type, blocks) apart; same for all parts */
    uint32_t blocks;         /* column blocks of this tile */
    cf_act x;                /* advanced to the tile's first column */
    int32_t prefetch_hint;   /* cflow_prefetch */
    uint32_t prefetch_bytes; /* distance ahead of the load */
} cf_gemv_call;

typedef void (*cf_gemv_fn)(const cf_gemv_call *call);

/* Consecutive groups of one tile against the CF_PANEL vectors of a panel, whose blocks are interleaved: see gemm.h. */
typedef struct cf_gemm_call {
    const uint8_t *weights; /* first group, 64-byte aligned */
    float *y;               /* vector n: 16 * groups floats at y + n * y_stride, accumulated into */
    size_t y_stride;        /* floats */
    uint32_t groups;        /* of 16 rows, cf_group_bytes(type, blocks) apart */
    uint32_t blocks;        /* column blocks of this tile */
    cf_act panel;           /* advanced to the tile's first column */
} cf_gemm_call;

typedef void (*cf_gemm_fn)(const cf_gemm_call *call);

/* Row-major control arm: y[n_rows] = rows x, overwritten. rows: GGUF q4_0 blocks, row_bytes from row to row. */
typedef void (*cf_rows_fn)(const uint8_t *rows, size_t row_bytes, uint32_t n_rows, uint32_t blocks, const cf_act *x,
                           float *y);

typedef struct cf_kernel {
    const char *name;
    int type;
    int q8;
    int isa;
    int rows_per_pass; /* 0 = tiled */
    unsigned needs;    /* CF_NEED_* */
    cf_gemv_fn tile;   /* exactly one of the three is set: one vector, tiles; */
    cf_gemm_fn gemm;   /* CF_PANEL vectors, tiles; */
    cf_rows_fn rows;   /* one vector, row-major */
} cf_kernel;

typedef struct cf_kernel_list {
    const cf_kernel *kernels;
    uint32_t count;
} cf_kernel_list;

extern const cf_kernel_list cf_kernels_scalar;
#if defined(__x86_64__)
extern const cf_kernel_list cf_kernels_avx2;
extern const cf_kernel_list cf_kernels_avx512;
extern const cf_kernel_list cf_kernels_avx512vnni;
#elif defined(__aarch64__)
extern const cf_kernel_list cf_kernels_neondot;
#endif

/* Kernel by the index of cflow_kernel_name(); NULL when out of range. */
const cf_kernel *cf_kernel_at(uint32_t kernel);

/*
 * The kernel for these weights and activations on the best instruction set that is not above `isa`; NULL when there is
 * none (row-major kernels exist for q4_0 only). f16 and f32 weights take f32 activations whatever q8 says.
 * rows_per_pass: 0 = tiled; 1, 2, 4, 8 = row-major.
 */
const cf_kernel *cf_kernel_find(int type, int q8, int isa, int rows_per_pass);
/*
 * The kernel that gives CF_PANEL vectors at once the bits which `kernel`, a tiled one, gives them one by one; NULL when
 * there is none.
 */
const cf_kernel *cf_kernel_gemm(const cf_kernel *kernel);
cf_gemv_fn cf_gemv_tile(int type, int q8, int isa);
cf_rows_fn cf_gemv_rows(int type, int q8, int isa, int rows_per_pass);

/* x advanced by `column` columns (a multiple of 32); NULL arrays stay NULL. */
static inline cf_act cf_act_at(const cf_act *x, size_t column)
{
    cf_act at = *x;
    const size_t block = column / CF_BLOCK;
    at.f32 = x->f32 ? x->f32 + column : NULL;
    at.f32_sums = x->f32_sums ? x->f32_sums + block : NULL;
    at.f32_scaled = x->f32_scaled ? x->f32_scaled + column : NULL;
    at.codes = x->codes ? x->codes + column : NULL;
    at.scales = x->scales ? x->scales + block : NULL;
    at.sums = x->sums ? x->sums + block : NULL;
    return at;
}

/* ---- layout --------------------------------------------------------------------------------------------------- */

static inline size_t cf_pad64(size_t bytes)
{
    return (bytes + 63u) & ~(size_t)63u;
}

/* Bytes of a group's sections before its codes (scales, minima); 0 for f16 and f32. blocks <= 2,048. */
static inline size_t cf_group_head_bytes(int type, uint32_t blocks)
{
    const size_t section = cf_pad64((size_t)blocks * CF_GROUP_ROWS * 2u);
    switch (type) {
    case CFLOW_TYPE_Q4_0:
    case CFLOW_TYPE_Q8_0:
        return section;
    case CFLOW_TYPE_Q4_1:
        return 2u * section;
    default:
        return 0u;
    }
}

/* Bytes of the codes or values of one block of a group; 0 for an unknown type. */
static inline size_t cf_group_block_bytes(int type)
{
    switch (type) {
    case CFLOW_TYPE_Q4_0:
    case CFLOW_TYPE_Q4_1:
        return 256u;
    case CFLOW_TYPE_Q8_0:
        return 512u;
    case CFLOW_TYPE_F16:
        return 1024u;
    case CFLOW_TYPE_F32:
        return 2048u;
    default:
        return 0u;
    }
}

/* Bytes of a group of 16 rows and `blocks` blocks. blocks <= 2,048 (the widest tile). */
static inline size_t cf_group_bytes(int type, uint32_t blocks)
{
    return cf_group_head_bytes(type, blocks) + (size_t)blocks * cf_group_block_bytes(type);
}

/* Bytes of `blocks` blocks of one row in GGUF (q4_0, q4_1, q8_0) or plain (f16, f32) form; 0 for an unknown type. */
static inline size_t cf_row_block_bytes(int type)
{
    static const uint8_t bytes[CFLOW_TYPE_COUNT] = {128, 64, 18, 20, 34};
    return type >= 0 && type < CFLOW_TYPE_COUNT ? bytes[type] : 0u;
}

/* A matrix of `parts` fused parts in tiles, its sizes checked. */
typedef struct cf_tiles {
    int type;
    uint32_t parts;
    uint64_t rows[CF_MAX_PARTS];
    uint64_t columns;
    uint32_t tile_rows;
    uint32_t tile_cols;
    uint64_t band_bytes; /* 16 rows over all columns */
    uint64_t bytes;      /* the whole matrix */
} cf_tiles;

/* Fills *tiles_out. Errors: ARGUMENT (type, parts, zero or odd sizes), FORMAT (overflow). */
int cf_tiles_describe(int type, int parts, const uint64_t *rows, uint64_t columns, uint32_t tile_rows,
                      uint32_t tile_cols, cf_tiles *tiles_out);

/* Groups of 16 rows that `part` has in stripe i; 0 when it has no such stripe. */
uint32_t cf_tiles_groups(const cf_tiles *tiles, uint32_t part, uint64_t stripe);

/* Byte offset of stripe i from the start of the matrix. */
uint64_t cf_tiles_stripe_offset(const cf_tiles *tiles, uint64_t stripe);

/*
 * Refuses weights that do not have the size of the matrix or the alignment of tiles, sizes that would overflow scratch
 * memory, and kernels that this CPU does not run; messages begin with `function`.
 */
int cf_gemv_check(const char *function, const cf_kernel *kernel, const void *weights, uint64_t weights_bytes,
                  const cf_tiles *tiles);

#endif
