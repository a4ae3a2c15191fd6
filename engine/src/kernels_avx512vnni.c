/*
 * kernels_avx512vnni.c - q8 kernels for AVX-512 VNNI: one instruction multiplies four unsigned by four signed bytes per
 * lane and adds them to 32 bits, without saturation.
 */
#if defined(__x86_64__)

#include "avx512_inline.h"

CF_INLINE __m512i q4q8_mac(__m512i sum, __m512i w, __m512i x, uint32_t substep)
{
    return _mm512_dpbusd_epi32(sum, nibbles(w, substep), x);
}

/* The first operand is unsigned: code + 128, which is the code with its top bit flipped, and 128 * sum comes off later. */
CF_INLINE __m512i q8q8_mac(__m512i sum, __m512i w, __m512i x)
{
    return _mm512_dpbusd_epi32(sum, _mm512_xor_si512(w, _mm512_set1_epi8((char)-128)), x);
}

CF_INLINE cf_terms q8_0q8_terms(const cf_act *x, uint32_t block)
{
    return (cf_terms){.scale = _mm512_set1_ps(ACT_SCALE(x, block)), .zero = _mm512_set1_epi32(128 * ACT_SUM(x, block))};
}

CF_INLINE __m512 centred_finish(__m512 y, const __m512i *sums, const uint8_t *scales, const uint8_t *minima,
                                const cf_terms *terms)
{
    (void)minima;
    return scaled_sum(y, _mm512_sub_epi32(_mm512_add_epi32(sums[0], sums[1]), terms->zero), scales, terms);
}

CF_INLINE __m512 q4_1q8_finish(__m512 y, const __m512i *sums, const uint8_t *scales, const uint8_t *minima,
                               const cf_terms *terms)
{
    const __m512 acc = scaled_sum(y, _mm512_add_epi32(sums[0], sums[1]), scales, terms);
    return _mm512_fmadd_ps(HEAD_HALVES(minima), terms->offset, acc);
}

#define CF_KERNEL q4_0q8
#define CF_TYPE CFLOW_TYPE_Q4_0
#define CF_PASSES 1u
#define CF_STEPS 4u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 2u
#define CF_CHAINS 2u
#define cf_sums __m512i
#define cf_weights __m512i
#define cf_activation __m512i
#define CF_ZERO_SUMS _mm512_setzero_si512()
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_CODES
#define CF_MAC q4q8_mac
#define CF_TERMS q4_0q8_terms
#define CF_FINISH centred_finish
#include "gemm_tile.inl"
#include "gemv_tile.inl"
#include "tile_end.inl"

#define CF_KERNEL q4_1q8
#define CF_TYPE CFLOW_TYPE_Q4_1
#define CF_PASSES 1u
#define CF_STEPS 4u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 2u
#define CF_CHAINS 2u
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
#define CF_CHAINS 2u
#define cf_sums __m512i
#define cf_weights __m512i
#define cf_activation __m512i
#define CF_ZERO_SUMS _mm512_setzero_si512()
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_CODES
#define CF_MAC(sum, w, x, substep) q8q8_mac(sum, w, x)
#define CF_TERMS q8_0q8_terms
#define CF_FINISH centred_finish
#include "gemm_tile.inl"
#include "gemv_tile.inl"
#include "tile_end.inl"

/* ---- row-major q4_0 ----------------------------------------------------------------------------------------------- */

typedef struct row_act_q8 {
    __m256i codes;
    __m256i zero; /* -8 * sum of codes in lane 0: the zero point of all 32 columns */
    __m256 scale;
} row_act_q8;

CF_INLINE __m256i load_act_codes(const int8_t *pointer)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)pointer);
}

CF_INLINE row_act_q8 load_row_act_q8(const cf_act *x, uint32_t block)
{
    return (row_act_q8){
        .codes = CF_LOAD_ACT(load_act_codes, x->codes + (size_t)block * CF_BLOCK, 32),
        .zero = _mm256_setr_epi32(-8 * ACT_SUM(x, block), 0, 0, 0, 0, 0, 0, 0),
        .scale = _mm256_set1_ps(ACT_SCALE(x, block)),
    };
}

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

CF_INLINE __m256 row_block_q8(__m256 sum, const uint8_t *block, const row_act_q8 *act)
{
    const __m128i bytes = CF_LOAD_WEIGHT(load_row_codes, block + 2, 16);
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1);
    const __m256i codes = _mm256_and_si256(both, _mm256_set1_epi8(15));
    const __m256i dot = _mm256_dpbusd_epi32(act->zero, codes, act->codes);
    const __m256 scale = _mm256_mul_ps(CF_LOAD_SCALE(load_row_scale, block, 2), act->scale);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, sum);
}

CF_INLINE float row_total(__m256 sum)
{
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#define CF_ROWS_KERNEL q4_0q8_rows
#define cf_row_sum __m256
#define cf_row_act row_act_q8
#define CF_ROW_ZERO _mm256_setzero_ps()
#define CF_ROW_ACT load_row_act_q8
#define CF_ROW_BLOCK row_block_q8
#define CF_ROW_TOTAL row_total
#include "gemv_rows.inl"

/* ---- table -------------------------------------------------------------------------------------------------------- */

static const cf_kernel kernels[] = {
    CF_TILE_ENTRY(Q4_0, q4_0, 1, q8, AVX512VNNI, avx512vnni, CF_NEED_Q8),
    CF_GEMM_ENTRY(Q4_0, q4_0, 1, q8, AVX512VNNI, avx512vnni, CF_NEED_Q8),
    CF_TILE_ENTRY(Q4_1, q4_1, 1, q8, AVX512VNNI, avx512vnni, CF_NEED_Q8),
    CF_GEMM_ENTRY(Q4_1, q4_1, 1, q8, AVX512VNNI, avx512vnni, CF_NEED_Q8),
    CF_TILE_ENTRY(Q8_0, q8_0, 1, q8, AVX512VNNI, avx512vnni, CF_NEED_Q8),
    CF_GEMM_ENTRY(Q8_0, q8_0, 1, q8, AVX512VNNI, avx512vnni, CF_NEED_Q8),
    CF_ROWS_ENTRIES(1, q8, AVX512VNNI, avx512vnni, CF_NEED_Q8),
};

const cf_kernel_list cf_kernels_avx512vnni = {kernels, sizeof kernels / sizeof kernels[0]};

#endif
