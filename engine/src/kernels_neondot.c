/* kernels_neondot.c - matrix-vector kernels for Arm's NEON with the dot product instructions (Armv8.2 DotProd). */
#if defined(__aarch64__)

#include "neondot_inline.h"

/* ---- q8 activations: exact integer dot products ------------------------------------------------------------------ */

#define CF_ACT_PICK(loaded, k) ((picked_codes){loaded, k})

#define CF_KERNEL q4_0q8
#define CF_TYPE CFLOW_TYPE_Q4_0
#define CF_PASSES 1u
#define CF_STEPS 4u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 2u
#define CF_CHAINS 1u
#define cf_sums int32x4_t
#define cf_weights uint8x16_t
#define cf_activation int8x16_t
#define CF_ZERO_SUMS vdupq_n_s32(0)
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_CODES
#define CF_MAC q4q8_mac
#define CF_TERMS q4_0q8_terms
#define CF_FINISH q4_0q8_finish
#include "gemm_tile.inl"
#include "gemv_tile.inl"
#include "tile_end.inl"

#define CF_KERNEL q4_1q8
#define CF_TYPE CFLOW_TYPE_Q4_1
#define CF_PASSES 1u
#define CF_STEPS 4u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 2u
#define CF_CHAINS 1u
#define cf_sums int32x4_t
#define cf_weights uint8x16_t
#define cf_activation int8x16_t
#define CF_ZERO_SUMS vdupq_n_s32(0)
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_CODES
#define CF_MAC q4q8_mac
#define CF_TERMS q4_1q8_terms
#define CF_FINISH q4_1q8_finish
#include "gemm_tile.inl"
#include "gemv_tile.inl"
#include "tile_end.inl"

#define CF_KERNEL q8_0q8
#define CF_TYPE CFLOW_TYPE_Q8_0
#define CF_PASSES 1u
#define CF_STEPS 8u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 1u
#define CF_CHAINS 1u
#define cf_sums int32x4_t
#define cf_weights uint8x16_t
#define cf_activation int8x16_t
#define CF_ZERO_SUMS vdupq_n_s32(0)
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_CODES
#define CF_MAC(sum, w, x, substep) q8q8_mac(sum, w, x)
#define CF_TERMS q8_0q8_terms
#define CF_FINISH q8_0q8_finish
#include "gemm_tile.inl"
#include "gemv_tile.inl"
#include "tile_end.inl"

#undef CF_ACT_PICK

/* ---- f32 activations --------------------------------------------------------------------------------------------- */

#define CF_ACT_PICK(loaded, k) ((picked_float){loaded, k})

#define CF_KERNEL q4_0f32
#define CF_TYPE CFLOW_TYPE_Q4_0
#define CF_PASSES 4u
#define CF_STEPS 1u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 8u
#define CF_CHAINS 2u
#define cf_sums float32x4_t
#define cf_weights uint8x16_t
#define cf_activation float32x4_t
#define CF_ZERO_SUMS vdupq_n_f32(0)
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_F32
#define CF_MAC q4f32_mac
#define CF_TERMS q4_0f32_terms
#define CF_FINISH q4_0f32_finish
#include "gemv_tile.inl"
#include "tile_end.inl"

#define CF_KERNEL q4_1f32
#define CF_TYPE CFLOW_TYPE_Q4_1
#define CF_PASSES 4u
#define CF_STEPS 1u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 8u
#define CF_CHAINS 2u
#define cf_sums float32x4_t
#define cf_weights uint8x16_t
#define cf_activation float32x4_t
#define CF_ZERO_SUMS vdupq_n_f32(0)
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_F32
#define CF_MAC q4f32_mac
#define CF_TERMS q4_1f32_terms
#define CF_FINISH q4_1f32_finish
#include "gemv_tile.inl"
#include "tile_end.inl"

#define CF_KERNEL q8_0f32
#define CF_TYPE CFLOW_TYPE_Q8_0
#define CF_PASSES 4u
#define CF_STEPS 2u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 4u
#define CF_CHAINS 2u
#define cf_sums float32x4_t
#define cf_weights uint8x16_t
#define cf_activation float32x4_t
#define CF_ZERO_SUMS vdupq_n_f32(0)
#define CF_WEIGHT_LOAD load_codes
#define CF_ACT_LOAD ACT_F32
#define CF_MAC q8f32_mac
#define CF_TERMS no_terms
#define CF_FINISH q8_0f32_finish
#include "gemv_tile.inl"
#include "tile_end.inl"

