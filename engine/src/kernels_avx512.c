/* kernels_avx512.c - kernels for AVX-512 F, BW, VL and DQ. */
#if defined(__x86_64__)

#include "avx512_inline.h"

/* ---- q8 activations: exact integer dot products ------------------------------------------------------------------ */

/* 16-bit pairs: at most 8 * 2 * 15 * 127 = 30,480 in a block. */
CF_INLINE __m512i q4q8_mac(__m512i sum, __m512i w, __m512i x, uint32_t substep)
{
    return _mm512_add_epi16(sum, _mm512_maddubs_epi16(nibbles(w, substep), x));
}

CF_INLINE __m512i widen_pairs(__m512i sum)
{
    return _mm512_madd_epi16(sum, _mm512_set1_epi16(1));
}

/* |w| * (x with w's sign): a pair of products is at most 2 * 128 * 127 = 32,512 and does not saturate. */
CF_INLINE __m512i q8q8_mac(__m512i sum, __m512i w, __m512i x)
{
    const __m512i signed_x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
    return _mm512_add_epi32(sum, widen_pairs(_mm512_maddubs_epi16(_mm512_abs_epi8(w), signed_x)));
}

CF_INLINE cf_terms q8_0q8_terms(const cf_act *x, uint32_t block)
{
    return (cf_terms){.scale = _mm512_set1_ps(ACT_SCALE(x, block))};
}

CF_INLINE __m512 q4_0q8_finish(__m512 y, const __m512i *sums, const uint8_t *scales, const uint8_t *minima,
                               const cf_terms *terms)
{
    (void)minima;
    return scaled_sum(y, _mm512_sub_epi32(widen_pairs(sums[0]), terms->zero), scales, terms);
}

CF_INLINE __m512 q4_1q8_finish(__m512 y, const __m512i *sums, const uint8_t *scales, const uint8_t *minima,
                               const cf_terms *terms)
{
    const __m512 acc = scaled_sum(y, widen_pairs(sums[0]), scales, terms);
    return _mm512_fmadd_ps(HEAD_HALVES(minima), terms->offset, acc);
}

CF_INLINE __m512 q8_0q8_finish(__m512 y, const __m512i *sums, const uint8_t *scales, const uint8_t *minima,
                               const cf_terms *terms)
{
    (void)minima;
    return scaled_sum(y, sums[0], scales, terms);
}

#define CF_KERNEL q4_0q8
#define CF_TYPE CFLOW_TYPE_Q4_0
#define CF_PASSES 1u
#define CF_STEPS 4u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 2u
#define CF_CHAINS 1u
#define cf_sums __m512i
#define cf_weights __m512i
#define cf_activation __m512i
#define CF_ZERO_SUMS _mm512_setzero_si512()
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_CODES
#define CF_MAC q4q8_mac
#define CF_TERMS q4_0q8_terms
#define CF_FINISH q4_0q8_finish
#include "gemm_tile.inl"
#include "gemv_tile.inl"
#include "tile_end.inl"

#define CF_KERNEL q4_1q8
#define CF_TYPE CFLOW_TYPE_Q4_1
#define CF_PASSES 1u
#define CF_STEPS 4u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 2u
#define CF_CHAINS 1u
#define cf_sums __m512i
#define cf_weights __m512i
#define cf_activation __m512i
#define CF_ZERO_SUMS _mm512_setzero_si512()
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_CODES
#define CF_MAC q4q8_mac
#define CF_TERMS q4_1q8_terms
#define CF_FINISH q4_1q8_finish
#include "gemm_tile.inl"
#include "gemv_tile.inl"
#include "tile_end.inl"

#define CF_KERNEL q8_0q8
#define CF_TYPE CFLOW_TYPE_Q8_0
#define CF_PASSES 1u
#define CF_STEPS 8u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 1u
#define CF_CHAINS 1u
#define cf_sums __m512i
#define cf_weights __m512i
#define cf_activation __m512i
#define CF_ZERO_SUMS _mm512_setzero_si512()
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_CODES
#define CF_MAC(sum, w, x, substep) q8q8_mac(sum, w, x)
#define CF_TERMS q8_0q8_terms
#define CF_FINISH q8_0q8_finish
#include "gemm_tile.inl"
#include "gemv_tile.inl"
#include "tile_end.inl"

/* ---- f32 activations --------------------------------------------------------------------------------------------- */

