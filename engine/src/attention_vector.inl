/*
 * attention_vector.inl - KV cache rows with vectors, included once per instruction set. Each row is loaded, and converted,
 * once for all queries of a call or for most of them; a query's sums have one order whatever the others are, and whatever
 * the width of the vectors. What it needs, beside kernel_inline.h:
 *   CF_KV_OPS                        name of the two sets of operations to define
 *   cf_vector, CF_LANES              a vector and its floats
 *   cf_folded                        what is left of 16 lanes on the way to their sum
 *   cf_four                          four floats
 *   zero_vector(), load_floats(pointer), store_floats(pointer, vector), broadcast(pointer)
 *   load_vector(row, i, f32)         elements i, i + 1, ... of a row of the cache, as floats
 *   multiply_add(a, b, c)            a * b + c, rounded once
 *   fold(vectors), fold_nothing()    of CF_SIXTEEN vectors; of zeros
 *   sum_folded(folded)               of four: with s[i] = lane i + lane i + 8, and t[i] = s[i] + s[i + 4], number r
 *                                    is (t[0] + t[2]) + (t[1] + t[3]) of folded[r]
 *   times(four, scale), store_four(pointer, four)
 *   store_f16(row, in, n)            as cf_kv_ops.store
 */
#include "softmax_inline.h"

#include <math.h>

#define CF_SIXTEEN (16 / CF_LANES)

/* Rows whose scores are made side by side. */
enum { SCORE_ROWS = 4 };

CF_INLINE size_t element_bytes(int f32)
{
    return f32 ? sizeof(float) : sizeof(uint16_t);
}

CF_INLINE float load1(const uint8_t *row, size_t i, int f32)
{
    const void *at = row + i * element_bytes(f32);
    return f32 ? *(const float *)at : cf_half_to_float(*(const uint16_t *)at);
}

