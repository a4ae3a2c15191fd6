/* fill.c - seeded random weights at the speed of memory, for synthetic models. */
#include "error.h"
#include "half.h"
#include "kernels.h"
#include "random.h"

#include <math.h>
#include <string.h>

/*
 * Root mean square of the codes about their centre, from the distributions below:
 * q4: 1..15 once and 8 twice in 16: sqrt(2 (1 + 4 + ... + 49) / 16); q8: -127..127, 0 twice in 256: sqrt(2 sum k^2 / 256)
 */
static const float Q4_DEVIATION = 4.18330013f;
static const float Q8_DEVIATION = 73.4676800f;

static void store_u64(uint8_t *at, uint64_t value)
{
    memcpy(at, &value, sizeof value);
}

/* 16 nibbles, each uniform over 0..15, with 0 replaced by 8: symmetric about 8, so that rows have no common mean. */
static uint64_t symmetric_nibbles(uint64_t x)
{
    uint64_t any = x | x >> 1;
    any |= any >> 2;
    const uint64_t zero = ~any & 0x1111111111111111u;
    return x | zero << 3;
}

/* 8 signed bytes, uniform over -128..127, with -128 replaced by 0. */
static uint64_t symmetric_bytes(uint64_t x)
{
    const uint64_t low = x & 0x7f7f7f7f7f7f7f7fu, high = x & 0x8080808080808080u;
    /* A byte's 0x80 bit stays only where some lower bit is set: -128 loses its sign and becomes 0. */
    const uint64_t some = (low + 0x7f7f7f7f7f7f7f7fu) & 0x8080808080808080u;
    return low | (high & some);
}

typedef struct stream {
    uint64_t seed;
    uint64_t index;
} stream;

static uint64_t draw(stream *random)
{
    return cf_splitmix64(random->seed, random->index++);
}

/* blocks * 16 scales around `centre`, from 0.75 to 1.25 of it, zero padding behind. */
static uint8_t *fill_scales(stream *random, uint8_t *at, uint32_t blocks, float centre, float offset_scale)
{
    uint8_t *const end = at + cf_pad64((size_t)blocks * CF_GROUP_ROWS * 2);
    for (uint32_t i = 0; i < blocks * CF_GROUP_ROWS; i += 4) {
        uint64_t bits = draw(random);
        for (int k = 0; k < 4; k++, bits >>= 16, at += 2) {
            const float factor = 0.75f + (float)(bits & 0xffff) * (0.5f / 65535.0f);
            const uint16_t half = cf_float_to_half(centre * factor * offset_scale);
            at[0] = (uint8_t)half;
            at[1] = (uint8_t)(half >> 8);
        }
    }
    memset(at, 0, (size_t)(end - at));
    return end;
}

static void fill_group(int type, uint64_t seed, uint32_t blocks, float sigma, uint8_t *at)
{
    stream random = {seed, 0};
    uint8_t *const end = at + cf_group_bytes(type, blocks);
    switch (type) {
    case CFLOW_TYPE_Q4_0:
        at = fill_scales(&random, at, blocks, sigma / Q4_DEVIATION, 1.0f);
        break;
    case CFLOW_TYPE_Q4_1: {
        /* minimum = -8 scale: the same draw twice, so that the pair is symmetric as in q4_0 */
        const stream start = random;
        at = fill_scales(&random, at, blocks, sigma / Q4_DEVIATION, 1.0f);
        random = start;
        at = fill_scales(&random, at, blocks, sigma / Q4_DEVIATION, -8.0f);
        break;
    }
    case CFLOW_TYPE_Q8_0:
        at = fill_scales(&random, at, blocks, sigma / Q8_DEVIATION, 1.0f);
        for (; at < end; at += 8) {
            store_u64(at, symmetric_bytes(draw(&random)));
        }
        return;
    default: {
        /* uniform on (-a, a) has deviation a / sqrt 3 */
        const float width = sigma * 1.73205081f;
        const size_t value_bytes = type == CFLOW_TYPE_F16 ? 2 : 4;
        for (; at < end; at += value_bytes) {
            const float unit = (float)(int32_t)(draw(&random) >> 32) * 0x1p-31f;
            const float value = unit * width;
            if (type == CFLOW_TYPE_F16) {
                const uint16_t half = cf_float_to_half(value);
                at[0] = (uint8_t)half;
                at[1] = (uint8_t)(half >> 8);
            } else {
                memcpy(at, &value, sizeof value);
            }
        }
        return;
    }
    }
    for (; at < end; at += 8) {
        store_u64(at, symmetric_nibbles(draw(&random)));
    }
}

int cflow_fill_groups(int type, uint64_t seed, uint64_t first_group, uint64_t group_count, uint32_t blocks, float sigma,
                      void *out, uint64_t out_bytes)
{
    uint64_t bytes;
    if (out == NULL || cf_group_block_bytes(type) == 0 || blocks == 0 || blocks > 2048 ||
        !(sigma > 0.0f && isfinite(sigma))) {
        return cf_fail(CFLOW_ERR_ARGUMENT,
                       "cflow_fill_groups: type %d, %u blocks (allowed: 1 to 2048), sigma %g or out NULL", type, blocks,
                       (double)sigma);
    }
    if (__builtin_mul_overflow(group_count, (uint64_t)cf_group_bytes(type, blocks), &bytes) || bytes != out_bytes) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_fill_groups: out has %llu bytes, %llu groups of %zu bytes do not fit",
                       (unsigned long long)out_bytes, (unsigned long long)group_count, cf_group_bytes(type, blocks));
    }
    for (uint64_t i = 0; i < group_count; i++) {
        fill_group(type, cf_splitmix64(seed, first_group + i), blocks, sigma,
                   (uint8_t *)out + i * cf_group_bytes(type, blocks));
    }
    return CFLOW_OK;
}