/* Nibble i of the word holds column i/2 of the low four (i even) or of the high four (i odd) of its eight columns. */
#define ACT_NIBBLE(x, b, i) ACT_F32(x, b, ((i) & ~7u) + (((i) & 7u) >> 1) + 4u * ((i) & 1u))

CF_INLINE __m512i shift_to_low(__m512i w, uint32_t bits)
{
    return bits == 0 ? w : _mm512_srlv_epi32(w, _mm512_set1_epi32((int32_t)bits));
}

/* The permutation looks at the low four bits of each lane only, so it converts, centres and masks at once. */
CF_INLINE __m512 centred_code(__m512i w)
{
    const __m512 table = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    return _mm512_permutexvar_ps(w, table);
}

CF_INLINE __m512 plain_code(__m512i w)
{
    const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_permutexvar_ps(w, table);
}

CF_INLINE __m512 q4_0f32_mac(__m512 sum, __m512i w, __m512 x, uint32_t nibble)
{
    return _mm512_fmadd_ps(centred_code(shift_to_low(w, 4u * nibble)), x, sum);
}

CF_INLINE __m512 q4_1f32_mac(__m512 sum, __m512i w, __m512 x, uint32_t nibble)
{
    return _mm512_fmadd_ps(plain_code(shift_to_low(w, 4u * nibble)), x, sum);
}

/* Signed byte number `byte` of each word. */
CF_INLINE __m512 q8f32_mac(__m512 sum, __m512i w, __m512 x, uint32_t byte)
{
    const __m512i top = byte < 3 ? _mm512_sllv_epi32(w, _mm512_set1_epi32((int32_t)(24u - 8u * byte))) : w;
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(top, 24)), x, sum);
}

CF_INLINE cf_terms no_terms(const cf_act *x, uint32_t block)
{
    (void)x;
    (void)block;
    return (cf_terms){.scale = _mm512_setzero_ps()};
}

CF_INLINE cf_terms q4_1f32_terms(const cf_act *x, uint32_t block)
{
    return (cf_terms){.offset = CF_LOAD_ACT(broadcast_float, x->f32_sums + block, 4)};
}

CF_INLINE __m512 sum_chains(const __m512 *sums)
{
    return _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
}

CF_INLINE __m512 scaled_finish(__m512 y, const __m512 *sums, const uint8_t *scales, const uint8_t *minima,
                               const cf_terms *terms)
{
    (void)minima;
    (void)terms;
    return _mm512_fmadd_ps(sum_chains(sums), HEAD_HALVES(scales), y);
}

CF_INLINE __m512 q4_1f32_finish(__m512 y, const __m512 *sums, const uint8_t *scales, const uint8_t *minima,
                                const cf_terms *terms)
{
    const __m512 acc = _mm512_fmadd_ps(sum_chains(sums), HEAD_HALVES(scales), y);
    return _mm512_fmadd_ps(HEAD_HALVES(minima), terms->offset, acc);
}

#define CF_KERNEL q4_0f32
#define CF_TYPE CFLOW_TYPE_Q4_0
#define CF_PASSES 4u
#define CF_STEPS 1u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 8u
#define CF_CHAINS 4u
#define cf_sums __m512
#define cf_weights __m512i
#define cf_activation __m512
#define CF_ZERO_SUMS _mm512_setzero_ps()
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_NIBBLE
#define CF_MAC q4_0f32_mac
#define CF_TERMS no_terms
#define CF_FINISH scaled_finish
#include "gemm_tile.inl"
#include "gemv_tile.inl"
#include "tile_end.inl"

#define CF_KERNEL q4_1f32
#define CF_TYPE CFLOW_TYPE_Q4_1
#define CF_PASSES 4u
#define CF_STEPS 1u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 8u
#define CF_CHAINS 4u
#define cf_sums __m512
#define cf_weights __m512i
#define cf_activation __m512
#define CF_ZERO_SUMS _mm512_setzero_ps()
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_NIBBLE
#define CF_MAC q4_1f32_mac
#define CF_TERMS q4_1f32_terms
#define CF_FINISH q4_1f32_finish
#include "gemm_tile.inl"
#include "gemv_tile.inl"
#include "tile_end.inl"

#define CF_KERNEL q8_0f32
#define CF_TYPE CFLOW_TYPE_Q8_0
#define CF_PASSES 4u
#define CF_STEPS 2u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 4u
#define CF_CHAINS 4u
#define cf_sums __m512
#define cf_weights __m512i
#define cf_activation __m512
#define CF_ZERO_SUMS _mm512_setzero_ps()
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_F32
#define CF_MAC q8f32_mac
#define CF_TERMS no_terms
#define CF_FINISH scaled_finish
#include "gemm_tile.inl"
#include "gemv_tile.inl"
#include "tile_end.inl"

