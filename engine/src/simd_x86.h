/*
 * simd_x86.h - x86 intrinsics. With CFLOW_SIMDE the AVX-512 ones come from SIMDe, compiled for AVX2, so that the
 * AVX-512 kernels run, slowly but with the same results, where the CPU has no AVX-512.
 */
#ifndef CF_SIMD_X86_H
#define CF_SIMD_X86_H

#if defined(CFLOW_SIMDE)
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>

/* What SIMDe 0.7.4 lacks, from two AVX2 halves. */
static inline __attribute__((always_inline)) __m512 cf_simde_cvtepi32_ps(__m512i a)
{
    const __m256 low = _mm256_cvtepi32_ps(_mm512_castsi512_si256(a));
    const __m256 high = _mm256_cvtepi32_ps(_mm512_extracti64x4_epi64(a, 1));
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

static inline __attribute__((always_inline)) __m512 cf_simde_cvtph_ps(__m256i a)
{
    const __m256 low = _mm256_cvtph_ps(_mm256_castsi256_si128(a));
    const __m256 high = _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1));
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

static inline __attribute__((always_inline)) __m512i cf_simde_cvtepu8_epi32(__m128i a)
{
    const __m256i low = _mm256_cvtepu8_epi32(a);
    const __m256i high = _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

static inline __attribute__((always_inline)) __m512i cf_simde_srai_epi32(__m512i a, const int count)
{
    const __m256i low = _mm256_srai_epi32(_mm512_castsi512_si256(a), count);
    const __m256i high = _mm256_srai_epi32(_mm512_extracti64x4_epi64(a, 1), count);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* Its alias names the operands of the masked form. */
#undef _mm512_madd_epi16
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)

#undef _mm512_cvtepi32_ps
#undef _mm512_cvtph_ps
#undef _mm512_cvtepu8_epi32
#undef _mm512_srai_epi32
#define _mm512_cvtepi32_ps cf_simde_cvtepi32_ps
#define _mm512_cvtph_ps cf_simde_cvtph_ps
#define _mm512_cvtepu8_epi32 cf_simde_cvtepu8_epi32
#define _mm512_srai_epi32 cf_simde_srai_epi32

#else
#include <immintrin.h>
#endif

#endif
