#include "act.h"

#include <string.h>

static size_t block_array_bytes(size_t columns)
{
    return cf_pad64(columns / CF_BLOCK * sizeof(float));
}

size_t cf_act_bytes(size_t columns)
{
    return 2 * cf_pad64(columns * sizeof(float)) + 3 * block_array_bytes(columns) + cf_pad64(columns);
}

cf_act_arrays cf_act_place(void *memory, size_t columns)
{
    const size_t floats = cf_pad64(columns * sizeof(float)), blocks = block_array_bytes(columns);
    uint8_t *at = memory;
    cf_act_arrays a;
    a.f32 = (float *)(void *)at;
    a.f32_scaled = (float *)(void *)(at += floats);
    a.f32_sums = (float *)(void *)(at += floats);
    a.scales = (float *)(void *)(at += blocks);
    a.sums = (int32_t *)(void *)(at += blocks);
    a.codes = (int8_t *)(at + blocks);
    return a;
}

void cf_act_prepare(const cf_act_arrays *arrays, unsigned needs, const float *in, size_t columns)
{
    if ((needs & CF_NEED_F32) != 0 && in != arrays->f32) {
        memcpy(arrays->f32, in, columns * sizeof *in);
    }
    if ((needs & CF_NEED_F32_SUMS) != 0) {
        cf_act_sums(in, columns, arrays->f32_sums);
    }
    if ((needs & CF_NEED_F32_SCALED) != 0) {
        cf_act_scale_nibbles(in, columns, arrays->f32_scaled);
    }
    if ((needs & CF_NEED_Q8) != 0) {
        cf_act_quantize(in, columns, arrays->codes, arrays->scales, arrays->sums);
    }
}