static void store_f32(void *row, const float *in, size_t n)
{
    memcpy(row, in, n * sizeof *in);
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* Sums in lanes of `queries` times `rows` products, left in lanes[query][row]; n - n % 16 columns in 16 lanes each. */
CF_INLINE void dot_lanes(cf_folded lanes[][SCORE_ROWS], const float *in, const uint8_t *row, size_t row_bytes, size_t n,
                         int f32, size_t queries, size_t rows)
{
    cf_vector sum[4][SCORE_ROWS][CF_SIXTEEN];
    CF_UNROLL
    for (size_t q = 0; q < queries; q++) {
        CF_UNROLL
        for (size_t r = 0; r < rows; r++) {
            CF_UNROLL
            for (size_t v = 0; v < CF_SIXTEEN; v++) {
                sum[q][r][v] = zero_vector();
            }
        }
    }
    for (size_t i = 0; i + 16 <= n; i += 16) {
        CF_UNROLL
        for (size_t v = 0; v < CF_SIXTEEN; v++) {
            cf_vector x[SCORE_ROWS];
            CF_UNROLL
            for (size_t r = 0; r < rows; r++) {
                x[r] = load_vector(row + r * row_bytes, i + v * CF_LANES, f32);
            }
            CF_UNROLL
            for (size_t q = 0; q < queries; q++) {
                const cf_vector y = load_floats(in + q * n + i + v * CF_LANES);
                CF_UNROLL
                for (size_t r = 0; r < rows; r++) {
                    sum[q][r][v] = multiply_add(y, x[r], sum[q][r][v]);
                }
            }
        }
    }
    CF_UNROLL
    for (size_t q = 0; q < queries; q++) {
        CF_UNROLL
        for (size_t r = 0; r < rows; r++) {
            lanes[q][r] = fold(sum[q][r]);
        }
    }
}

/* `rows` <= SCORE_ROWS rows from their sums in lanes: the columns that fill no vectors, the scale, and the store. */
CF_INLINE void finish_scores(float *scores, size_t stride, const cf_folded lanes[][SCORE_ROWS], const float *in,
                             const uint8_t *row, size_t rows, size_t n, float scale, int f32, size_t queries)
{
    const size_t whole = n - n % 16;
    CF_UNROLL
    for (size_t q = 0; q < queries; q++) {
        const cf_four sums = sum_folded(lanes[q]);
        if (rows == SCORE_ROWS && whole == n) {
            store_four(scores + q * stride, times(sums, scale));
            continue;
        }
        float sum[SCORE_ROWS];
        store_four(sum, sums);
        for (size_t r = 0; r < rows; r++) {
            for (size_t i = whole; i < n; i++) {
                sum[r] = fmaf(in[q * n + i], load1(row + r * n * element_bytes(f32), i, f32), sum[r]);
            }
            scores[q * stride + r] = sum[r] * scale;
        }
    }
}

CF_INLINE void score(float *scores, size_t stride, const float *in, const uint8_t *rows, size_t count, size_t n,
                     float scale, int f32, size_t queries)
{
    /* Rows side by side such that the sums of all chains fill the registers: queries * rows * 2 of 8 lanes <= 12. */
    const size_t side = queries == 1 ? 4 : 2;
    const size_t row_bytes = n * element_bytes(f32);
    cf_folded lanes[4][SCORE_ROWS];
    size_t j = 0;
    for (; j + SCORE_ROWS <= count; j += SCORE_ROWS) {
        const uint8_t *row = rows + j * row_bytes;
        CF_UNROLL
        for (size_t r = 0; r < SCORE_ROWS; r += side) {
            if (queries == 4) {
                cf_folded part[2][2][SCORE_ROWS];
                dot_lanes(part[0], in, row + r * row_bytes, row_bytes, n, f32, 2, side);
                dot_lanes(part[1], in + 2 * n, row + r * row_bytes, row_bytes, n, f32, 2, side);
                CF_UNROLL
                for (size_t k = 0; k < side; k++) {
                    lanes[0][r + k] = part[0][0][k];
                    lanes[1][r + k] = part[0][1][k];
                    lanes[2][r + k] = part[1][0][k];
                    lanes[3][r + k] = part[1][1][k];
                }
            } else {
                cf_folded part[3][SCORE_ROWS];
                dot_lanes(part, in, row + r * row_bytes, row_bytes, n, f32, queries, side);
                CF_UNROLL
                for (size_t q = 0; q < queries; q++) {
                    CF_UNROLL
                    for (size_t k = 0; k < side; k++) {
                        lanes[q][r + k] = part[q][k];
                    }
                }
            }
        }
        finish_scores(scores + j, stride, lanes, in, row, SCORE_ROWS, n, scale, f32, queries);
    }
    if (j < count) {
        const uint8_t *row = rows + j * row_bytes;
        for (size_t r = 0; r < SCORE_ROWS; r++) {
            cf_folded part[4][SCORE_ROWS];
            if (j + r < count) {
                dot_lanes(part, in, row + r * row_bytes, row_bytes, n, f32, queries, 1);
            }
            CF_UNROLL
            for (size_t q = 0; q < queries; q++) {
                lanes[q][r] = j + r < count ? part[q][0] : fold_nothing();
            }
        }
        finish_scores(scores + j, stride, lanes, in, row, count - j, n, scale, f32, queries);
    }
}

/* ---- weighted values --------------------------------------------------------------------------------------------- */

/* Columns i to i + CF_LANES * vectors - 1 of all rows, summed in registers. */
CF_INLINE void weigh_columns(float *out, size_t out_stride, const float *weights, size_t stride, const uint8_t *rows,
                             size_t count, size_t n, size_t i, int f32, size_t queries, size_t vectors)
{
    cf_vector sum[4][8];
    CF_UNROLL
    for (size_t q = 0; q < queries; q++) {
        CF_UNROLL
        for (size_t v = 0; v < vectors; v++) {
            sum[q][v] = load_floats(out + q * out_stride + i + CF_LANES * v);
        }
    }
    for (size_t j = 0; j < count; j++) {
        cf_vector w[4];
        CF_UNROLL
        for (size_t q = 0; q < queries; q++) {
            w[q] = broadcast(weights + q * stride + j);
        }
        CF_UNROLL
        for (size_t v = 0; v < vectors; v++) {
            const cf_vector x = load_vector(rows + j * n * element_bytes(f32), i + CF_LANES * v, f32);
            CF_UNROLL
            for (size_t q = 0; q < queries; q++) {
                sum[q][v] = multiply_add(w[q], x, sum[q][v]);
            }
        }
    }
    CF_UNROLL
    for (size_t q = 0; q < queries; q++) {
        CF_UNROLL
        for (size_t v = 0; v < vectors; v++) {
            store_floats(out + q * out_stride + i + CF_LANES * v, sum[q][v]);
        }
    }
}

CF_INLINE void weigh(float *out, size_t out_stride, const float *weights, size_t stride, const uint8_t *rows,
                     size_t count, size_t n, int f32, size_t queries)
{
    /* Eight sums or more hide the latency of the multiply-add; with the weights and a value they fit 16 registers. */
    const size_t vectors = queries == 1 ? 8 : queries == 4 ? 2 : 4;
    size_t i = 0;
    for (; i + CF_LANES * vectors <= n; i += CF_LANES * vectors) {
        weigh_columns(out, out_stride, weights, stride, rows, count, n, i, f32, queries, vectors);
    }
    for (; i + CF_LANES <= n; i += CF_LANES) {
        weigh_columns(out, out_stride, weights, stride, rows, count, n, i, f32, queries, 1);
    }
    for (; i < n; i++) {
        for (size_t j = 0; j < count; j++) {
            const float x = load1(rows + j * n * element_bytes(f32), i, f32);
            for (size_t q = 0; q < queries; q++) {
                out[q * out_stride + i] = fmaf(weights[q * stride + j], x, out[q * out_stride + i]);
            }
        }
    }
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* A sum waits for each addition; those of several queries wait together. */
CF_INLINE void sum_scores(float *sum, const float *scores, size_t stride, size_t count, size_t queries)
{
    CF_UNROLL
    for (size_t q = 0; q < queries; q++) {
        sum[q] = 0.0f;
    }
    for (size_t j = 0; j < count; j++) {
        CF_UNROLL
        for (size_t q = 0; q < queries; q++) {
            sum[q] += scores[q * stride + j];
        }
    }
}

/* ---- the operations, for each number of queries ------------------------------------------------------------------ */

#define FOR_QUERIES(query_count, call, ...)                                                                            \
    switch (query_count) {                                                                                             \
    case 1:                                                                                                            \
        call(__VA_ARGS__, 1);                                                                                          \
        break;                                                                                                         \
    case 2:                                                                                                            \
        call(__VA_ARGS__, 2);                                                                                          \
        break;                                                                                                         \
    case 3:                                                                                                            \
        call(__VA_ARGS__, 3);                                                                                          \
        break;                                                                                                         \
    default:                                                                                                           \
        call(__VA_ARGS__, 4);                                                                                          \
        break;                                                                                                         \
    }

static void softmax(float *scores, size_t stride, size_t query_count, size_t count, size_t step)
{
    float sum[CF_QUERIES];
    for (size_t q = 0; q < query_count; q++) {
        cf_softmax_numerators(scores + q * stride, count + q * step);
    }
    FOR_QUERIES(query_count, sum_scores, sum, scores, stride, count)
    for (size_t q = 0; q < query_count; q++) {
        for (size_t j = count; j < count + q * step; j++) {
            sum[q] += scores[q * stride + j];
        }
        cf_softmax_divide(scores + q * stride, count + q * step, sum[q]);
    }
}

#define SCORE_AND_WEIGH(type, f32)                                                                                     \
    static void score_##type(float *scores, size_t stride, const float *queries, size_t query_count,                   \
                             const uint8_t *rows, size_t count, size_t n, float scale)                                 \
    {                                                                                                                  \
        FOR_QUERIES(query_count, score, scores, stride, queries, rows, count, n, scale, f32)                           \
    }                                                                                                                  \
    static void weigh_##type(float *out, size_t out_stride, const float *weights, size_t stride, size_t query_count,   \
                             const uint8_t *rows, size_t count, size_t n)                                              \
    {                                                                                                                  \
        FOR_QUERIES(query_count, weigh, out, out_stride, weights, stride, rows, count, n, f32)                         \
    }

SCORE_AND_WEIGH(f16, 0)
SCORE_AND_WEIGH(f32, 1)

const cf_kv_ops CF_KV_OPS[2] = {
    {2, store_f16, score_f16, softmax, weigh_f16},
    {4, store_f32, score_f32, softmax, weigh_f32},
};
