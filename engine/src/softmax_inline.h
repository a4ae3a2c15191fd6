/*
 * softmax_inline.h - e^x and softmax as plain C, compiled for the baseline (vector.c) and for wider vectors
 * (attention_avx2.c). Every operation is rounded by itself and sums have one order, so the bits are the same.
 */
#ifndef CF_SOFTMAX_INLINE_H
#define CF_SOFTMAX_INLINE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* e^x with a relative error below 2e-7. Below -87 the result is e^-87, above 88 it is e^88: neither end overflows. */
static inline float cf_exp_clamped(float x)
{
    /* 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits of the sum. */
    const float round_to_integer = 12582912.0f;
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float shifted = x * 1.44269504f + round_to_integer;
    const float power = shifted - round_to_integer;
    /* ln 2 in two parts, the first exact in 16 bits, so that power * part is exact. */
    const float r = (x - power * 0.693145752f) - power * 1.42860677e-6f;
    /* Taylor series to degree 7: |r| <= ln(2)/2, remainder below 6e-9. */
    float series = 1.0f / 5040.0f;
    series = series * r + 1.0f / 720.0f;
    series = series * r + 1.0f / 120.0f;
    series = series * r + 1.0f / 24.0f;
    series = series * r + 1.0f / 6.0f;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (int32_t)((uint32_t)(bits - 0x4B400000 + 127) << 23);
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return series * scale;
}

/* In lanes, which changes no bit of what softmax makes of it. */
static inline float cf_largest(const float *values, size_t n)
{
    float largest[16];
    for (size_t lane = 0; lane < 16; lane++) {
        largest[lane] = values[0];
    }
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (size_t lane = 0; lane < 16; lane++) {
            largest[lane] = values[i + lane] > largest[lane] ? values[i + lane] : largest[lane];
        }
    }
    for (; i < n; i++) {
        largest[0] = values[i] > largest[0] ? values[i] : largest[0];
    }
    for (size_t lane = 1; lane < 16; lane++) {
        largest[0] = largest[lane] > largest[0] ? largest[lane] : largest[0];
    }
    return largest[0];
}

/* In place: e^(in - max), whose sum is still to be divided by. */
static inline void cf_softmax_numerators(float *values, size_t n)
{
    const float largest = cf_largest(values, n);
    for (size_t i = 0; i < n; i++) {
        values[i] = cf_exp_clamped(values[i] - largest);
    }
}

static inline void cf_softmax_divide(float *values, size_t n, float sum)
{
    const float inverse = 1.0f / sum;
    for (size_t i = 0; i < n; i++) {
        values[i] *= inverse;
    }
}

#endif
