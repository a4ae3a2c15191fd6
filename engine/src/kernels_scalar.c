/*
 * kernels_scalar.c - the readable reference for every kernel, and the path of machines without vector kernels.
 * Built without automatic vectorisation, so that "scalar" means scalar.
 */
#include <math.h>

#include "half.h"
#include "kernel_inline.h"

CF_INLINE int32_t load_code(const int8_t *pointer)
{
    return *pointer;
}

CF_INLINE uint8_t load_byte(const uint8_t *pointer)
{
    return *pointer;
}

CF_INLINE int32_t load_int(const int32_t *pointer)
{
    return *pointer;
}

CF_INLINE float load_act(const float *pointer)
{
    return *pointer;
}

CF_INLINE float load_weight(const uint8_t *bytes)
{
    float value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

#define ACT_CODE(pointer) CF_LOAD_ACT(load_code, pointer, 1)
#define ACT_INT(pointer) CF_LOAD_ACT(load_int, pointer, 4)
#define ACT_FLOAT(pointer) CF_LOAD_ACT(load_act, pointer, 4)
#define WEIGHT_BYTE(pointer) CF_LOAD_WEIGHT(load_byte, pointer, 1)
#define WEIGHT_HALF(pointer) CF_LOAD_WEIGHT(cf_load_half, pointer, 2)
#define WEIGHT_FLOAT(pointer) CF_LOAD_WEIGHT(load_weight, pointer, 4)
#define HEAD_HALF(pointer) CF_LOAD_SCALE(cf_load_half, pointer, 2)

/* Dot products of row r of a block with its activations, for `parts` parts at once. x is loaded once for all parts. */

/* q4: byte (k, r, j) of a block holds columns 8k + j (low) and 8k + 4 + j (high): cflow.h, MATRIX DATA. */
CF_INLINE void q4_dot_q8(const uint8_t *const codes[], const uint32_t parts, uint32_t r, const int8_t *x, int32_t *isum)
{
    for (uint32_t k = 0; k < 4; k++) {
        CF_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            const int32_t low = ACT_CODE(x + 8 * k + j);
            const int32_t high = ACT_CODE(x + 8 * k + 4 + j);
            CF_UNROLL
            for (uint32_t p = 0; p < parts; p++) {
                const uint8_t byte = WEIGHT_BYTE(codes[p] + 64 * k + 4 * r + j);
                isum[p] += (byte & 15) * low + (byte >> 4) * high;
            }
        }
    }
}

CF_INLINE void q4_dot_f32(const uint8_t *const codes[], const uint32_t parts, uint32_t r, const float *x,
                          const int32_t zero_point, float *fsum)
{
    for (uint32_t k = 0; k < 4; k++) {
        CF_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            const float low = ACT_FLOAT(x + 8 * k + j);
            const float high = ACT_FLOAT(x + 8 * k + 4 + j);
            CF_UNROLL
            for (uint32_t p = 0; p < parts; p++) {
                const uint8_t byte = WEIGHT_BYTE(codes[p] + 64 * k + 4 * r + j);
                fsum[p] += (float)((byte & 15) - zero_point) * low;
                fsum[p] += (float)((byte >> 4) - zero_point) * high;
            }
        }
    }
}

/* q8_0: byte (k, r, j) holds column 4k + j. */
CF_INLINE void q8_dot_q8(const uint8_t *const codes[], const uint32_t parts, uint32_t r, const int8_t *x, int32_t *isum)
{
    for (uint32_t k = 0; k < 8; k++) {
        CF_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            const int32_t value = ACT_CODE(x + 4 * k + j);
            CF_UNROLL
            for (uint32_t p = 0; p < parts; p++) {
                isum[p] += (int8_t)WEIGHT_BYTE(codes[p] + 64 * k + 4 * r + j) * value;
            }
        }
    }
}

CF_INLINE void q8_dot_f32(const uint8_t *const codes[], const uint32_t parts, uint32_t r, const float *x, float *fsum)
{
    for (uint32_t k = 0; k < 8; k++) {
        CF_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            const float value = ACT_FLOAT(x + 4 * k + j);
            CF_UNROLL
            for (uint32_t p = 0; p < parts; p++) {
                fsum[p] += (float)(int8_t)WEIGHT_BYTE(codes[p] + 64 * k + 4 * r + j) * value;
            }
        }
    }
}

/* f16 and f32: value (column, row). */
CF_INLINE void float_dot_f32(const uint8_t *const values[], const uint32_t parts, uint32_t r, const float *x,
                             const int type, float *fsum)
{
    for (uint32_t c = 0; c < CF_BLOCK; c++) {
        const size_t index = (size_t)c * CF_GROUP_ROWS + r;
        const float value = ACT_FLOAT(x + c);
        CF_UNROLL
        for (uint32_t p = 0; p < parts; p++) {
            fsum[p] +=
                (type == CFLOW_TYPE_F16 ? WEIGHT_HALF(values[p] + 2 * index) : WEIGHT_FLOAT(values[p] + 4 * index)) *
                value;
        }
    }
}

