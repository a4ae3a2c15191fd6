/* half.h - IEEE-754 binary16 to and from binary32, on any machine. */
#ifndef CF_HALF_H
#define CF_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t cf_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float cf_bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Exact. A signalling NaN becomes quiet, as F16C does it. */
static inline float cf_half_to_float(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u) {
        const uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
        return cf_bits_float(sign | 0x7f800000u | quiet | ((magnitude & 0x3ffu) << 13));
    }
    /* As binary32 with the exponent field 112 too small: one exact multiplication puts it right, subnormals included. */
    return cf_bits_float(sign | cf_float_bits(cf_bits_float(magnitude << 13) * 0x1p112f));
}

/* Rounds to nearest, ties to even; overflow gives infinity; a NaN stays a NaN and becomes quiet. */
static inline uint16_t cf_float_to_half(float value)
{
    const uint32_t bits = cf_float_bits(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t half;
    if (magnitude > 0x7f800000u) {
        half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    } else if (magnitude >= 0x47800000u) { /* 2^16 and more: no rounding can bring it back */
        half = 0x7c00u;
    } else if (magnitude >= 0x38800000u) { /* 2^-14 and more: normal; a carry moves on into the exponent */
        half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    } else {
        /* Adding 0.5 leaves multiples of 2^-24, the subnormal step, in the low bits, rounded by the addition. */
        half = cf_float_bits(cf_bits_float(magnitude) + 0.5f) - 0x3f000000u;
    }
    return (uint16_t)(sign | half);
}

static inline uint16_t cf_load_u16(const uint8_t *bytes)
{
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* A stored scale or minimum. */
static inline float cf_load_half(const uint8_t *bytes)
{
    return cf_half_to_float(cf_load_u16(bytes));
}

#endif
