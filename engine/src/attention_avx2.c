/* attention_avx2.c - KV cache rows with AVX2, FMA and F16C. */
#include "attention.h"
#include "half.h"

#if defined(__x86_64__)

#include "kernel_inline.h"

#include <immintrin.h>

#define CF_KV_OPS cf_kv_ops_avx2
#define CF_LANES 8

typedef __m256 cf_vector;
typedef __m256 cf_folded;
typedef __m128 cf_four;

CF_INLINE __m256 zero_vector(void)
{
    return _mm256_setzero_ps();
}

CF_INLINE __m256 load_floats(const float *from)
{
    return _mm256_loadu_ps(from);
}

CF_INLINE void store_floats(float *to, __m256 value)
{
    _mm256_storeu_ps(to, value);
}

CF_INLINE __m256 broadcast(const float *from)
{
    return _mm256_broadcast_ss(from);
}

CF_INLINE __m256 load_vector(const uint8_t *row, size_t i, int f32)
{
    return f32 ? _mm256_loadu_ps((const float *)(const void *)row + i)
               : _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(row + i * sizeof(uint16_t))));
}

CF_INLINE __m256 multiply_add(__m256 a, __m256 b, __m256 c)
{
    return _mm256_fmadd_ps(a, b, c);
}

CF_INLINE __m256 fold(const __m256 vectors[2])
{
    return _mm256_add_ps(vectors[0], vectors[1]);
}

CF_INLINE __m256 fold_nothing(void)
{
    return _mm256_setzero_ps();
}

CF_INLINE __m128 sum_folded(const __m256 folded[4])
{
    __m128 t[4];
    CF_UNROLL
    for (size_t r = 0; r < 4; r++) {
        t[r] = _mm_add_ps(_mm256_castps256_ps128(folded[r]), _mm256_extractf128_ps(folded[r], 1));
    }
    const __m128 low = _mm_add_ps(_mm_unpacklo_ps(t[0], t[1]), _mm_unpackhi_ps(t[0], t[1]));
    const __m128 high = _mm_add_ps(_mm_unpacklo_ps(t[2], t[3]), _mm_unpackhi_ps(t[2], t[3]));
    return _mm_add_ps(_mm_movelh_ps(low, high), _mm_movehl_ps(high, low));
}

CF_INLINE __m128 times(__m128 four, float scale)
{
    return _mm_mul_ps(four, _mm_set1_ps(scale));
}

CF_INLINE void store_four(float *to, __m128 four)
{
    _mm_storeu_ps(to, four);
}

static void store_f16(void *row, const float *in, size_t n)
{
    uint16_t *out = row;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm_storeu_si128((__m128i *)(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    }
    for (; i < n; i++) {
        out[i] = cf_float_to_half(in[i]);
    }
}

#include "attention_vector.inl"

#else
typedef int cf_no_attention_avx2;
#endif