CF_INLINE void dot_q8(const int type, const uint8_t *const codes[], const uint32_t parts, uint32_t r, const int8_t *x,
                      int32_t *isum)
{
    if (type == CFLOW_TYPE_Q8_0) {
        q8_dot_q8(codes, parts, r, x, isum);
    } else {
        q4_dot_q8(codes, parts, r, x, isum);
    }
}

CF_INLINE void dot_f32(const int type, const uint8_t *const codes[], const uint32_t parts, uint32_t r, const float *x,
                       float *fsum)
{
    if (type == CFLOW_TYPE_Q8_0) {
        q8_dot_f32(codes, parts, r, x, fsum);
    } else if (type == CFLOW_TYPE_F16 || type == CFLOW_TYPE_F32) {
        float_dot_f32(codes, parts, r, x, type, fsum);
    } else {
        q4_dot_f32(codes, parts, r, x, type == CFLOW_TYPE_Q4_0 ? 8 : 0, fsum);
    }
}

/* One block of one row against q8 activations: the formulas at the top of kernels.h. */
CF_INLINE float finish_q8(float acc, int32_t isum, const int type, float scale, float minimum, const cf_act *x,
                          uint32_t block)
{
    const float xscale = ACT_FLOAT(x->scales + block);
    if (type == CFLOW_TYPE_Q4_0) {
        isum -= 8 * ACT_INT(x->sums + block);
    }
    acc = fmaf((float)isum, scale * xscale, acc);
    if (type == CFLOW_TYPE_Q4_1) {
        acc = fmaf(minimum, xscale * (float)ACT_INT(x->sums + block), acc);
    }
    return acc;
}

/* Likewise against f32 activations. */
CF_INLINE float finish_f32(float acc, float fsum, const int type, float scale, float minimum, const cf_act *x,
                           uint32_t block)
{
    if (type == CFLOW_TYPE_F16 || type == CFLOW_TYPE_F32) {
        return acc + fsum;
    }
    acc += scale * fsum;
    return type == CFLOW_TYPE_Q4_1 ? acc + minimum * ACT_FLOAT(x->f32_sums + block) : acc;
}

/* y += 16 rows of one block of each part. type, q8 and parts are constants at each use. */
CF_INLINE void block_body(const cf_gemv_call *call, const uint8_t *const heads[], const uint8_t *const codes[],
                          float *const y[], uint32_t b, const int type, const int q8, const uint32_t parts)
{
    const size_t section_bytes = cf_pad64((size_t)call->blocks * CF_GROUP_ROWS * 2u);
    const cf_act *const x = &call->x;
    for (uint32_t r = 0; r < CF_GROUP_ROWS; r++) {
        int32_t isum[CF_MAX_LANES] = {0};
        float fsum[CF_MAX_LANES] = {0};
        if (q8) {
            dot_q8(type, codes, parts, r, x->codes + (size_t)b * CF_BLOCK, isum);
        } else {
            dot_f32(type, codes, parts, r, x->f32 + (size_t)b * CF_BLOCK, fsum);
        }
        CF_UNROLL
        for (uint32_t p = 0; p < parts; p++) {
            const int has_scale = type != CFLOW_TYPE_F16 && type != CFLOW_TYPE_F32;
            const float scale = has_scale ? HEAD_HALF(heads[p] + 2 * r) : 0;
            const float minimum = type == CFLOW_TYPE_Q4_1 ? HEAD_HALF(heads[p] + section_bytes + 2 * r) : 0;
            const float before = CF_LOAD_OUTPUT(load_act, y[p] + r, sizeof(float));
            const float after = q8 ? finish_q8(before, isum[p], type, scale, minimum, x, b)
                                   : finish_f32(before, fsum[p], type, scale, minimum, x, b);
            CF_STORE_OUTPUT(cf_store_float, y[p] + r, after, sizeof(float));
        }
    }
}

CF_INLINE void tile_body(const cf_gemv_call *call, const int type, const int q8, const uint32_t parts)
{
    const size_t group_bytes = cf_group_bytes(type, call->blocks);
    const size_t head_bytes = cf_group_head_bytes(type, call->blocks);
    const size_t block_bytes = cf_group_block_bytes(type);
    for (uint32_t g = 0; g < call->groups; g++) {
        for (uint32_t b = 0; b < call->blocks; b++) {
            const uint8_t *heads[CF_MAX_LANES];
            const uint8_t *codes[CF_MAX_LANES];
            float *y[CF_MAX_LANES];
            CF_UNROLL
            for (uint32_t p = 0; p < parts; p++) {
                const uint8_t *const group = call->weights[p] + g * group_bytes;
                heads[p] = group + (size_t)b * CF_GROUP_ROWS * 2u;
                codes[p] = group + head_bytes + b * block_bytes;
                y[p] = call->y[p] + (size_t)g * CF_GROUP_ROWS;
                for (size_t line = 0; line < block_bytes; line += CF_CACHE_LINE) {
                    cf_prefetch(codes[p] + line, call->prefetch_bytes, call->prefetch_hint);
                }
            }
            block_body(call, heads, codes, y, b, type, q8, parts);
        }
    }
}

