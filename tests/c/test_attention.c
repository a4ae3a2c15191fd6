/*
 * test_attention.c - rows of the KV cache against one plain loop that has the documented order of every sum: a query's bits
 * depend neither on the others of its group, nor on how the rows are cut, nor on the columns that fill no vector.
 */
#include "attention.h"
#include "cflow.h"
#include "check.h"
#include "half.h"
#include "random.h"
#include "vector.h"

#include <math.h>
#include <string.h>

enum { COLUMNS = 72, CACHED = 23, ROWS = CACHED + CF_QUERIES, STRIDE = 48, OUT_STRIDE = COLUMNS + 3 };

static const cf_kv_ops *ops;
static int is_f32, is_scalar;
static _Alignas(64) uint8_t key_bytes[ROWS * COLUMNS * sizeof(float)], value_bytes[ROWS * COLUMNS * sizeof(float)];
static float queries[CF_QUERIES * COLUMNS], scores[CF_QUERIES * STRIDE], out[CF_QUERIES * OUT_STRIDE];

/* From -2 to 2. */
static void fill(float *values, size_t n, uint64_t *index)
{
    for (size_t i = 0; i < n; i++) {
        values[i] = (float)(cf_splitmix64(0, (*index)++) >> 40) * 0x1p-22f - 2.0f;
    }
}

static float at(const uint8_t *rows, size_t row, size_t i, size_t n)
{
    const void *element = rows + (row * n + i) * ops->element_bytes;
    return is_f32 ? *(const float *)element : cf_half_to_float(*(const uint16_t *)element);
}

static float multiply_add(float a, float b, float c)
{
    return is_scalar ? c + a * b : fmaf(a, b, c);
}

static float expected_score(const float *query, size_t row, size_t n)
{
    float lanes[16] = {0}, sum = 0.0f;
    const size_t whole = is_scalar ? 0 : n - n % 16;
    for (size_t i = 0; i < whole; i++) {
        lanes[i % 16] = fmaf(query[i], at(key_bytes, row, i, n), lanes[i % 16]);
    }
    for (size_t width = 8; whole > 0 && width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) {
            lanes[i] += lanes[i + width];
        }
    }
    sum = lanes[0];
    for (size_t i = whole; i < n; i++) {
        sum = multiply_add(query[i], at(key_bytes, row, i, n), sum);
    }
    return sum * (1.0f / sqrtf((float)n));
}

static void check_query(size_t q, size_t rows, size_t n)
{
    float weights[ROWS];
    for (size_t j = 0; j < rows; j++) {
        weights[j] = expected_score(queries + q * n, j, n);
    }
    cf_vector_softmax(weights, rows);
    int equal = 1;
    for (size_t i = 0; i < n; i++) {
        float sum = 0.0f;
        for (size_t j = 0; j < rows; j++) {
            sum = multiply_add(weights[j], at(value_bytes, j, i, n), sum);
        }
        equal &= memcmp(&sum, &out[q * OUT_STRIDE + i], sizeof sum) == 0;
    }
    CHECK(equal);
}

static void check_groups(size_t n)
{
    const size_t row_bytes = n * ops->element_bytes;
    uint64_t index = 0;
    float row[COLUMNS];
    for (size_t j = 0; j < ROWS; j++) {
        fill(row, n, &index);
        ops->store(key_bytes + j * row_bytes, row, n);
        fill(row, n, &index);
        ops->store(value_bytes + j * row_bytes, row, n);
    }
    fill(queries, CF_QUERIES * n, &index);
    for (size_t count = 0; count <= CACHED; count++) {
        for (size_t group = 1; group <= CF_QUERIES; group++) {
            for (size_t step = 0; step < 2; step++) {
                const cf_queries of = {queries, group, step, out, OUT_STRIDE, scores, STRIDE};
                const cf_kv_rows own = {key_bytes + count * row_bytes, value_bytes + count * row_bytes};
                cf_attention(ops, &of, (cf_kv_rows){key_bytes, value_bytes}, count, own, (uint32_t)n);
                for (size_t q = 0; q < group; q++) {
                    check_query(q, count + 1 + q * step, n);
                }
            }
        }
    }
}

/* What a later token of a chunk holds never reaches an earlier one, not even times zero. */
static void check_later_rows(size_t n)
{
    const size_t row_bytes = n * ops->element_bytes;
    uint64_t index = 0;
    float row[COLUMNS];
    for (size_t j = 0; j < ROWS; j++) {
        fill(row, n, &index);
        if (j == CACHED + 2) {
            row[0] = NAN;
        }
        ops->store(key_bytes + j * row_bytes, row, n);
        ops->store(value_bytes + j * row_bytes, row, n);
    }
    fill(queries, CF_QUERIES * n, &index);
    const cf_queries of = {queries, CF_QUERIES, 1, out, OUT_STRIDE, scores, STRIDE};
    const cf_kv_rows own = {key_bytes + CACHED * row_bytes, value_bytes + CACHED * row_bytes};
    cf_attention(ops, &of, (cf_kv_rows){key_bytes, value_bytes}, CACHED, own, (uint32_t)n);
    check_query(0, CACHED + 1, n);
    check_query(1, CACHED + 2, n);
    CHECK(isnan(out[2 * OUT_STRIDE]) && isnan(out[3 * OUT_STRIDE]));
}

/* Rows beyond what stays in L1-d are weighed in several calls. */
static void check_blocks(void)
{
    enum { N = 8, LONG = 4096 };
    static _Alignas(64) uint8_t rows[LONG * N * sizeof(float)];
    static float long_scores[LONG + 64], query[N], result[N];
    uint64_t index = 0;
    float row[N], mean[N] = {0};
    for (size_t j = 0; j < LONG; j++) {
        fill(row, N, &index);
        ops->store(rows + j * N * ops->element_bytes, row, N);
        for (size_t i = 0; i < N; i++) {
            mean[i] = multiply_add(1.0f / (float)LONG, at(rows, j, i, N), mean[i]);
        }
    }
    /* A query of zeros weighs all rows alike. */
    const cf_queries of = {query, 1, 0, result, N, long_scores, cf_scores_stride(LONG)};
    const size_t last = (LONG - 1) * N * ops->element_bytes;
    cf_attention(ops, &of, (cf_kv_rows){rows, rows}, LONG - 1, (cf_kv_rows){rows + last, rows + last}, N);
    CHECK(memcmp(mean, result, sizeof mean) == 0);
}

int main(void)
{
    static const size_t columns[] = {2, 8, 16, 22, 32, 40, 64, COLUMNS};
    const cf_kv_ops *tested = NULL;
    for (int isa = CFLOW_ISA_SCALAR; isa < CFLOW_ISA_COUNT; isa++) {
        if (!cflow_isa_supported(isa) || cf_kv_ops_for(isa, 0) == tested) {
            continue;
        }
        tested = cf_kv_ops_for(isa, 0);
        is_scalar = isa == CFLOW_ISA_SCALAR;
        for (is_f32 = 0; is_f32 < 2; is_f32++) {
            ops = cf_kv_ops_for(isa, is_f32);
            for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
                check_groups(columns[i]);
            }
            check_later_rows(40);
            check_blocks();
        }
    }
    return check_summary("test_attention");
}