/* ---- row-major q4_0, f32 activations ------------------------------------------------------------------------------ */

typedef struct row_act_f32 {
    __m512 x[2]; /* columns 0..15, 16..31 of the block */
} row_act_f32;

CF_INLINE row_act_f32 load_row_act_f32(const cf_act *x, uint32_t block)
{
    const float *const column = x->f32 + (size_t)block * CF_BLOCK;
    return (row_act_f32){
        .x = {CF_LOAD_ACT(_mm512_loadu_ps, column, 64), CF_LOAD_ACT(_mm512_loadu_ps, column + 16, 64)}};
}

/* The 16 code bytes of a GGUF block, one per lane: low nibbles are columns 0..15, high nibbles 16..31. */
CF_INLINE __m512i load_row_codes(const uint8_t *pointer)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)pointer));
}

CF_INLINE __m512 load_row_scale(const uint8_t *pointer)
{
    uint16_t half;
    memcpy(&half, pointer, sizeof half);
    return _mm512_set1_ps(_mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half))));
}

CF_INLINE __m512 row_block_f32(__m512 sum, const uint8_t *block, const row_act_f32 *act)
{
    const __m512i bytes = CF_LOAD_WEIGHT(load_row_codes, block + 2, 16);
    const __m512 low = _mm512_mul_ps(centred_code(bytes), act->x[0]);
    const __m512 both = _mm512_fmadd_ps(centred_code(shift_to_low(bytes, 4)), act->x[1], low);
    return _mm512_fmadd_ps(both, CF_LOAD_SCALE(load_row_scale, block, 2), sum);
}

CF_INLINE float row_total(__m512 sum)
{
    const __m256 high = _mm256_castsi256_ps(_mm512_extracti64x4_epi64(_mm512_castps_si512(sum), 1));
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sum), high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#define CF_ROWS_KERNEL q4_0f32_rows
#define cf_row_sum __m512
#define cf_row_act row_act_f32
#define CF_ROW_ZERO _mm512_setzero_ps()
#define CF_ROW_ACT load_row_act_f32
#define CF_ROW_BLOCK row_block_f32
#define CF_ROW_TOTAL row_total
#include "gemv_rows.inl"

/* ---- table -------------------------------------------------------------------------------------------------------- */

static const cf_kernel kernels[] = {
    CF_TILE_ENTRY(Q4_0, q4_0, 1, q8, AVX512, avx512, CF_NEED_Q8),
    CF_GEMM_ENTRY(Q4_0, q4_0, 1, q8, AVX512, avx512, CF_NEED_Q8),
    CF_TILE_ENTRY(Q4_1, q4_1, 1, q8, AVX512, avx512, CF_NEED_Q8),
    CF_GEMM_ENTRY(Q4_1, q4_1, 1, q8, AVX512, avx512, CF_NEED_Q8),
    CF_TILE_ENTRY(Q8_0, q8_0, 1, q8, AVX512, avx512, CF_NEED_Q8),
    CF_GEMM_ENTRY(Q8_0, q8_0, 1, q8, AVX512, avx512, CF_NEED_Q8),
    CF_TILE_ENTRY(Q4_0, q4_0, 0, f32, AVX512, avx512, CF_NEED_F32),
    CF_GEMM_ENTRY(Q4_0, q4_0, 0, f32, AVX512, avx512, CF_NEED_F32),
    CF_TILE_ENTRY(Q4_1, q4_1, 0, f32, AVX512, avx512, CF_NEED_F32 | CF_NEED_F32_SUMS),
    CF_GEMM_ENTRY(Q4_1, q4_1, 0, f32, AVX512, avx512, CF_NEED_F32 | CF_NEED_F32_SUMS),
    CF_TILE_ENTRY(Q8_0, q8_0, 0, f32, AVX512, avx512, CF_NEED_F32),
    CF_GEMM_ENTRY(Q8_0, q8_0, 0, f32, AVX512, avx512, CF_NEED_F32),
    CF_ROWS_ENTRIES(0, f32, AVX512, avx512, CF_NEED_F32),
};

const cf_kernel_list cf_kernels_avx512 = {kernels, sizeof kernels / sizeof kernels[0]};

#endif
