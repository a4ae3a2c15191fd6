/*
 * gemv_tile.inl - the loop structure of every tiled vector kernel, included once per kernel; gemm_tile.inl may follow, and
 * tile_end.inl ends it. What they need:
 *   CF_KERNEL        name of the function to define
 *   CF_TYPE          cflow_type of the weights
 *   CF_VECTORS       vectors per 16 rows: 4 of 4 lanes, 2 of 8 or 1 of 16
 *   CF_PASSES        times that the steps below are run to cover a block; a loop, to keep the code small
 *   CF_STEPS         weight loads per pass and vector
 *   CF_STEP_BYTES    bytes of the 16 rows per step
 *   CF_SUBSTEPS      activations per step: a step multiplies each loaded weight vector this often
 *   CF_CHAINS        independent accumulators per vector inside a block
 *   CF_ACT_SPAN      consecutive activations that one load brings; those of a pass are whole loads
 *   CF_ACT_LOAD(x, block, i)     activations i .. i + CF_ACT_SPAN - 1 of the block, counted over passes, steps, substeps
 *   CF_ACT_PICK(loaded, k)       number k of a load, as CF_MAC takes it: in all lanes, or named with its lane
 *   CF_WEIGHT_LOAD(pointer)      the weights of one step and vector
 *   CF_ZERO_SUMS                 an empty accumulator
 *   CF_MAC(sum, w, x, substep)   sum + w's values of this substep * x
 *   CF_TERMS(x, block)           cf_terms of the block: what its activations contribute once
 *   CF_FINISH(y, sums, scales, minima, terms)   y + the block; scales, minima: those of the vector's rows
 * and the types cf_floats (16 / CF_VECTORS lanes), cf_sums (accumulator), cf_weights, cf_activation and cf_terms. Loops
 * over parts, vectors, steps, substeps and chains have constant counts and are unrolled whole: each activation register
 * serves every vector of every part before the next one is loaded.
 */

