/*
 * quantize.c - preparation of activations. Runs for every vector on every worker, so the loops over a block have
 * constant counts and no branches, which compilers turn into vector code for the baseline instruction set.
 */
#include "error.h"
#include "half.h"
#include "kernels.h"

#define CODE_MAX 127.0f
#define INFINITY_BITS 0x7f800000

/*
 * Largest magnitude of a block as bits: ordered like the magnitudes, infinity above all numbers, NaN above infinity.
 * Comparing floats instead would let a NaN go unnoticed.
 */
static inline int32_t max_magnitude_bits(const float *x)
{
    int32_t bits[CF_BLOCK];
    memcpy(bits, x, sizeof bits);
    int32_t largest = 0;
    for (uint32_t i = 0; i < CF_BLOCK; i++) {
        const int32_t magnitude = bits[i] & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

/* codes = rint(x * factor) with |x * factor| <= 128; returns their sum. */
static inline int32_t round_block(const float *x, float factor, int8_t *codes)
{
    /* In 2^23 .. 2^24 floats are whole numbers: the addition rounds, ties to even, and the low bits are the result. */
    const float whole = 0x1.8p23f;
    float shifted[CF_BLOCK];
    int32_t rounded[CF_BLOCK];
    int32_t sum = 0;
    for (uint32_t i = 0; i < CF_BLOCK; i++) {
        shifted[i] = x[i] * factor + whole;
    }
    memcpy(rounded, shifted, sizeof rounded);
    for (uint32_t i = 0; i < CF_BLOCK; i++) {
        rounded[i] -= 0x4b400000; /* the bits of `whole` */
        sum += rounded[i];
    }
    for (uint32_t i = 0; i < CF_BLOCK; i++) {
        codes[i] = (int8_t)rounded[i];
    }
    return sum;
}

void cf_act_quantize(const float *x, size_t columns, int8_t *codes, float *scales, int32_t *sums)
{
    for (size_t b = 0; b < columns / CF_BLOCK; b++) {
        const int32_t largest_bits = max_magnitude_bits(x + b * CF_BLOCK);
        const float largest = cf_bits_float((uint32_t)largest_bits);
        const float factor = CODE_MAX / largest;
        const int finite = largest_bits < INFINITY_BITS;
        if (!finite || (int32_t)cf_float_bits(factor) >= INFINITY_BITS) {
            memset(codes + b * CF_BLOCK, 0, CF_BLOCK);
            scales[b] = finite ? 0.0f : largest;
            sums[b] = 0;
            continue;
        }
        scales[b] = largest / CODE_MAX;
        sums[b] = round_block(x + b * CF_BLOCK, factor, codes + b * CF_BLOCK);
    }
}

void cf_act_sums(const float *x, size_t columns, float *sums)
{
    for (size_t b = 0; b < columns / CF_BLOCK; b++) {
        float lanes[4] = {0};
        for (uint32_t i = 0; i < CF_BLOCK; i += 4) {
            for (uint32_t lane = 0; lane < 4; lane++) {
                lanes[lane] += x[b * CF_BLOCK + i + lane];
            }
        }
        sums[b] = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    }
}

void cf_act_scale_nibbles(const float *x, size_t columns, float *scaled)
{
    for (size_t k = 0; k < columns; k += 8) {
        const float *const from = x + k;
        float *const to = scaled + k;
        to[0] = from[0];
        to[1] = from[4] * 0x1p-4f;
        to[2] = from[1] * 0x1p-8f;
        to[3] = from[5] * 0x1p-12f;
        to[4] = from[2] * 0x1p-16f;
        to[5] = from[6] * 0x1p-20f;
        to[6] = from[3] * 0x1p-24f;
        to[7] = from[7];
    }
}

int cflow_quantize_q8(const float *x, uint64_t columns, int8_t *codes_out, float *scales_out, int32_t *sums_out)
{
    if (x == NULL || codes_out == NULL || scales_out == NULL || sums_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_quantize_q8: x, codes_out, scales_out and sums_out must not be NULL");
    }
    if (columns == 0 || columns % CF_BLOCK != 0 || columns > SIZE_MAX / sizeof(float)) {
        return cf_fail(CFLOW_ERR_ARGUMENT,
                       "cflow_quantize_q8: columns is %llu; allowed are positive multiples of 32 that fit in memory",
                       (unsigned long long)columns);
    }
    cf_act_quantize(x, (size_t)columns, codes_out, scales_out, sums_out);
    return CFLOW_OK;
}
