/* attention.h - the attention core: rotary embedding, KV cache, scores, softmax and weighted values of a few queries. */
#ifndef CF_ATTENTION_H
#define CF_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

/* Most queries that take in one row of the cache together: as many as the registers of AVX2 serve. */
enum { CF_QUERIES = 4 };

/*
 * Operations on rows of the KV cache, stored in f16 or f32; n = head_dim. One set per instruction set and storage. Rows
 * lie side by side, and so do queries; there are 1 to CF_QUERIES of these. What a query gets does not depend on how many
 * others there are, nor on how the rows are cut into calls.
 */
typedef struct cf_kv_ops {
    size_t element_bytes;
    void (*store)(void *row, const float *in, size_t n);
    /* scores[q * stride + j] = scale * sum of queries[q][i] * rows[j][i] */
    void (*score)(float *scores, size_t stride, const float *queries, size_t query_count, const uint8_t *rows,
                  size_t count, size_t n, float scale);
    /* In place: scores[q * stride ..] into their softmax, count + q * step of them. */
    void (*softmax)(float *scores, size_t stride, size_t query_count, size_t count, size_t step);
    /* out[q * out_stride + i] += sum of weights[q * stride + j] * rows[j][i], row by row */
    void (*weigh)(float *out, size_t out_stride, const float *weights, size_t stride, size_t query_count,
                  const uint8_t *rows, size_t count, size_t n);
} cf_kv_ops;

const cf_kv_ops *cf_kv_ops_for(int isa, int f32);

#if defined(__x86_64__)
extern const cf_kv_ops cf_kv_ops_avx2[2]; /* f16, f32 */
#elif defined(__aarch64__)
extern const cf_kv_ops cf_kv_ops_neondot[2];
#endif

/* cos and sin of position * base^(-2i / head_dim), i < head_dim / 2. */
void cf_rope_rotation(float *cosines, float *sines, uint32_t position, uint32_t head_dim, float base);
/* out: in with pairs (i, i + head_dim / 2) rotated; out may equal in. */
void cf_rope_rotate(float *out, const float *in, const float *cosines, const float *sines, uint32_t head_dim);

/* Rows of keys and of values in the cache's storage type. */
typedef struct cf_kv_rows {
    const uint8_t *keys, *values;
} cf_kv_rows;

/* 1 to CF_QUERIES queries that share keys and values: heads of one token (step 0), or tokens of one head (step 1). */
typedef struct cf_queries {
    const float *queries; /* [count][head_dim] */
    size_t count;
    size_t step;
    float *out; /* head_dim floats per query */
    size_t out_stride;
    float *scores; /* scratch: [count][stride] */
    size_t stride; /* cf_scores_stride() */
} cf_queries;

/* Floats of a query's scores, for a context of so many positions. */
size_t cf_scores_stride(size_t context);

/*
 * out[q] = sum of softmax(q . k / sqrt(head_dim)) v over the first `count` rows of `cached` and over rows 0 .. q * step of
 * `own`, the positions of the queries themselves.
 */
void cf_attention(const cf_kv_ops *ops, const cf_queries *group, cf_kv_rows cached, size_t count, cf_kv_rows own,
                  uint32_t head_dim);

#endif