CF_INLINE void tile_parts(const cf_gemv_call *call, const int type, const int q8)
{
    switch (call->parts) {
    case 1:
        tile_body(call, type, q8, 1);
        break;
    case 2:
        tile_body(call, type, q8, 2);
        break;
    case 3:
        tile_body(call, type, q8, 3);
        break;
    default:
        tile_body(call, type, q8, 4);
        break;
    }
}

static void q4_0q8(const cf_gemv_call *call)
{
    tile_parts(call, CFLOW_TYPE_Q4_0, 1);
}

static void q4_1q8(const cf_gemv_call *call)
{
    tile_parts(call, CFLOW_TYPE_Q4_1, 1);
}

static void q8_0q8(const cf_gemv_call *call)
{
    tile_parts(call, CFLOW_TYPE_Q8_0, 1);
}

static void q4_0f32(const cf_gemv_call *call)
{
    tile_parts(call, CFLOW_TYPE_Q4_0, 0);
}

static void q4_1f32(const cf_gemv_call *call)
{
    tile_parts(call, CFLOW_TYPE_Q4_1, 0);
}

static void q8_0f32(const cf_gemv_call *call)
{
    tile_parts(call, CFLOW_TYPE_Q8_0, 0);
}

static void f16f32(const cf_gemv_call *call)
{
    tile_parts(call, CFLOW_TYPE_F16, 0);
}

static void f32f32(const cf_gemv_call *call)
{
    tile_parts(call, CFLOW_TYPE_F32, 0);
}

/* ---- row-major q4_0 ----------------------------------------------------------------------------------------------- */

/* Columns c and c + 16 of a GGUF block are the low and the high nibble of code byte c. */
CF_INLINE float row_block_q8(float sum, const uint8_t *block, const cf_act *act)
{
    int32_t isum = 0;
    for (uint32_t c = 0; c < CF_BLOCK / 2; c++) {
        const uint8_t byte = WEIGHT_BYTE(block + 2 + c);
        isum += (byte & 15) * ACT_CODE(act->codes + c) + (byte >> 4) * ACT_CODE(act->codes + c + CF_BLOCK / 2);
    }
    return finish_q8(sum, isum, CFLOW_TYPE_Q4_0, HEAD_HALF(block), 0, act, 0);
}

CF_INLINE float row_block_f32(float sum, const uint8_t *block, const cf_act *act)
{
    float fsum = 0;
    for (uint32_t c = 0; c < CF_BLOCK / 2; c++) {
        const uint8_t byte = WEIGHT_BYTE(block + 2 + c);
        fsum += (float)((byte & 15) - 8) * ACT_FLOAT(act->f32 + c);
        fsum += (float)((byte >> 4) - 8) * ACT_FLOAT(act->f32 + c + CF_BLOCK / 2);
    }
    return sum + HEAD_HALF(block) * fsum;
}

#define CF_ROWS_KERNEL q4_0q8_rows
#define cf_row_sum float
#define cf_row_act cf_act
#define CF_ROW_ZERO 0.0f
#define CF_ROW_ACT(x, block) cf_act_at(x, (size_t)(block) * CF_BLOCK)
#define CF_ROW_BLOCK row_block_q8
#define CF_ROW_TOTAL(sum) (sum)
#include "gemv_rows.inl"

#define CF_ROWS_KERNEL q4_0f32_rows
#define cf_row_sum float
#define cf_row_act cf_act
#define CF_ROW_ZERO 0.0f
#define CF_ROW_ACT(x, block) cf_act_at(x, (size_t)(block) * CF_BLOCK)
#define CF_ROW_BLOCK row_block_f32
#define CF_ROW_TOTAL(sum) (sum)
#include "gemv_rows.inl"

/* ---- table -------------------------------------------------------------------------------------------------------- */

static const cf_kernel kernels[] = {
    CF_TILE_ENTRY(Q4_0, q4_0, 1, q8, SCALAR, scalar, CF_NEED_Q8),
    CF_TILE_ENTRY(Q4_1, q4_1, 1, q8, SCALAR, scalar, CF_NEED_Q8),
    CF_TILE_ENTRY(Q8_0, q8_0, 1, q8, SCALAR, scalar, CF_NEED_Q8),
    CF_TILE_ENTRY(Q4_0, q4_0, 0, f32, SCALAR, scalar, CF_NEED_F32),
    CF_TILE_ENTRY(Q4_1, q4_1, 0, f32, SCALAR, scalar, CF_NEED_F32 | CF_NEED_F32_SUMS),
    CF_TILE_ENTRY(Q8_0, q8_0, 0, f32, SCALAR, scalar, CF_NEED_F32),
    CF_TILE_ENTRY(F16, f16, 0, f32, SCALAR, scalar, CF_NEED_F32),
    CF_TILE_ENTRY(F32, f32, 0, f32, SCALAR, scalar, CF_NEED_F32),
    CF_ROWS_ENTRIES(1, q8, SCALAR, scalar, CF_NEED_Q8),
    CF_ROWS_ENTRIES(0, f32, SCALAR, scalar, CF_NEED_F32),
};

const cf_kernel_list cf_kernels_scalar = {kernels, sizeof kernels / sizeof kernels[0]};
