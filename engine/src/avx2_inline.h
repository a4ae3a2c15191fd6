/*
 * avx2_inline.h - loads, multiply-adds and per-block terms of the AVX2 kernels: 16 rows are two vectors of 8 lanes, one
 * row per 32-bit lane.
 */
#ifndef CF_AVX2_INLINE_H
#define CF_AVX2_INLINE_H

#include "kernel_inline.h"
#include "simd_x86.h"

#define CF_VECTORS 2u
#define CF_ACT_SPAN 1u
#define CF_ACT_PICK(loaded, k) (loaded)

typedef __m256 cf_floats;

/* Per-block terms of the activations, in all lanes; a kernel sets those it uses. */
typedef struct cf_terms {
    __m256 scale;  /* scale of the q8 block */
    __m256 offset; /* factor of the minima, or the share of q4_0's zero point (f32 activations) */
    __m256i zero;  /* share of q4_0's zero point in the integer dot product */
} cf_terms;

CF_INLINE __m256 cf_load_floats(const float *pointer)
{
    return _mm256_loadu_ps(pointer);
}

CF_INLINE void cf_store_floats(float *pointer, __m256 value)
{
    _mm256_storeu_ps(pointer, value);
}

CF_INLINE __m256i load_codes(const uint8_t *pointer)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)pointer);
}

CF_INLINE __m256 load_halves(const uint8_t *pointer)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)pointer));
}

CF_INLINE __m256 load_f32_weights(const uint8_t *pointer)
{
    return _mm256_loadu_ps((const float *)(const void *)pointer);
}

/* Four q8 codes in each lane. */
CF_INLINE __m256i broadcast_codes(const int8_t *pointer)
{
    int32_t word;
    memcpy(&word, pointer, sizeof word);
    return _mm256_set1_epi32(word);
}

CF_INLINE __m256i broadcast_int(const int32_t *pointer)
{
    return _mm256_set1_epi32(*pointer);
}

CF_INLINE __m256 broadcast_float(const float *pointer)
{
    return _mm256_broadcast_ss(pointer);
}

#define ACT_CODES(x, b, i) CF_LOAD_ACT(broadcast_codes, (x)->codes + (size_t)(b) * CF_BLOCK + 4u * (i), 4)
#define ACT_SCALE(x, b) CF_LOAD_ACT(broadcast_float, (x)->scales + (b), 4)
#define ACT_SUM(x, b) CF_LOAD_ACT(broadcast_int, (x)->sums + (b), 4)
#define ACT_F32(x, b, i) CF_LOAD_ACT(broadcast_float, (x)->f32 + (size_t)(b) * CF_BLOCK + (i), 4)
#define ACT_F32_SCALED(x, b, i) CF_LOAD_ACT(broadcast_float, (x)->f32_scaled + (size_t)(b) * CF_BLOCK + (i), 4)
#define ACT_F32_SUM(x, b) CF_LOAD_ACT(broadcast_float, (x)->f32_sums + (b), 4)
#define HEAD_HALVES(pointer) CF_LOAD_SCALE(load_halves, pointer, 16)

/* ---- q8 activations: exact integer dot products ------------------------------------------------------------------ */

/*
 * Pairs of products in 16 bits: each call adds at most 2 * 15 * 127 = 3,810, so the 8 calls of a block reach 30,480 and
 * need no widening between them.
 */
CF_INLINE __m256i q4q8_mac(__m256i sum, __m256i w, __m256i x, uint32_t substep)
{
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i code = _mm256_and_si256(substep == 0 ? w : _mm256_srli_epi16(w, 4), low);
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(code, x));
}

/* |w| is 0..128 as an unsigned byte, so a pair of products is at most 2 * 128 * 127 = 32,512 and does not saturate. */
CF_INLINE __m256i q8q8_mac(__m256i sum, __m256i w, __m256i x)
{
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

CF_INLINE cf_terms q4_0q8_terms(const cf_act *x, uint32_t block)
{
    return (cf_terms){.scale = ACT_SCALE(x, block), .zero = _mm256_slli_epi32(ACT_SUM(x, block), 3)};
}

CF_INLINE cf_terms q4_1q8_terms(const cf_act *x, uint32_t block)
{
    const __m256 scale = ACT_SCALE(x, block);
    return (cf_terms){.scale = scale, .offset = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(ACT_SUM(x, block)))};
}

