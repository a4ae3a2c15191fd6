#include "vector.h"

#include "cflow.h"

#include <math.h>
#include <string.h>

/* e^x with a relative error below 2e-7. Below -87 the result is e^-87, above 88 it is e^88: neither end overflows. */
static inline float exp_clamped(float x)
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

/* erfc(z) for z >= 0: t e^(P(t) - z^2) with t = 1 / (1 + z/2); coefficients from tools/fit_erfc.py. */
static inline float erfc_positive(float z)
{
    const float t = 1.0f / (1.0f + 0.5f * z);
    float p = -1.492886088e-01f;
    p = p * t + 1.016766359e+00f;
    p = p * t - 2.907409708e+00f;
    p = p * t + 4.423094676e+00f;
    p = p * t - 3.735888470e+00f;
    p = p * t + 1.789192051e+00f;
    p = p * t - 7.660245748e-01f;
    p = p * t + 2.415236345e-01f;
    p = p * t + 3.516406254e-01f;
    p = p * t + 1.001979212e+00f;
    p = p * t - 1.265585194e+00f;
    return t * exp_clamped(p - z * z);
}

/* x Phi(x), the exact GELU (Hendrycks and Gimpel, 2016). A NaN stays a NaN. */
static inline float gelu(float x)
{
    const float half_tail = 0.5f * erfc_positive(fabsf(x) * 0.707106781f);
    return x * (x < 0.0f ? half_tail : 1.0f - half_tail);
}

static inline float silu(float x)
{
    return x / (1.0f + exp_clamped(-x));
}

void cf_vector_add(float *out, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = a[i] + b[i];
    }
}

void cf_vector_mix(float *out, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (a[i] + b[i]) * 0.707106781f;
    }
}

void cf_vector_register(float *out, const float *w, const float *previous, const float *value, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float gate = 1.0f / (1.0f + exp_clamped(-w[i]));
        const float old = previous == NULL ? 0.0f : previous[i];
        out[i] = gate * old + (1.0f - gate) * value[i];
    }
}

void cf_vector_accumulate(float *out, float weight, const float *in, size_t n, int first)
{
    if (first) {
        for (size_t i = 0; i < n; i++) {
            out[i] = weight * in[i];
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        out[i] += weight * in[i];
    }
}

float cf_vector_square_sum(const float *in, size_t n)
{
    float partial[16] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (size_t lane = 0; lane < 16; lane++) {
            partial[lane] += in[i + lane] * in[i + lane];
        }
    }
    for (; i < n; i++) {
        partial[i % 16] += in[i] * in[i];
    }
    for (size_t width = 8; width > 0; width /= 2) {
        for (size_t lane = 0; lane < width; lane++) {
            partial[lane] += partial[lane + width];
        }
    }
    return partial[0];
}

int cf_vector_rmsnorm(float *out, const float *in, const float *gain, size_t n, float eps)
{
    const float mean = cf_vector_square_sum(in, n) / (float)n;
    const float scale = 1.0f / sqrtf(mean + eps);
    for (size_t i = 0; i < n; i++) {
        out[i] = in[i] * scale * gain[i];
    }
    return isfinite(mean);
}

void cf_vector_glu(float *out, const float *gate, const float *up, size_t n, int activation)
{
    if (activation == CFLOW_ACT_GEGLU) {
        for (size_t i = 0; i < n; i++) {
            out[i] = gelu(gate[i]) * up[i];
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = silu(gate[i]) * up[i];
    }
}

void cf_vector_softmax(float *values, size_t n)
{
    float largest = values[0];
    for (size_t i = 1; i < n; i++) {
        largest = values[i] > largest ? values[i] : largest;
    }
    float sum = 0.0f;
    for (size_t i = 0; i < n; i++) {
        values[i] = exp_clamped(values[i] - largest);
    }
    for (size_t i = 0; i < n; i++) {
        sum += values[i];
    }
    const float inverse = 1.0f / sum;
    for (size_t i = 0; i < n; i++) {
        values[i] *= inverse;
    }
}