#define CF_KERNEL f16f32
#define CF_TYPE CFLOW_TYPE_F16
#define CF_PASSES 8u
#define CF_STEPS 4u
#define CF_STEP_BYTES 32u
#define CF_SUBSTEPS 1u
#define CF_CHAINS 2u
#define cf_sums float32x4_t
#define cf_weights float32x4_t
#define cf_activation float32x4_t
#define CF_ZERO_SUMS vdupq_n_f32(0)
#define CF_WEIGHT_LOAD load_halves
#define CF_ACT_LOAD ACT_F32
#define CF_MAC(sum, w, x, substep) float_mac(sum, w, x)
#define CF_TERMS no_terms
#define CF_FINISH float_finish
#include "gemv_tile.inl"
#include "tile_end.inl"

#define CF_KERNEL f32f32
#define CF_TYPE CFLOW_TYPE_F32
#define CF_PASSES 8u
#define CF_STEPS 4u
#define CF_STEP_BYTES 64u
#define CF_SUBSTEPS 1u
#define CF_CHAINS 2u
#define cf_sums float32x4_t
#define cf_weights float32x4_t
#define cf_activation float32x4_t
#define CF_ZERO_SUMS vdupq_n_f32(0)
#define CF_WEIGHT_LOAD load_f32_weights
#define CF_ACT_LOAD ACT_F32
#define CF_MAC(sum, w, x, substep) float_mac(sum, w, x)
#define CF_TERMS no_terms
#define CF_FINISH float_finish
#include "gemv_tile.inl"
#include "tile_end.inl"

/* ---- row-major q4_0 ----------------------------------------------------------------------------------------------- */

CF_INLINE float32x4_t load_row_scale(const uint8_t *pointer)
{
    uint16_t half;
    memcpy(&half, pointer, sizeof half);
    return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half)));
}

/* The 16 code bytes of a GGUF block: low nibbles are columns 0..15, high nibbles 16..31. */
CF_INLINE int8x16_t low_codes(uint8x16_t bytes)
{
    return vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15)));
}

CF_INLINE int8x16_t high_codes(uint8x16_t bytes)
{
    return vreinterpretq_s8_u8(vshrq_n_u8(bytes, 4));
}

typedef struct row_act_q8 {
    int8x16_t low, high; /* columns 0..15, 16..31 */
    int32x4_t zero;      /* -8 * sum of codes in lane 0: the zero point of all 32 columns */
    float scale;
} row_act_q8;

CF_INLINE row_act_q8 load_row_act_q8(const cf_act *x, uint32_t block)
{
    const int8_t *const codes = x->codes + (size_t)block * CF_BLOCK;
    return (row_act_q8){
        .low = CF_LOAD_ACT(load_act_codes, codes, 16),
        .high = CF_LOAD_ACT(load_act_codes, codes + 16, 16),
        .zero = vsetq_lane_s32(-8 * ACT_SUM(x, block), vdupq_n_s32(0), 0),
        .scale = ACT_SCALE(x, block),
    };
}

CF_INLINE float32x4_t row_block_q8(float32x4_t sum, const uint8_t *block, const row_act_q8 *act)
{
    const uint8x16_t bytes = CF_LOAD_WEIGHT(load_codes, block + 2, 16);
    const int32x4_t low = vdotq_s32(act->zero, low_codes(bytes), act->low);
    const int32x4_t both = vdotq_s32(low, high_codes(bytes), act->high);
    const float32x4_t scale = vmulq_n_f32(CF_LOAD_SCALE(load_row_scale, block, 2), act->scale);
    return vfmaq_f32(sum, vcvtq_f32_s32(both), scale);
}

typedef struct row_act_f32 {
    float32x4_t x[8]; /* columns 4 i .. 4 i + 3 of the block */
} row_act_f32;

CF_INLINE row_act_f32 load_row_act_f32(const cf_act *x, uint32_t block)
{
    row_act_f32 act;
    CF_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        act.x[i] = ACT_F32(x, block, 4u * i);
    }
    return act;
}

