/*
 * gemv_rows.inl - row-major q4_0 kernels of 1, 2, 4 and 8 rows per pass, included once per activation form. What it needs:
 *   CF_ROWS_KERNEL   stem of the names: _r1, _r2, _r4, _r8 are defined
 *   cf_row_sum       accumulator of one row;  CF_ROW_ZERO its start
 *   cf_row_act       activations of one block;  CF_ROW_ACT(x, block) loads them, once for all rows of the pass
 *   CF_ROW_BLOCK(sum, block_pointer, act)   sum + one GGUF block times the activations
 *   CF_ROW_TOTAL(sum)                       the row's result
 */

CF_INLINE void CF_JOIN(CF_ROWS_KERNEL, _pass)(const uint8_t *rows, size_t row_bytes, uint32_t blocks, const cf_act *x,
                                              float *y, const uint32_t pass_rows)
{
    cf_row_sum sums[8];
    CF_UNROLL
    for (uint32_t r = 0; r < pass_rows; r++) {
        sums[r] = CF_ROW_ZERO;
    }
    for (uint32_t b = 0; b < blocks; b++) {
        const cf_row_act act = CF_ROW_ACT(x, b);
        CF_UNROLL
        for (uint32_t r = 0; r < pass_rows; r++) {
            sums[r] = CF_ROW_BLOCK(sums[r], rows + r * row_bytes + (size_t)b * 18u, &act);
        }
    }
    CF_UNROLL
    for (uint32_t r = 0; r < pass_rows; r++) {
        CF_STORE_OUTPUT(cf_store_float, y + r, CF_ROW_TOTAL(sums[r]), sizeof(float));
    }
}

CF_INLINE void CF_JOIN(CF_ROWS_KERNEL, _all)(const uint8_t *rows, size_t row_bytes, uint32_t n_rows, uint32_t blocks,
                                             const cf_act *x, float *y, const uint32_t pass_rows)
{
    uint32_t r = 0;
    for (; n_rows - r >= pass_rows; r += pass_rows) {
        CF_JOIN(CF_ROWS_KERNEL, _pass)(rows + r * row_bytes, row_bytes, blocks, x, y + r, pass_rows);
    }
    for (; r < n_rows; r++) {
        CF_JOIN(CF_ROWS_KERNEL, _pass)(rows + r * row_bytes, row_bytes, blocks, x, y + r, 1);
    }
}

static void CF_JOIN(CF_ROWS_KERNEL, _r1)(const uint8_t *rows, size_t row_bytes, uint32_t n_rows, uint32_t blocks,
                                         const cf_act *x, float *y)
{
    CF_JOIN(CF_ROWS_KERNEL, _all)(rows, row_bytes, n_rows, blocks, x, y, 1);
}

static void CF_JOIN(CF_ROWS_KERNEL, _r2)(const uint8_t *rows, size_t row_bytes, uint32_t n_rows, uint32_t blocks,
                                         const cf_act *x, float *y)
{
    CF_JOIN(CF_ROWS_KERNEL, _all)(rows, row_bytes, n_rows, blocks, x, y, 2);
}

static void CF_JOIN(CF_ROWS_KERNEL, _r4)(const uint8_t *rows, size_t row_bytes, uint32_t n_rows, uint32_t blocks,
                                         const cf_act *x, float *y)
{
    CF_JOIN(CF_ROWS_KERNEL, _all)(rows, row_bytes, n_rows, blocks, x, y, 4);
}

static void CF_JOIN(CF_ROWS_KERNEL, _r8)(const uint8_t *rows, size_t row_bytes, uint32_t n_rows, uint32_t blocks,
                                         const cf_act *x, float *y)
{
    CF_JOIN(CF_ROWS_KERNEL, _all)(rows, row_bytes, n_rows, blocks, x, y, 8);
}

#undef CF_ROWS_KERNEL
#undef CF_ROW_ZERO
#undef CF_ROW_ACT
#undef CF_ROW_BLOCK
#undef CF_ROW_TOTAL
#undef cf_row_sum
#undef cf_row_act
