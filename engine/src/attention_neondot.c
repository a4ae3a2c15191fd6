/* attention_neondot.c - KV cache rows with Arm's NEON; the set is chosen together with the dot product kernels. */
#include "attention.h"
#include "half.h"

#if defined(__aarch64__)

#include "kernel_inline.h"

#include <arm_neon.h>

#define CF_KV_OPS cf_kv_ops_neondot
#define CF_LANES 4

typedef float32x4_t cf_vector;
typedef float32x4_t cf_folded;
typedef float32x4_t cf_four;

CF_INLINE float32x4_t zero_vector(void)
{
    return vdupq_n_f32(0);
}

CF_INLINE float32x4_t load_floats(const float *from)
{
    return vld1q_f32(from);
}

CF_INLINE void store_floats(float *to, float32x4_t value)
{
    vst1q_f32(to, value);
}

CF_INLINE float32x4_t broadcast(const float *from)
{
    return vld1q_dup_f32(from);
}

CF_INLINE float32x4_t load_vector(const uint8_t *row, size_t i, int f32)
{
    return f32 ? vld1q_f32((const float *)(const void *)row + i)
               : vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)(const void *)row + i)));
}

CF_INLINE float32x4_t multiply_add(float32x4_t a, float32x4_t b, float32x4_t c)
{
    return vfmaq_f32(c, a, b);
}

CF_INLINE float32x4_t fold(const float32x4_t vectors[4])
{
    return vaddq_f32(vaddq_f32(vectors[0], vectors[2]), vaddq_f32(vectors[1], vectors[3]));
}

CF_INLINE float32x4_t fold_nothing(void)
{
    return vdupq_n_f32(0);
}

/* t[0] + t[2] and t[1] + t[3] of two rows. */
CF_INLINE float32x4_t add_halves(float32x4_t a, float32x4_t b)
{
    return vaddq_f32(vcombine_f32(vget_low_f32(a), vget_low_f32(b)), vcombine_f32(vget_high_f32(a), vget_high_f32(b)));
}

CF_INLINE float32x4_t sum_folded(const float32x4_t folded[4])
{
    return vpaddq_f32(add_halves(folded[0], folded[1]), add_halves(folded[2], folded[3]));
}

CF_INLINE float32x4_t times(float32x4_t four, float scale)
{
    return vmulq_n_f32(four, scale);
}

CF_INLINE void store_four(float *to, float32x4_t four)
{
    vst1q_f32(to, four);
}

static void store_f16(void *row, const float *in, size_t n)
{
    uint16_t *out = row;
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(in + i))));
    }
    for (; i < n; i++) {
        out[i] = cf_float_to_half(in[i]);
    }
}

#include "attention_vector.inl"

#else
typedef int cf_no_attention_neondot;
#endif
