/*
 * gemm_tile.inl - the twin of a tiled kernel that multiplies CF_PANEL vectors at once: included after gemv_tile.inl, with
 * the same definitions, it defines the function CF_KERNEL_gemm. Weights are loaded and unpacked once for all vectors of
 * the panel; per vector the operations and their order are those of the vector kernel, so the results have its bits.
 * Block b of vector n is block b * CF_PANEL + n of the panel (gemm.h).
 */
static void CF_JOIN(CF_KERNEL, _gemm)(const cf_gemm_call *call)
{
    const uint32_t blocks = cf_blocks_computed(call->blocks);
    const size_t head_bytes = cf_group_head_bytes(CF_TYPE, call->blocks);
    const size_t section_bytes = cf_pad64((size_t)call->blocks * CF_GROUP_ROWS * 2u);
    const size_t group_bytes = cf_group_bytes(CF_TYPE, call->blocks);
    const cf_act *const x = &call->panel;
    const uint8_t *group = call->weights;

    for (uint32_t g = 0; g < call->groups; g++) {
        float *const rows = call->y + (size_t)g * CF_GROUP_ROWS;
        const uint8_t *codes = group + head_bytes;
        cf_floats y[CF_PANEL][CF_VECTORS];
        CF_UNROLL
        for (uint32_t n = 0; n < CF_PANEL; n++) {
            CF_UNROLL
            for (uint32_t v = 0; v < CF_VECTORS; v++) {
                y[n][v] = CF_LOAD_OUTPUT(cf_load_floats, rows + n * call->y_stride + v * (CF_GROUP_ROWS / CF_VECTORS),
                                         CF_GROUP_ROWS / CF_VECTORS * sizeof(float));
            }
        }
        for (uint32_t b = 0; b < blocks; b++) {
            cf_sums sums[CF_PANEL][CF_VECTORS][CF_CHAINS];
            CF_UNROLL
            for (uint32_t n = 0; n < CF_PANEL; n++) {
                CF_UNROLL
                for (uint32_t v = 0; v < CF_VECTORS; v++) {
                    CF_UNROLL
                    for (uint32_t c = 0; c < CF_CHAINS; c++) {
                        sums[n][v][c] = CF_ZERO_SUMS;
                    }
                }
            }
            for (uint32_t pass = 0; pass < CF_PASSES; pass++) {
                cf_activation loaded[CF_PANEL];
                CF_UNROLL
                for (uint32_t s = 0; s < CF_STEPS; s++) {
                    const uint8_t *const step = codes + (size_t)(pass * CF_STEPS + s) * CF_STEP_BYTES;
                    cf_weights w[CF_VECTORS];
                    CF_UNROLL
                    for (uint32_t v = 0; v < CF_VECTORS; v++) {
                        w[v] = CF_LOAD_WEIGHT(CF_WEIGHT_LOAD, step + v * (CF_STEP_BYTES / CF_VECTORS),
                                              CF_STEP_BYTES / CF_VECTORS);
                    }
                    CF_UNROLL
                    for (uint32_t t = 0; t < CF_SUBSTEPS; t++) {
                        const uint32_t i = s * CF_SUBSTEPS + t;
                        CF_UNROLL
                        for (uint32_t n = 0; n < CF_PANEL; n++) {
                            if (i % CF_ACT_SPAN == 0) {
                                loaded[n] = CF_ACT_LOAD(x, b * CF_PANEL + n, pass * CF_STEPS * CF_SUBSTEPS + i);
                            }
                            CF_UNROLL
                            for (uint32_t v = 0; v < CF_VECTORS; v++) {
                                sums[n][v][i % CF_CHAINS] =
                                    CF_MAC(sums[n][v][i % CF_CHAINS], w[v], CF_ACT_PICK(loaded[n], i % CF_ACT_SPAN), t);
                                CF_IN_REGISTER(sums[n][v][i % CF_CHAINS]);
                            }
                        }
                    }
                }
            }
            CF_UNROLL
            for (uint32_t n = 0; n < CF_PANEL; n++) {
                const cf_terms terms = CF_TERMS(x, b * CF_PANEL + n);
                CF_UNROLL
                for (uint32_t v = 0; v < CF_VECTORS; v++) {
                    const uint8_t *const scales = group + (size_t)b * CF_GROUP_ROWS * 2u + v * (32u / CF_VECTORS);
                    y[n][v] = CF_FINISH(y[n][v], sums[n][v], scales, scales + section_bytes, &terms);
                }
            }
            codes += CF_PASSES * CF_STEPS * CF_STEP_BYTES;
        }
        CF_UNROLL
        for (uint32_t n = 0; n < CF_PANEL; n++) {
            CF_UNROLL
            for (uint32_t v = 0; v < CF_VECTORS; v++) {
                CF_STORE_OUTPUT(cf_store_floats, rows + n * call->y_stride + v * (CF_GROUP_ROWS / CF_VECTORS), y[n][v],
                                CF_GROUP_ROWS / CF_VECTORS * sizeof(float));
            }
        }
        group += group_bytes;
    }
}
