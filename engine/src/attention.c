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

static float dot_f16(const float *in, const uint8_t *row, size_t n)
{
    const uint16_t *values = (const uint16_t *)(const void *)row;
    float sum = 0.0f;
    for (size_t i = 0; i < n; i++) {
        sum += in[i] * cf_half_to_float(values[i]);
    }
    return sum;
}

static void accumulate_f16(float *out, float weight, const uint8_t *row, size_t n)
{
    const uint16_t *values = (const uint16_t *)(const void *)row;
    for (size_t i = 0; i < n; i++) {
        out[i] += weight * cf_half_to_float(values[i]);
    }
}

static void store_f32(void *row, const float *in, size_t n)
{
    memcpy(row, in, n * sizeof *in);
}

static float dot_f32(const float *in, const uint8_t *row, size_t n)
{
    const float *values = (const float *)(const void *)row;
    float sum = 0.0f;
    for (size_t i = 0; i < n; i++) {
        sum += in[i] * values[i];
    }
    return sum;
}

static void accumulate_f32(float *out, float weight, const uint8_t *row, size_t n)
{
    cf_vector_accumulate(out, weight, (const float *)(const void *)row, n, 0);
}

static void score_f16(float *scores, size_t stride, const float *queries, size_t query_count, const uint8_t *rows,
                      size_t count, size_t n, float scale)
{
    for (size_t j = 0; j < count; j++) {
        for (size_t q = 0; q < query_count; q++) {
            scores[q * stride + j] = dot_f16(queries + q * n, rows + j * n * sizeof(uint16_t), n) * scale;
        }
    }
}

static void score_f32(float *scores, size_t stride, const float *queries, size_t query_count, const uint8_t *rows,
                      size_t count, size_t n, float scale)
{
    for (size_t j = 0; j < count; j++) {
        for (size_t q = 0; q < query_count; q++) {
            scores[q * stride + j] = dot_f32(queries + q * n, rows + j * n * sizeof(float), n) * scale;
        }
    }
}

static void softmax(float *scores, size_t stride, size_t query_count, size_t count, size_t step)
{
    for (size_t q = 0; q < query_count; q++) {
        cf_vector_softmax(scores + q * stride, count + q * step);
    }
}

static void weigh_f16(float *out, size_t out_stride, const float *weights, size_t stride, size_t query_count,
                      const uint8_t *rows, size_t count, size_t n)
{
    for (size_t j = 0; j < count; j++) {
        for (size_t q = 0; q < query_count; q++) {
            accumulate_f16(out + q * out_stride, weights[q * stride + j], rows + j * n * sizeof(uint16_t), n);
        }
    }
}

static void weigh_f32(float *out, size_t out_stride, const float *weights, size_t stride, size_t query_count,
                      const uint8_t *rows, size_t count, size_t n)
{
    for (size_t j = 0; j < count; j++) {
        for (size_t q = 0; q < query_count; q++) {
            accumulate_f32(out + q * out_stride, weights[q * stride + j], rows + j * n * sizeof(float), n);
        }
    }
}

const cf_kv_ops *cf_kv_ops_for(int isa, int f32)
{
    static const cf_kv_ops scalar[2] = {
        {2, store_f16, score_f16, softmax, weigh_f16},
        {4, store_f32, score_f32, softmax, weigh_f32},
    };
#if defined(__x86_64__)
    if (isa >= CFLOW_ISA_AVX2) {
        return &cf_kv_ops_avx2[f32 != 0];
    }
#elif defined(__aarch64__)
    if (isa == CFLOW_ISA_NEONDOT) {
        return &cf_kv_ops_neondot[f32 != 0];
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

size_t cf_scores_stride(size_t context)
{
    /* An odd number of cache lines: of a power of two, the scores of all queries would share the sets of the cache. */
    return (context + 31) / 32 * 32 + 16;
}

void cf_attention(const cf_kv_ops *ops, const cf_queries *group, cf_kv_rows cached, size_t count, cf_kv_rows own,
                  uint32_t head_dim)
{
    /* Values are gone over a few columns at a time: so many rows stay in L1-d until all columns are done. */
    const size_t row_bytes = head_dim * ops->element_bytes, most = 16384 / row_bytes, block = most > 0 ? most : 1;
    const size_t own_count = 1 + (group->count - 1) * group->step;
    const float scale = 1.0f / sqrtf((float)head_dim);
    float *scores = group->scores;
    ops->score(scores, group->stride, group->queries, group->count, cached.keys, count, head_dim, scale);
    ops->score(scores + count, group->stride, group->queries, group->count, own.keys, own_count, head_dim, scale);
    ops->softmax(scores, group->stride, group->count, count + 1, group->step);
    for (size_t q = 0; q < group->count; q++) {
        memset(group->out + q * group->out_stride, 0, head_dim * sizeof(float));
    }
    for (size_t j = 0; j < count; j += block) {
        ops->weigh(group->out, group->out_stride, scores + j, group->stride, group->count,
                   cached.values + j * row_bytes, count - j < block ? count - j : block, head_dim);
    }
    for (size_t q = 0; q < own_count; q++) {
        /* Row q is that of query q; earlier queries do not see it. */
        ops->weigh(group->out + q * group->out_stride, group->out_stride, scores + q * group->stride + count + q,
                   group->stride, group->count - q, own.values + q * row_bytes, 1, head_dim);
    }
}
