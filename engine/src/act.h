/* act.h - memory of prepared activations (cf_act of kernels.h) in one block. */
#ifndef CF_ACT_H
#define CF_ACT_H

#include "kernels.h"

typedef struct cf_act_arrays {
    float *f32, *f32_sums, *f32_scaled;
    int8_t *codes;
    float *scales;
    int32_t *sums;
} cf_act_arrays;

/* Bytes of all arrays for a vector of `columns` values, each padded to 64 bytes. */
size_t cf_act_bytes(size_t columns);
/* The arrays inside 64-byte-aligned memory of that size. */
cf_act_arrays cf_act_place(void *memory, size_t columns);
/* Fills those that `needs` (CF_NEED_*) names. in may be arrays->f32 itself. */
void cf_act_prepare(const cf_act_arrays *arrays, unsigned needs, const float *in, size_t columns);

static inline cf_act cf_act_view(const cf_act_arrays *arrays)
{
    return (cf_act){arrays->f32, arrays->f32_sums, arrays->f32_scaled, arrays->codes, arrays->scales, arrays->sums};
}

#endif
