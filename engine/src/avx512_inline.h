/* avx512_inline.h - loads and per-block terms of the AVX-512 kernels: 16 rows are one vector, one row per 32-bit lane. */
#ifndef CF_AVX512_INLINE_H
#define CF_AVX512_INLINE_H

#include "kernel_inline.h"
#include "simd_x86.h"

#define CF_VECTORS 1u
#define CF_ACT_SPAN 1u
#define CF_ACT_PICK(loaded, k) (loaded)

typedef __m512 cf_floats;

/* Per-block terms of the activations, in all lanes; a kernel sets those it uses. */
typedef struct cf_terms {
    __m512 scale;  /* scale of the q8 block */
    __m512 offset; /* factor of the minima */
    __m512i zero;  /* what the integer dot product holds too much */
} cf_terms;

CF_INLINE __m512 cf_load_floats(const float *pointer)
{
    return _mm512_loadu_ps(pointer);
}

CF_INLINE void cf_store_floats(float *pointer, __m512 value)
{
    _mm512_storeu_ps(pointer, value);
}

CF_INLINE __m512i load_codes(const uint8_t *pointer)
{
    return _mm512_loadu_si512((const void *)pointer);
}

CF_INLINE __m512 load_halves(const uint8_t *pointer)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)pointer));
}

/* Four q8 codes in each lane. */
CF_INLINE __m512i broadcast_codes(const int8_t *pointer)
{
    int32_t word;
    memcpy(&word, pointer, sizeof word);
    return _mm512_set1_epi32(word);
}

CF_INLINE int32_t load_int(const int32_t *pointer)
{
    return *pointer;
}

CF_INLINE float load_float(const float *pointer)
{
    return *pointer;
}

CF_INLINE __m512 broadcast_float(const float *pointer)
{
    return _mm512_set1_ps(*pointer);
}

#define ACT_CODES(x, b, i) CF_LOAD_ACT(broadcast_codes, (x)->codes + (size_t)(b) * CF_BLOCK + 4u * (i), 4)
#define ACT_SCALE(x, b) CF_LOAD_ACT(load_float, (x)->scales + (b), 4)
#define ACT_SUM(x, b) CF_LOAD_ACT(load_int, (x)->sums + (b), 4)
#define ACT_F32(x, b, i) CF_LOAD_ACT(broadcast_float, (x)->f32 + (size_t)(b) * CF_BLOCK + (i), 4)
#define HEAD_HALVES(pointer) CF_LOAD_SCALE(load_halves, pointer, 32)

CF_INLINE cf_terms q4_0q8_terms(const cf_act *x, uint32_t block)
{
    return (cf_terms){.scale = _mm512_set1_ps(ACT_SCALE(x, block)), .zero = _mm512_set1_epi32(8 * ACT_SUM(x, block))};
}

CF_INLINE cf_terms q4_1q8_terms(const cf_act *x, uint32_t block)
{
    const float scale = ACT_SCALE(x, block);
    return (cf_terms){.scale = _mm512_set1_ps(scale), .offset = _mm512_set1_ps(scale * (float)ACT_SUM(x, block))};
}

CF_INLINE __m512 scaled_sum(__m512 y, __m512i sum, const uint8_t *scales, const cf_terms *terms)
{
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(HEAD_HALVES(scales), terms->scale), y);
}

/* The nibbles of substep 0 (low) or 1 (high) as bytes. */
CF_INLINE __m512i nibbles(__m512i w, uint32_t substep)
{
    return _mm512_and_si512(substep == 0 ? w : _mm512_srli_epi16(w, 4), _mm512_set1_epi8(15));
}

#endif
