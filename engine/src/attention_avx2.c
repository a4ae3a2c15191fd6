/* attention_avx2.c - KV cache rows with AVX2, FMA and F16C. */
#include "attention.h"
#include "half.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>
#include <string.h>

static inline float sum_lanes(__m256 a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline __m256 load8_f16(const uint16_t *at)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
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

static float dot_f16(const float *in, const void *row, size_t n)
{
    const uint16_t *values = row;
    __m256 a = _mm256_setzero_ps(), b = a;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        a = _mm256_fmadd_ps(_mm256_loadu_ps(in + i), load8_f16(values + i), a);
        b = _mm256_fmadd_ps(_mm256_loadu_ps(in + i + 8), load8_f16(values + i + 8), b);
    }
    float sum = sum_lanes(_mm256_add_ps(a, b));
    for (; i < n; i++) {
        sum = fmaf(in[i], cf_half_to_float(values[i]), sum);
    }
    return sum;
}

static void accumulate_f16(float *out, float weight, const void *row, size_t n)
{
    const uint16_t *values = row;
    const __m256 w = _mm256_set1_ps(weight);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm256_storeu_ps(out + i, _mm256_fmadd_ps(w, load8_f16(values + i), _mm256_loadu_ps(out + i)));
    }
    for (; i < n; i++) {
        out[i] = fmaf(weight, cf_half_to_float(values[i]), out[i]);
    }
}

static void store_f32(void *row, const float *in, size_t n)
{
    memcpy(row, in, n * sizeof *in);
}

static float dot_f32(const float *in, const void *row, size_t n)
{
    const float *values = row;
    __m256 a = _mm256_setzero_ps(), b = a;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        a = _mm256_fmadd_ps(_mm256_loadu_ps(in + i), _mm256_loadu_ps(values + i), a);
        b = _mm256_fmadd_ps(_mm256_loadu_ps(in + i + 8), _mm256_loadu_ps(values + i + 8), b);
    }
    float sum = sum_lanes(_mm256_add_ps(a, b));
    for (; i < n; i++) {
        sum = fmaf(in[i], values[i], sum);
    }
    return sum;
}

static void accumulate_f32(float *out, float weight, const void *row, size_t n)
{
    const float *values = row;
    const __m256 w = _mm256_set1_ps(weight);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm256_storeu_ps(out + i, _mm256_fmadd_ps(w, _mm256_loadu_ps(values + i), _mm256_loadu_ps(out + i)));
    }
    for (; i < n; i++) {
        out[i] = fmaf(weight, values[i], out[i]);
    }
}

const cf_kv_ops cf_kv_ops_avx2[2] = {
    {2, store_f16, dot_f16, accumulate_f16},
    {4, store_f32, dot_f32, accumulate_f32},
};

#else
typedef int cf_no_attention_avx2;
#endif
