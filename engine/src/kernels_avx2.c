/* kernels_avx2.c - matrix-vector kernels for AVX2, FMA and F16C. */
#if defined(__x86_64__)

#include "avx2_inline.h"

/* ---- q8 activations: exact integer dot products ------------------------------------------------------------------ */

#define CF_KERNEL q4_0q8
#define CF_TYPE CFLOW_TYPE_Q4_0
#define CF_PASSES 1u
#define CF_STEPS 4u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 2u
#define CF_CHAINS 1u
#define cf_sums __m256i
#define cf_weights __m256i
#define cf_activation __m256i
#define CF_ZERO_SUMS _mm256_setzero_si256()
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
#define cf_sums __m256i
#define cf_weights __m256i
#define cf_activation __m256i
#define CF_ZERO_SUMS _mm256_setzero_si256()
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
#define cf_sums __m256i
#define cf_weights __m256i
#define cf_activation __m256i
#define CF_ZERO_SUMS _mm256_setzero_si256()
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_CODES
#define CF_MAC(sum, w, x, substep) q8q8_mac(sum, w, x)
#define CF_TERMS q8_0q8_terms
#define CF_FINISH q8_0q8_finish
#include "gemm_tile.inl"
#include "gemv_tile.inl"
#include "tile_end.inl"

/* ---- f32 activations --------------------------------------------------------------------------------------------- */

#define CF_KERNEL q4_0f32
#define CF_TYPE CFLOW_TYPE_Q4_0
#define CF_PASSES 4u
#define CF_STEPS 1u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 8u
#define CF_CHAINS 2u
#define cf_sums __m256
#define cf_weights __m256i
#define cf_activation __m256
#define CF_ZERO_SUMS _mm256_setzero_ps()
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_F32_SCALED
#define CF_MAC q4f32_mac
#define CF_TERMS q4_0f32_terms
#define CF_FINISH q4_0f32_finish
#include "gemv_tile.inl"
#include "tile_end.inl"

#define CF_KERNEL q4_1f32
#define CF_TYPE CFLOW_TYPE_Q4_1
#define CF_PASSES 4u
#define CF_STEPS 1u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 8u
#define CF_CHAINS 2u
#define cf_sums __m256
#define cf_weights __m256i
#define cf_activation __m256
#define CF_ZERO_SUMS _mm256_setzero_ps()
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_F32_SCALED
#define CF_MAC q4f32_mac
#define CF_TERMS q4_1f32_terms
#define CF_FINISH q4_1f32_finish
#include "gemv_tile.inl"
#include "tile_end.inl"

#define CF_KERNEL q8_0f32
#define CF_TYPE CFLOW_TYPE_Q8_0
#define CF_PASSES 4u
#define CF_STEPS 2u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 4u
#define CF_CHAINS 2u
#define cf_sums __m256
#define cf_weights __m256i
#define cf_activation __m256
#define CF_ZERO_SUMS _mm256_setzero_ps()
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_F32
#define CF_MAC q8f32_mac
#define CF_TERMS no_terms
#define CF_FINISH q8_0f32_finish
#include "gemv_tile.inl"
#include "tile_end.inl"

#define CF_KERNEL f16f32
#define CF_TYPE CFLOW_TYPE_F16
#define CF_PASSES 8u
#define CF_STEPS 4u
#define CF_STEP_BYTES 32u
#define CF_SUBSTEPS 1u
#define CF_CHAINS 4u
#define cf_sums __m256
#define cf_weights __m256
#define cf_activation __m256
#define CF_ZERO_SUMS _mm256_setzero_ps()
#define CF_WEIGHT_LOAD load_halves
#define CF_ACT_LOAD ACT_F32
#define CF_MAC(sum, w, x, substep) _mm256_fmadd_ps(w, x, sum)
#define CF_TERMS no_terms
#define CF_FINISH float_finish
#include "gemv_tile.inl"
#include "tile_end.inl"

#define CF_KERNEL f32f32
#define CF_TYPE CFLOW_TYPE_F32
#define CF_PASSES 8u
#define CF_STEPS 4u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 1u
#define CF_CHAINS 4u
#define cf_sums __m256
#define cf_weights __m256
#define cf_activation __m256
#define CF_ZERO_SUMS _mm256_setzero_ps()
#define CF_WEIGHT_LOAD load_f32_weights
#define CF_ACT_LOAD ACT_F32
#define CF_MAC(sum, w, x, substep) _mm256_fmadd_ps(w, x, sum)
#define CF_TERMS no_terms
#define CF_FINISH float_finish
#include "gemv_tile.inl"
#include "tile_end.inl"

/* ---- row-major q4_0 ----------------------------------------------------------------------------------------------- */

/* The 16 code bytes of a GGUF block: low nibbles are columns 0..15, high nibbles 16..31. */
CF_INLINE __m128i load_row_codes(const uint8_t *pointer)
{
    return _mm_loadu_si128((const __m128i *)(const void *)pointer);
}

CF_INLINE __m256 load_row_scale(const uint8_t *pointer)
{
    uint16_t half;
    memcpy(&half, pointer, sizeof half);
    return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

CF_INLINE float row_total(__m256 sum)
{
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

typedef struct row_act_q8 {
    __m256i codes;
    __m256i zero; /* 8 * sum of codes in lane 0: the zero point of all 32 columns */
    __m256 scale;
} row_act_q8;

CF_INLINE __m256i load_act_codes(const int8_t *pointer)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)pointer);
}

CF_INLINE __m256i load_act_zero(const int32_t *pointer)
{
    return _mm256_setr_epi32(*pointer * 8, 0, 0, 0, 0, 0, 0, 0);
}