CF_INLINE cf_terms q8_0q8_terms(const cf_act *x, uint32_t block)
{
    return (cf_terms){.scale = ACT_SCALE(x, block)};
}

CF_INLINE __m256 scaled_sum(__m256 y, __m256i sum, const uint8_t *scales, const cf_terms *terms)
{
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(HEAD_HALVES(scales), terms->scale), y);
}

CF_INLINE __m256i widen_pairs(__m256i sum)
{
    return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
}

CF_INLINE __m256 q4_0q8_finish(__m256 y, const __m256i *sums, const uint8_t *scales, const uint8_t *minima,
                               const cf_terms *terms)
{
    (void)minima;
    return scaled_sum(y, _mm256_sub_epi32(widen_pairs(sums[0]), terms->zero), scales, terms);
}

CF_INLINE __m256 q4_1q8_finish(__m256 y, const __m256i *sums, const uint8_t *scales, const uint8_t *minima,
                               const cf_terms *terms)
{
    const __m256 acc = scaled_sum(y, widen_pairs(sums[0]), scales, terms);
    return _mm256_fmadd_ps(HEAD_HALVES(minima), terms->offset, acc);
}

CF_INLINE __m256 q8_0q8_finish(__m256 y, const __m256i *sums, const uint8_t *scales, const uint8_t *minima,
                               const cf_terms *terms)
{
    (void)minima;
    return scaled_sum(y, sums[0], scales, terms);
}

/* ---- f32 activations --------------------------------------------------------------------------------------------- */

/*
 * Nibble i of the word is converted where it lies, as q * 2^(4i), and the activation carries 2^(-4i). The top nibble
 * would come out negative, so it alone is shifted.
 */
CF_INLINE __m256 q4f32_mac(__m256 sum, __m256i w, __m256 x, uint32_t nibble)
{
    const __m256i code =
        nibble < 7 ? _mm256_and_si256(w, _mm256_set1_epi32((int32_t)(15u << (4u * nibble)))) : _mm256_srli_epi32(w, 28);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(code), x, sum);
}

/* Signed byte number `byte` of each word. */
CF_INLINE __m256 q8f32_mac(__m256 sum, __m256i w, __m256 x, uint32_t byte)
{
    const __m256i top = byte < 3 ? _mm256_slli_epi32(w, (int)(24u - 8u * byte)) : w;
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(top, 24)), x, sum);
}

CF_INLINE cf_terms q4_0f32_terms(const cf_act *x, uint32_t block)
{
    return (cf_terms){.offset = _mm256_mul_ps(ACT_F32_SUM(x, block), _mm256_set1_ps(8.0f))};
}

CF_INLINE cf_terms q4_1f32_terms(const cf_act *x, uint32_t block)
{
    return (cf_terms){.offset = ACT_F32_SUM(x, block)};
}

CF_INLINE __m256 q4_0f32_finish(__m256 y, const __m256 *sums, const uint8_t *scales, const uint8_t *minima,
                                const cf_terms *terms)
{
    (void)minima;
    const __m256 dot = _mm256_sub_ps(_mm256_add_ps(sums[0], sums[1]), terms->offset);
    return _mm256_fmadd_ps(dot, HEAD_HALVES(scales), y);
}

CF_INLINE __m256 q4_1f32_finish(__m256 y, const __m256 *sums, const uint8_t *scales, const uint8_t *minima,
                                const cf_terms *terms)
{
    const __m256 acc = _mm256_fmadd_ps(_mm256_add_ps(sums[0], sums[1]), HEAD_HALVES(scales), y);
    return _mm256_fmadd_ps(HEAD_HALVES(minima), terms->offset, acc);
}

CF_INLINE cf_terms no_terms(const cf_act *x, uint32_t block)
{
    (void)x;
    (void)block;
    return (cf_terms){.scale = _mm256_setzero_ps()};
}

CF_INLINE __m256 q8_0f32_finish(__m256 y, const __m256 *sums, const uint8_t *scales, const uint8_t *minima,
                                const cf_terms *terms)
{
    (void)minima;
    (void)terms;
    return _mm256_fmadd_ps(_mm256_add_ps(sums[0], sums[1]), HEAD_HALVES(scales), y);
}

CF_INLINE __m256 float_finish(__m256 y, const __m256 *sums, const uint8_t *scales, const uint8_t *minima,
                              const cf_terms *terms)
{
    (void)scales;
    (void)minima;
    (void)terms;
    return _mm256_add_ps(y, _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
}

#endif
