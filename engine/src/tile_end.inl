/* tile_end.inl - forgets what gemv_tile.inl and gemm_tile.inl were given, so that the next kernel can be defined. */
#undef CF_KERNEL
#undef CF_TYPE
#undef CF_PASSES
#undef CF_STEPS
#undef CF_STEP_BYTES
#undef CF_SUBSTEPS
#undef CF_CHAINS
#undef CF_ACT_LOAD
#undef CF_WEIGHT_LOAD
#undef CF_ZERO_SUMS
#undef CF_MAC
#undef CF_TERMS
#undef CF_FINISH
#undef cf_sums
#undef cf_weights
#undef cf_activation
