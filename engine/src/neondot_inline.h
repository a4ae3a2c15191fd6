/*
 * neondot_inline.h - loads, multiply-adds and per-block terms of the kernels for Arm's NEON with the dot product
 * instructions: 16 rows are four vectors of 4 lanes, one row per 32-bit lane. Multiply-adds take one operand from a lane
 * of a register, so that 16 bytes of activations come with one load.
 */
#ifndef CF_NEONDOT_INLINE_H
#define CF_NEONDOT_INLINE_H

#include <arm_neon.h>

#include "kernel_inline.h"

#define CF_VECTORS 4u
#define CF_ACT_SPAN 4u

typedef float32x4_t cf_floats;

/* Per-block terms of the activations; a kernel sets those it uses. */
typedef struct cf_terms {
    float scale;    /* scale of the q8 block */
    float offset;   /* factor of the minima, or the share of q4_0's zero point (f32 activations) */
    int32x4_t zero; /* share of q4_0's zero point in the integer dot product, in all lanes */
} cf_terms;

/* One of four activations: q8 codes in fours, or floats. */
typedef struct picked_codes {
    int8x16_t all;
    uint32_t lane;
} picked_codes;

typedef struct picked_float {
    float32x4_t all;
    uint32_t lane;
} picked_float;

CF_INLINE float32x4_t cf_load_floats(const float *pointer)
{
    return vld1q_f32(pointer);
}

CF_INLINE void cf_store_floats(float *pointer, float32x4_t value)
{
    vst1q_f32(pointer, value);
}

CF_INLINE uint8x16_t load_codes(const uint8_t *pointer)
{
    return vld1q_u8(pointer);
}

/* Bytes first: the address of a half in a group is even, but that of a GGUF block is not known to be. */
CF_INLINE float32x4_t load_halves(const uint8_t *pointer)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(pointer)));
}

CF_INLINE float32x4_t load_f32_weights(const uint8_t *pointer)
{
    return vreinterpretq_f32_u8(vld1q_u8(pointer));
}

CF_INLINE int8x16_t load_act_codes(const int8_t *pointer)
{
    return vld1q_s8(pointer);
}

CF_INLINE float32x4_t load_act_floats(const float *pointer)
{
    return vld1q_f32(pointer);
}

CF_INLINE int32_t load_int(const int32_t *pointer)
{
    return *pointer;
}

CF_INLINE float load_float(const float *pointer)
{
    return *pointer;
}

#define ACT_CODES(x, b, i) CF_LOAD_ACT(load_act_codes, (x)->codes + (size_t)(b) * CF_BLOCK + 4u * (i), 16)
#define ACT_SCALE(x, b) CF_LOAD_ACT(load_float, (x)->scales + (b), 4)
#define ACT_SUM(x, b) CF_LOAD_ACT(load_int, (x)->sums + (b), 4)
#define ACT_F32(x, b, i) CF_LOAD_ACT(load_act_floats, (x)->f32 + (size_t)(b) * CF_BLOCK + (i), 16)
#define ACT_F32_SUM(x, b) CF_LOAD_ACT(load_float, (x)->f32_sums + (b), 4)
#define HEAD_HALVES(pointer) CF_LOAD_SCALE(load_halves, pointer, 8)

/* ---- q8 activations: exact integer dot products ------------------------------------------------------------------ */

/* sum + four products of signed bytes per lane. The lane is part of the instruction. */
CF_INLINE int32x4_t dot(int32x4_t sum, int8x16_t w, picked_codes x)
{
    switch (x.lane) {
    case 0:
        return vdotq_laneq_s32(sum, w, x.all, 0);
    case 1:
        return vdotq_laneq_s32(sum, w, x.all, 1);
    case 2:
        return vdotq_laneq_s32(sum, w, x.all, 2);
    default:
        return vdotq_laneq_s32(sum, w, x.all, 3);
    }
}

CF_INLINE int32x4_t q4q8_mac(int32x4_t sum, uint8x16_t w, picked_codes x, uint32_t substep)
{
    const uint8x16_t code = substep == 0 ? vandq_u8(w, vdupq_n_u8(15)) : vshrq_n_u8(w, 4);
    return dot(sum, vreinterpretq_s8_u8(code), x);
}

CF_INLINE int32x4_t q8q8_mac(int32x4_t sum, uint8x16_t w, picked_codes x)
{
    return dot(sum, vreinterpretq_s8_u8(w), x);
}

CF_INLINE cf_terms q4_0q8_terms(const cf_act *x, uint32_t block)
{
    return (cf_terms){.scale = ACT_SCALE(x, block), .zero = vdupq_n_s32(8 * ACT_SUM(x, block))};
}

CF_INLINE cf_terms q4_1q8_terms(const cf_act *x, uint32_t block)
{
    const float scale = ACT_SCALE(x, block);
    return (cf_terms){.scale = scale, .offset = scale * (float)ACT_SUM(x, block)};
}

CF_INLINE cf_terms q8_0q8_terms(const cf_act *x, uint32_t block)
{
    return (cf_terms){.scale = ACT_SCALE(x, block)};
}

CF_INLINE float32x4_t scaled_sum(float32x4_t y, int32x4_t sum, const uint8_t *scales, const cf_terms *terms)
{
    return vfmaq_f32(y, vcvtq_f32_s32(sum), vmulq_n_f32(HEAD_HALVES(scales), terms->scale));
}

CF_INLINE float32x4_t q4_0q8_finish(float32x4_t y, const int32x4_t *sums, const uint8_t *scales, const uint8_t *minima,
                                    const cf_terms *terms)
{
    (void)minima;
    return scaled_sum(y, vsubq_s32(sums[0], terms->zero), scales, terms);
}