CF_INLINE row_act_q8 load_row_act_q8(const cf_act *x, uint32_t block)
{
    return (row_act_q8){
        .codes = CF_LOAD_ACT(load_act_codes, x->codes + (size_t)block * CF_BLOCK, 32),
        .zero = CF_LOAD_ACT(load_act_zero, x->sums + block, 4),
        .scale = ACT_SCALE(x, block),
    };
}

CF_INLINE __m256 row_block_q8(__m256 sum, const uint8_t *block, const row_act_q8 *act)
{
    const __m128i bytes = CF_LOAD_WEIGHT(load_row_codes, block + 2, 16);
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1);
    const __m256i codes = _mm256_and_si256(both, _mm256_set1_epi8(15));
    const __m256i dot = _mm256_sub_epi32(widen_pairs(_mm256_maddubs_epi16(codes, act->codes)), act->zero);
    const __m256 scale = _mm256_mul_ps(CF_LOAD_SCALE(load_row_scale, block, 2), act->scale);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, sum);
}

typedef struct row_act_f32 {
    __m256 x[4]; /* columns 8 i .. 8 i + 7 of the block */
} row_act_f32;

CF_INLINE __m256 load_act_floats(const float *pointer)
{
    return _mm256_loadu_ps(pointer);
}

CF_INLINE row_act_f32 load_row_act_f32(const cf_act *x, uint32_t block)
{
    const float *const column = x->f32 + (size_t)block * CF_BLOCK;
    return (row_act_f32){.x = {
                             CF_LOAD_ACT(load_act_floats, column, 32),
                             CF_LOAD_ACT(load_act_floats, column + 8, 32),
                             CF_LOAD_ACT(load_act_floats, column + 16, 32),
                             CF_LOAD_ACT(load_act_floats, column + 24, 32),
                         }};
}

/* Eight signed bytes as floats. */
CF_INLINE __m256 row_floats(__m128i bytes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

CF_INLINE __m256 row_block_f32(__m256 sum, const uint8_t *block, const row_act_f32 *act)
{
    const __m128i bytes = CF_LOAD_WEIGHT(load_row_codes, block + 2, 16);
    const __m128i low = _mm_set1_epi8(15);
    const __m128i zero_point = _mm_set1_epi8(8);
    const __m128i first = _mm_sub_epi8(_mm_and_si128(bytes, low), zero_point);
    const __m128i second = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(bytes, 4), low), zero_point);
    __m256 even = _mm256_mul_ps(row_floats(first), act->x[0]);
    __m256 odd = _mm256_mul_ps(row_floats(_mm_srli_si128(first, 8)), act->x[1]);
    even = _mm256_fmadd_ps(row_floats(second), act->x[2], even);
    odd = _mm256_fmadd_ps(row_floats(_mm_srli_si128(second, 8)), act->x[3], odd);
    return _mm256_fmadd_ps(_mm256_add_ps(even, odd), CF_LOAD_SCALE(load_row_scale, block, 2), sum);
}

#define CF_ROWS_KERNEL q4_0q8_rows
#define cf_row_sum __m256
#define cf_row_act row_act_q8
#define CF_ROW_ZERO _mm256_setzero_ps()
#define CF_ROW_ACT load_row_act_q8
#define CF_ROW_BLOCK row_block_q8
#define CF_ROW_TOTAL row_total
#include "gemv_rows.inl"

#define CF_ROWS_KERNEL q4_0f32_rows
#define cf_row_sum __m256
#define cf_row_act row_act_f32
#define CF_ROW_ZERO _mm256_setzero_ps()
#define CF_ROW_ACT load_row_act_f32
#define CF_ROW_BLOCK row_block_f32
#define CF_ROW_TOTAL row_total
#include "gemv_rows.inl"

/* ---- table -------------------------------------------------------------------------------------------------------- */

#define NEED_NIBBLES (CF_NEED_F32_SCALED | CF_NEED_F32_SUMS)

static const cf_kernel kernels[] = {
    CF_TILE_ENTRY(Q4_0, q4_0, 1, q8, AVX2, avx2, CF_NEED_Q8),
    CF_GEMM_ENTRY(Q4_0, q4_0, 1, q8, AVX2, avx2, CF_NEED_Q8),
    CF_TILE_ENTRY(Q4_1, q4_1, 1, q8, AVX2, avx2, CF_NEED_Q8),
    CF_GEMM_ENTRY(Q4_1, q4_1, 1, q8, AVX2, avx2, CF_NEED_Q8),
    CF_TILE_ENTRY(Q8_0, q8_0, 1, q8, AVX2, avx2, CF_NEED_Q8),
    CF_GEMM_ENTRY(Q8_0, q8_0, 1, q8, AVX2, avx2, CF_NEED_Q8),
    CF_TILE_ENTRY(Q4_0, q4_0, 0, f32, AVX2, avx2, NEED_NIBBLES),
    CF_TILE_ENTRY(Q4_1, q4_1, 0, f32, AVX2, avx2, NEED_NIBBLES),
    CF_TILE_ENTRY(Q8_0, q8_0, 0, f32, AVX2, avx2, CF_NEED_F32),
    CF_TILE_ENTRY(F16, f16, 0, f32, AVX2, avx2, CF_NEED_F32),
    CF_TILE_ENTRY(F32, f32, 0, f32, AVX2, avx2, CF_NEED_F32),
    CF_ROWS_ENTRIES(1, q8, AVX2, avx2, CF_NEED_Q8),
    CF_ROWS_ENTRIES(0, f32, AVX2, avx2, CF_NEED_F32),
};

const cf_kernel_list cf_kernels_avx2 = {kernels, sizeof kernels / sizeof kernels[0]};

#endif
