#include "vector.h"

#include "cflow.h"
#include "softmax_inline.h"

#include <math.h>

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
    return t * cf_exp_clamped(p - z * z);
}

/* x Phi(x), the exact GELU (Hendrycks and Gimpel, 2016). A NaN stays a NaN. */
static inline float gelu(float x)
{
    const float half_tail = 0.5f * erfc_positive(fabsf(x) * 0.707106781f);
    return x * (x < 0.0f ? half_tail : 1.0f - half_tail);
}

static inline float silu(float x)
{
    return x / (1.0f + cf_exp_clamped(-x));
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
        const float gate = 1.0f / (1.0f + cf_exp_clamped(-w[i]));
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
    cf_softmax_numerators(values, n);
    float sum = 0.0f;
    for (size_t i = 0; i < n; i++) {
        sum += values[i];
    }
    cf_softmax_divide(values, n, sum);
}
