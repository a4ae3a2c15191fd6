/*
 * attention_avx2.c - KV cache rows with AVX2, FMA and F16C. Each row is loaded, and converted, once for all queries of a
 * call or for most of them; a query's sums have one order whatever the others are.
 */
#include "attention.h"
#include "half.h"

#if defined(__x86_64__)

#include "kernel_inline.h"
#include "softmax_inline.h"

#include <immintrin.h>
#include <math.h>

CF_INLINE size_t element_bytes(int f32)
{
    return f32 ? sizeof(float) : sizeof(uint16_t);
}

CF_INLINE __m256 load8(const uint8_t *row, size_t i, int f32)
{
    const uint8_t *at = row + i * element_bytes(f32);
    return f32 ? _mm256_loadu_ps((const float *)(const void *)at)
               : _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)at));
}

CF_INLINE float load1(const uint8_t *row, size_t i, int f32)
{
    const void *at = row + i * element_bytes(f32);
    return f32 ? *(const float *)at : cf_half_to_float(*(const uint16_t *)at);
}

static void store_f16(void *row, const float *in, size_t n)
{
    uint16_t *out = row;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm_storeu_si128((__m128i *)(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    }
    for (; i < n; i++) {
        out[i] = cf_float_to_half(in[i]);
    }
}

static void store_f32(void *row, const float *in, size_t n)
{
    memcpy(row, in, n * sizeof *in);
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* Rows whose scores are made side by side. */
enum { SCORE_ROWS = 4 };

/* Sums in lanes of `queries` times `rows` products, left in lanes[query][row]; n - n % 16 columns. */
CF_INLINE void dot_lanes(__m256 lanes[][SCORE_ROWS], const float *in, const uint8_t *row, size_t row_bytes, size_t n,
                         int f32, size_t queries, size_t rows)
{
    __m256 a[4][SCORE_ROWS], b[4][SCORE_ROWS];
    CF_UNROLL
    for (size_t q = 0; q < queries; q++) {
        CF_UNROLL
        for (size_t r = 0; r < rows; r++) {
            a[q][r] = b[q][r] = _mm256_setzero_ps();
        }
    }
    for (size_t i = 0; i + 16 <= n; i += 16) {
        __m256 x[SCORE_ROWS];
        CF_UNROLL
        for (size_t r = 0; r < rows; r++) {
            x[r] = load8(row + r * row_bytes, i, f32);
        }
        CF_UNROLL
        for (size_t q = 0; q < queries; q++) {
            const __m256 y = _mm256_loadu_ps(in + q * n + i);
            CF_UNROLL
            for (size_t r = 0; r < rows; r++) {
                a[q][r] = _mm256_fmadd_ps(y, x[r], a[q][r]);
            }
        }
        CF_UNROLL
        for (size_t r = 0; r < rows; r++) {
            x[r] = load8(row + r * row_bytes, i + 8, f32);
        }
        CF_UNROLL
        for (size_t q = 0; q < queries; q++) {
            const __m256 y = _mm256_loadu_ps(in + q * n + i + 8);
            CF_UNROLL
            for (size_t r = 0; r < rows; r++) {
                b[q][r] = _mm256_fmadd_ps(y, x[r], b[q][r]);
            }
        }
    }
    CF_UNROLL
    for (size_t q = 0; q < queries; q++) {
        CF_UNROLL
        for (size_t r = 0; r < rows; r++) {
            lanes[q][r] = _mm256_add_ps(a[q][r], b[q][r]);
        }
    }
}

/* Lane r: with s[i] = lanes[r][i] + lanes[r][i + 4], (s[0] + s[2]) + (s[1] + s[3]). */
CF_INLINE __m128 sum_lanes(const __m256 lanes[SCORE_ROWS])
{
    __m128 s[SCORE_ROWS];
    CF_UNROLL
    for (size_t r = 0; r < SCORE_ROWS; r++) {
        s[r] = _mm_add_ps(_mm256_castps256_ps128(lanes[r]), _mm256_extractf128_ps(lanes[r], 1));
    }
    const __m128 low = _mm_add_ps(_mm_unpacklo_ps(s[0], s[1]), _mm_unpackhi_ps(s[0], s[1]));
    const __m128 high = _mm_add_ps(_mm_unpacklo_ps(s[2], s[3]), _mm_unpackhi_ps(s[2], s[3]));
    return _mm_add_ps(_mm_movelh_ps(low, high), _mm_movehl_ps(high, low));
}

/* `rows` <= SCORE_ROWS rows from their sums in lanes: the columns that fill no vectors, the scale, and the store. */
CF_INLINE void finish_scores(float *scores, size_t stride, const __m256 lanes[][SCORE_ROWS], const float *in,
                             const uint8_t *row, size_t rows, size_t n, float scale, int f32, size_t queries)
{
    const size_t whole = n - n % 16;
    CF_UNROLL
    for (size_t q = 0; q < queries; q++) {
        const __m128 sums = sum_lanes(lanes[q]);
        if (rows == SCORE_ROWS && whole == n) {
            _mm_storeu_ps(scores + q * stride, _mm_mul_ps(sums, _mm_set1_ps(scale)));
            continue;
        }
        float sum[SCORE_ROWS];
        _mm_storeu_ps(sum, sums);
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
    /* Rows side by side such that the sums of all chains fill the registers: queries * rows * 2 <= 12. */
    const size_t side = queries == 1 ? 4 : 2;
    const size_t row_bytes = n * element_bytes(f32);
    __m256 lanes[4][SCORE_ROWS];
    size_t j = 0;
    for (; j + SCORE_ROWS <= count; j += SCORE_ROWS) {
        const uint8_t *row = rows + j * row_bytes;
        CF_UNROLL
        for (size_t r = 0; r < SCORE_ROWS; r += side) {
            if (queries == 4) {
                __m256 part[2][2][SCORE_ROWS];
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
                __m256 part[3][SCORE_ROWS];
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
            __m256 part[4][SCORE_ROWS];
            if (j + r < count) {
                dot_lanes(part, in, row + r * row_bytes, row_bytes, n, f32, queries, 1);
            }
            CF_UNROLL
            for (size_t q = 0; q < queries; q++) {
                lanes[q][r] = j + r < count ? part[q][0] : _mm256_setzero_ps();
            }
        }
        finish_scores(scores + j, stride, lanes, in, row, count - j, n, scale, f32, queries);
    }
}

/* ---- weighted values --------------------------------------------------------------------------------------------- */

/* Columns i to i + 8 * vectors - 1 of all rows, summed in registers. */
CF_INLINE void weigh_columns(float *out, size_t out_stride, const float *weights, size_t stride, const uint8_t *rows,
                             size_t count, size_t n, size_t i, int f32, size_t queries, size_t vectors)
{
    __m256 sum[4][8];
    CF_UNROLL
    for (size_t q = 0; q < queries; q++) {
        CF_UNROLL
        for (size_t v = 0; v < vectors; v++) {
            sum[q][v] = _mm256_loadu_ps(out + q * out_stride + i + 8 * v);
        }
    }
    for (size_t j = 0; j < count; j++) {
        __m256 w[4];
        CF_UNROLL
        for (size_t q = 0; q < queries; q++) {
            w[q] = _mm256_broadcast_ss(weights + q * stride + j);
        }
        CF_UNROLL
        for (size_t v = 0; v < vectors; v++) {
            const __m256 x = load8(rows + j * n * element_bytes(f32), i + 8 * v, f32);
            CF_UNROLL
            for (size_t q = 0; q < queries; q++) {
                sum[q][v] = _mm256_fmadd_ps(w[q], x, sum[q][v]);
            }
        }
    }
    CF_UNROLL
    for (size_t q = 0; q < queries; q++) {
        CF_UNROLL
        for (size_t v = 0; v < vectors; v++) {
            _mm256_storeu_ps(out + q * out_stride + i + 8 * v, sum[q][v]);
        }
    }
}

CF_INLINE void weigh(float *out, size_t out_stride, const float *weights, size_t stride, const uint8_t *rows,
                     size_t count, size_t n, int f32, size_t queries)
{
    /* Eight sums or more hide the latency of the multiply-add; with the weights and a value they fit 16 registers. */
    const size_t vectors = queries == 1 ? 8 : queries == 4 ? 2 : 4;
    size_t i = 0;
    for (; i + 8 * vectors <= n; i += 8 * vectors) {
        weigh_columns(out, out_stride, weights, stride, rows, count, n, i, f32, queries, vectors);
    }
    for (; i + 8 <= n; i += 8) {
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

const cf_kv_ops cf_kv_ops_avx2[2] = {
    {2, store_f16, score_f16, softmax, weigh_f16},
    {4, store_f32, score_f32, softmax, weigh_f32},
};

#else
typedef int cf_no_attention_avx2;
#endif
