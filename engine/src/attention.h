/* attention.h - the attention core: rotary embedding, KV cache, scores, softmax and weighted values of single heads. */
#ifndef CF_ATTENTION_H
#define CF_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

/* Operations on rows of the KV cache, stored in f16 or f32; n = head_dim. One set per instruction set and storage. */
typedef struct cf_kv_ops {
    size_t element_bytes;
    void (*store)(void *row, const float *in, size_t n);
    /* sum of in[i] * row[i] */
    float (*dot)(const float *in, const void *row, size_t n);
    /* out[i] += weight * row[i] */
    void (*accumulate)(float *out, float weight, const void *row, size_t n);
} cf_kv_ops;

const cf_kv_ops *cf_kv_ops_for(int isa, int f32);

#if defined(__x86_64__)
extern const cf_kv_ops cf_kv_ops_avx2[2]; /* f16, f32 */
#endif

/* cos and sin of position * base^(-2i / head_dim), i < head_dim / 2. */
void cf_rope_rotation(float *cosines, float *sines, uint32_t position, uint32_t head_dim, float base);
/* out: in with pairs (i, i + head_dim / 2) rotated; out may equal in. */
void cf_rope_rotate(float *out, const float *in, const float *cosines, const float *sines, uint32_t head_dim);

/*
 * out[head_dim] = sum over the `count` cached positions and the current one of softmax(q . k / sqrt(head_dim)) v.
 * keys, values: rows of the cache; key, value: the current position's rows, in the cache's storage type.
 * scores: scratch of count + 1 floats.
 */
void cf_attention_head(const cf_kv_ops *ops, float *out, const float *query, const uint8_t *keys, const uint8_t *values,
                       size_t count, const void *key, const void *value, uint32_t head_dim, float *scores);

#endif