/* sum + 16 signed bytes times 16 floats. */
CF_INLINE float32x4_t row_mac(float32x4_t sum, int8x16_t codes, const float32x4_t x[4])
{
    const int16x8_t low = vmovl_s8(vget_low_s8(codes)), high = vmovl_high_s8(codes);
    sum = vfmaq_f32(sum, vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), x[0]);
    sum = vfmaq_f32(sum, vcvtq_f32_s32(vmovl_high_s16(low)), x[1]);
    sum = vfmaq_f32(sum, vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), x[2]);
    return vfmaq_f32(sum, vcvtq_f32_s32(vmovl_high_s16(high)), x[3]);
}

CF_INLINE float32x4_t row_block_f32(float32x4_t sum, const uint8_t *block, const row_act_f32 *act)
{
    const uint8x16_t bytes = CF_LOAD_WEIGHT(load_codes, block + 2, 16);
    const int8x16_t zero_point = vdupq_n_s8(8);
    const float32x4_t none = vdupq_n_f32(0);
    const float32x4_t first = row_mac(none, vsubq_s8(low_codes(bytes), zero_point), act->x);
    const float32x4_t second = row_mac(none, vsubq_s8(high_codes(bytes), zero_point), act->x + 4);
    return vfmaq_f32(sum, vaddq_f32(first, second), CF_LOAD_SCALE(load_row_scale, block, 2));
}

CF_INLINE float row_total(float32x4_t sum)
{
    return vaddvq_f32(sum);
}

#define CF_ROWS_KERNEL q4_0q8_rows
#define cf_row_sum float32x4_t
#define cf_row_act row_act_q8
#define CF_ROW_ZERO vdupq_n_f32(0)
#define CF_ROW_ACT load_row_act_q8
#define CF_ROW_BLOCK row_block_q8
#define CF_ROW_TOTAL row_total
#include "gemv_rows.inl"

#define CF_ROWS_KERNEL q4_0f32_rows
#define cf_row_sum float32x4_t
#define cf_row_act row_act_f32
#define CF_ROW_ZERO vdupq_n_f32(0)
#define CF_ROW_ACT load_row_act_f32
#define CF_ROW_BLOCK row_block_f32
#define CF_ROW_TOTAL row_total
#include "gemv_rows.inl"

/* ---- table -------------------------------------------------------------------------------------------------------- */

#define NEED_SUMS (CF_NEED_F32 | CF_NEED_F32_SUMS)

static const cf_kernel kernels[] = {
    CF_TILE_ENTRY(Q4_0, q4_0, 1, q8, NEONDOT, neondot, CF_NEED_Q8),
    CF_GEMM_ENTRY(Q4_0, q4_0, 1, q8, NEONDOT, neondot, CF_NEED_Q8),
    CF_TILE_ENTRY(Q4_1, q4_1, 1, q8, NEONDOT, neondot, CF_NEED_Q8),
    CF_GEMM_ENTRY(Q4_1, q4_1, 1, q8, NEONDOT, neondot, CF_NEED_Q8),
    CF_TILE_ENTRY(Q8_0, q8_0, 1, q8, NEONDOT, neondot, CF_NEED_Q8),
    CF_GEMM_ENTRY(Q8_0, q8_0, 1, q8, NEONDOT, neondot, CF_NEED_Q8),
    CF_TILE_ENTRY(Q4_0, q4_0, 0, f32, NEONDOT, neondot, NEED_SUMS),
    CF_TILE_ENTRY(Q4_1, q4_1, 0, f32, NEONDOT, neondot, NEED_SUMS),
    CF_TILE_ENTRY(Q8_0, q8_0, 0, f32, NEONDOT, neondot, CF_NEED_F32),
    CF_TILE_ENTRY(F16, f16, 0, f32, NEONDOT, neondot, CF_NEED_F32),
    CF_TILE_ENTRY(F32, f32, 0, f32, NEONDOT, neondot, CF_NEED_F32),
    CF_ROWS_ENTRIES(1, q8, NEONDOT, neondot, CF_NEED_Q8),
    CF_ROWS_ENTRIES(0, f32, NEONDOT, neondot, CF_NEED_F32),
};

const cf_kernel_list cf_kernels_neondot = {kernels, sizeof kernels / sizeof kernels[0]};

#endif
