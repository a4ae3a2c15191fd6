#include "attention.h"

#include "cflow.h"
#include "half.h"
#include "vector.h"

#include <math.h>
#include <string.h>

static void store_f16(void *row, const float *in, size_t n)
{
    uint16_t *out = row;
    for (size_t i = 0; i < n; i++) {
        out[i] = cf_float_to_half(in[i]);
    }
}

static float dot_f16(const float *in, const void *row, size_t n)
{
    const uint16_t *values = row;
    float sum = 0.0f;
    for (size_t i = 0; i < n; i++) {
        sum += in[i] * cf_half_to_float(values[i]);
    }
    return sum;
}

static void accumulate_f16(float *out, float weight, const void *row, size_t n)
{
    const uint16_t *values = row;
    for (size_t i = 0; i < n; i++) {
        out[i] += weight * cf_half_to_float(values[i]);
    }
}

static void store_f32(void *row, const float *in, size_t n)
{
    memcpy(row, in, n * sizeof *in);
}

static float dot_f32(const float *in, const void *row, size_t n)
{
    const float *values = row;
    float sum = 0.0f;
    for (size_t i = 0; i < n; i++) {
        sum += in[i] * values[i];
    }
    return sum;
}

static void accumulate_f32(float *out, float weight, const void *row, size_t n)
{
    cf_vector_accumulate(out, weight, row, n, 0);
}

const cf_kv_ops *cf_kv_ops_for(int isa, int f32)
{
    static const cf_kv_ops scalar[2] = {
        {2, store_f16, dot_f16, accumulate_f16},
        {4, store_f32, dot_f32, accumulate_f32},
    };
#if defined(__x86_64__)
    if (isa >= CFLOW_ISA_AVX2) {
        return &cf_kv_ops_avx2[f32 != 0];
    }
#endif
    (void)isa;
    return &scalar[f32 != 0];
}

void cf_rope_rotation(float *cosines, float *sines, uint32_t position, uint32_t head_dim, float base)
{
    for (uint32_t i = 0; i < head_dim / 2; i++) {
        const double angle = position * pow((double)base, -2.0 * i / head_dim);
        cosines[i] = (float)cos(angle);
        sines[i] = (float)sin(angle);
    }
}

void cf_rope_rotate(float *out, const float *in, const float *cosines, const float *sines, uint32_t head_dim)
{
    const uint32_t half = head_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        const float a = in[i], b = in[i + half];
        out[i] = a * cosines[i] - b * sines[i];
        out[i + half] = a * sines[i] + b * cosines[i];
    }
}

void cf_attention_head(const cf_kv_ops *ops, float *out, const float *query, const uint8_t *keys, const uint8_t *values,
                       size_t count, const void *key, const void *value, uint32_t head_dim, float *scores)
{
    const size_t row_bytes = head_dim * ops->element_bytes;
    const float scale = 1.0f / sqrtf((float)head_dim);
    for (size_t j = 0; j < count; j++) {
        scores[j] = ops->dot(query, keys + j * row_bytes, head_dim) * scale;
    }
    scores[count] = ops->dot(query, key, head_dim) * scale;
    cf_vector_softmax(scores, count + 1);
    memset(out, 0, head_dim * sizeof *out);
    for (size_t j = 0; j < count; j++) {
        ops->accumulate(out, scores[j], values + j * row_bytes, head_dim);
    }
    ops->accumulate(out, scores[count], value, head_dim);
}