CF_INLINE float32x4_t q4_1q8_finish(float32x4_t y, const int32x4_t *sums, const uint8_t *scales, const uint8_t *minima,
                                    const cf_terms *terms)
{
    return vfmaq_n_f32(scaled_sum(y, sums[0], scales, terms), HEAD_HALVES(minima), terms->offset);
}

CF_INLINE float32x4_t q8_0q8_finish(float32x4_t y, const int32x4_t *sums, const uint8_t *scales, const uint8_t *minima,
                                    const cf_terms *terms)
{
    (void)minima;
    return scaled_sum(y, sums[0], scales, terms);
}

/* ---- f32 activations --------------------------------------------------------------------------------------------- */

CF_INLINE float32x4_t float_mac(float32x4_t sum, float32x4_t w, picked_float x)
{
    switch (x.lane) {
    case 0:
        return vfmaq_laneq_f32(sum, w, x.all, 0);
    case 1:
        return vfmaq_laneq_f32(sum, w, x.all, 1);
    case 2:
        return vfmaq_laneq_f32(sum, w, x.all, 2);
    default:
        return vfmaq_laneq_f32(sum, w, x.all, 3);
    }
}

/*
 * The q4 code of one of a word's 8 columns: byte j holds column j in its low nibble and 4 + j in the high one. A nibble is
 * converted where it lies, as a number with so many binary places, which is exact.
 */
CF_INLINE float32x4_t q4_code(uint32x4_t w, uint32_t column)
{
    switch (column) {
    case 0:
        return vcvtq_f32_u32(vandq_u32(w, vdupq_n_u32(15u)));
    case 1:
        return vcvtq_n_f32_u32(vandq_u32(w, vdupq_n_u32(15u << 8)), 8);
    case 2:
        return vcvtq_n_f32_u32(vandq_u32(w, vdupq_n_u32(15u << 16)), 16);
    case 3:
        return vcvtq_n_f32_u32(vandq_u32(w, vdupq_n_u32(15u << 24)), 24);
    case 4:
        return vcvtq_n_f32_u32(vandq_u32(w, vdupq_n_u32(15u << 4)), 4);
    case 5:
        return vcvtq_n_f32_u32(vandq_u32(w, vdupq_n_u32(15u << 12)), 12);
    case 6:
        return vcvtq_n_f32_u32(vandq_u32(w, vdupq_n_u32(15u << 20)), 20);
    default:
        return vcvtq_f32_u32(vshrq_n_u32(w, 28));
    }
}

CF_INLINE float32x4_t q4f32_mac(float32x4_t sum, uint8x16_t w, picked_float x, uint32_t column)
{
    return float_mac(sum, q4_code(vreinterpretq_u32_u8(w), column), x);
}

/* Signed byte number `byte` of each word. */
CF_INLINE float32x4_t q8_code(int32x4_t w, uint32_t byte)
{
    switch (byte) {
    case 0:
        return vcvtq_n_f32_s32(vshlq_n_s32(w, 24), 24); /* with 24 binary places */
    case 1:
        return vcvtq_f32_s32(vshrq_n_s32(vshlq_n_s32(w, 16), 24));
    case 2:
        return vcvtq_f32_s32(vshrq_n_s32(vshlq_n_s32(w, 8), 24));
    default:
        return vcvtq_f32_s32(vshrq_n_s32(w, 24));
    }
}

CF_INLINE float32x4_t q8f32_mac(float32x4_t sum, uint8x16_t w, picked_float x, uint32_t byte)
{
    return float_mac(sum, q8_code(vreinterpretq_s32_u8(w), byte), x);
}

CF_INLINE cf_terms q4_0f32_terms(const cf_act *x, uint32_t block)
{
    return (cf_terms){.offset = ACT_F32_SUM(x, block) * 8.0f};
}

CF_INLINE cf_terms q4_1f32_terms(const cf_act *x, uint32_t block)
{
    return (cf_terms){.offset = ACT_F32_SUM(x, block)};
}

CF_INLINE cf_terms no_terms(const cf_act *x, uint32_t block)
{
    (void)x;
    (void)block;
    return (cf_terms){.scale = 0};
}

CF_INLINE float32x4_t q4_0f32_finish(float32x4_t y, const float32x4_t *sums, const uint8_t *scales,
                                     const uint8_t *minima, const cf_terms *terms)
{
    (void)minima;
    const float32x4_t sum = vsubq_f32(vaddq_f32(sums[0], sums[1]), vdupq_n_f32(terms->offset));
    return vfmaq_f32(y, sum, HEAD_HALVES(scales));
}

CF_INLINE float32x4_t q4_1f32_finish(float32x4_t y, const float32x4_t *sums, const uint8_t *scales,
                                     const uint8_t *minima, const cf_terms *terms)
{
    const float32x4_t acc = vfmaq_f32(y, vaddq_f32(sums[0], sums[1]), HEAD_HALVES(scales));
    return vfmaq_n_f32(acc, HEAD_HALVES(minima), terms->offset);
}

CF_INLINE float32x4_t q8_0f32_finish(float32x4_t y, const float32x4_t *sums, const uint8_t *scales,
                                     const uint8_t *minima, const cf_terms *terms)
{
    (void)minima;
    (void)terms;
    return vfmaq_f32(y, vaddq_f32(sums[0], sums[1]), HEAD_HALVES(scales));
}

CF_INLINE float32x4_t float_finish(float32x4_t y, const float32x4_t *sums, const uint8_t *scales, const uint8_t *minima,
                                   const cf_terms *terms)
{
    (void)scales;
    (void)minima;
    (void)terms;
    return vaddq_f32(y, vaddq_f32(sums[0], sums[1]));
}

#endif