CF_INLINE void CF_JOIN(CF_KERNEL, _body)(const cf_gemv_call *call, const uint32_t parts, const int hint)
{
    const uint32_t blocks = cf_blocks_computed(call->blocks);
    const size_t head_bytes = cf_group_head_bytes(CF_TYPE, call->blocks);
    const size_t section_bytes = cf_pad64((size_t)call->blocks * CF_GROUP_ROWS * 2u);
    const size_t group_bytes = cf_group_bytes(CF_TYPE, call->blocks);
    const uint32_t distance = call->prefetch_bytes;
    const cf_act *const x = &call->x;
    const uint8_t *group[CF_MAX_LANES] = {call->weights[0], call->weights[1], call->weights[2], call->weights[3]};

    for (uint32_t g = 0; g < call->groups; g++) {
        cf_floats y[CF_MAX_LANES][CF_VECTORS];
        const uint8_t *codes[CF_MAX_LANES];
        CF_UNROLL
        for (uint32_t p = 0; p < parts; p++) {
            codes[p] = group[p] + head_bytes;
            cf_touch(group[p], head_bytes);
            CF_UNROLL
            for (uint32_t v = 0; v < CF_VECTORS; v++) {
                y[p][v] = CF_LOAD_OUTPUT(cf_load_floats,
                                         call->y[p] + (size_t)g * CF_GROUP_ROWS + v * (CF_GROUP_ROWS / CF_VECTORS),
                                         CF_GROUP_ROWS / CF_VECTORS * sizeof(float));
            }
        }
        for (uint32_t b = 0; b < blocks; b++) {
            cf_sums sums[CF_MAX_LANES][CF_VECTORS][CF_CHAINS];
            CF_UNROLL
            for (uint32_t p = 0; p < parts; p++) {
                CF_UNROLL
                for (uint32_t v = 0; v < CF_VECTORS; v++) {
                    CF_UNROLL
                    for (uint32_t c = 0; c < CF_CHAINS; c++) {
                        sums[p][v][c] = CF_ZERO_SUMS;
                    }
                }
            }
            for (uint32_t pass = 0; pass < CF_PASSES; pass++) {
                cf_activation loaded;
                CF_UNROLL
                for (uint32_t s = 0; s < CF_STEPS; s++) {
                    cf_weights w[CF_MAX_LANES][CF_VECTORS];
                    CF_UNROLL
                    for (uint32_t p = 0; p < parts; p++) {
                        const uint8_t *const step = codes[p] + (size_t)(pass * CF_STEPS + s) * CF_STEP_BYTES;
                        if (s * CF_STEP_BYTES % CF_CACHE_LINE == 0) {
                            cf_prefetch(step, distance, hint);
                        }
                        CF_UNROLL
                        for (uint32_t v = 0; v < CF_VECTORS; v++) {
                            w[p][v] = CF_LOAD_WEIGHT(CF_WEIGHT_LOAD, step + v * (CF_STEP_BYTES / CF_VECTORS),
                                                     CF_STEP_BYTES / CF_VECTORS);
                        }
                    }
                    CF_UNROLL
                    for (uint32_t t = 0; t < CF_SUBSTEPS; t++) {
                        const uint32_t i = s * CF_SUBSTEPS + t;
                        if (i % CF_ACT_SPAN == 0) {
                            loaded = CF_ACT_LOAD(x, b, pass * CF_STEPS * CF_SUBSTEPS + i);
                        }
                        CF_UNROLL
                        for (uint32_t p = 0; p < parts; p++) {
                            CF_UNROLL
                            for (uint32_t v = 0; v < CF_VECTORS; v++) {
                                sums[p][v][i % CF_CHAINS] =
                                    CF_MAC(sums[p][v][i % CF_CHAINS], w[p][v], CF_ACT_PICK(loaded, i % CF_ACT_SPAN), t);
                            }
                        }
                    }
                }
            }
            const cf_terms terms = CF_TERMS(x, b);
            CF_UNROLL
            for (uint32_t p = 0; p < parts; p++) {
                CF_UNROLL
                for (uint32_t v = 0; v < CF_VECTORS; v++) {
                    const uint8_t *const scales = group[p] + (size_t)b * CF_GROUP_ROWS * 2u + v * (32u / CF_VECTORS);
                    y[p][v] = CF_FINISH(y[p][v], sums[p][v], scales, scales + section_bytes, &terms);
                }
                codes[p] += CF_PASSES * CF_STEPS * CF_STEP_BYTES;
            }
        }
        CF_UNROLL
        for (uint32_t p = 0; p < parts; p++) {
            group[p] += group_bytes;
            CF_UNROLL
            for (uint32_t v = 0; v < CF_VECTORS; v++) {
                CF_STORE_OUTPUT(cf_store_floats,
                                call->y[p] + (size_t)g * CF_GROUP_ROWS + v * (CF_GROUP_ROWS / CF_VECTORS), y[p][v],
                                CF_GROUP_ROWS / CF_VECTORS * sizeof(float));
            }
        }
    }
}

/* Turns the prefetch hint into a constant. Emulation and recording compile one body: they take long enough. */
CF_INLINE void CF_JOIN(CF_KERNEL, _hint)(const cf_gemv_call *call, const uint32_t parts)
{
#if defined(CFLOW_SIMDE) || defined(CFLOW_RECORD)
    CF_JOIN(CF_KERNEL, _body)(call, parts, call->prefetch_hint);
#else
    switch (call->prefetch_hint) {
    case CFLOW_PREFETCH_T0:
        CF_JOIN(CF_KERNEL, _body)(call, parts, CFLOW_PREFETCH_T0);
        break;
    case CFLOW_PREFETCH_T1:
        CF_JOIN(CF_KERNEL, _body)(call, parts, CFLOW_PREFETCH_T1);
        break;
    case CFLOW_PREFETCH_T2:
        CF_JOIN(CF_KERNEL, _body)(call, parts, CFLOW_PREFETCH_T2);
        break;
    case CFLOW_PREFETCH_NTA:
        CF_JOIN(CF_KERNEL, _body)(call, parts, CFLOW_PREFETCH_NTA);
        break;
    default:
        CF_JOIN(CF_KERNEL, _body)(call, parts, CFLOW_PREFETCH_NONE);
        break;
    }
#endif
}

static void CF_KERNEL(const cf_gemv_call *call)
{
    switch (call->parts) {
    case 1:
        CF_JOIN(CF_KERNEL, _hint)(call, 1);
        break;
    case 2:
        CF_JOIN(CF_KERNEL, _hint)(call, 2);
        break;
    case 3:
        CF_JOIN(CF_KERNEL, _hint)(call, 3);
        break;
    default:
        CF_JOIN(CF_KERNEL, _hint)(call, 4);
        break;
    }
}
