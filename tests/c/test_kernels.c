/*
 * test_kernels.c - kernels called as the executor calls them: fused parts, runs of groups, odd block counts, adversarial
 * blocks, every prefetch hint. Every supported instruction set is compared with the scalar reference, and the scalar
 * reference with a product in double precision from weights that are decoded here.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"
#include "kernels.h"
#include "walk.h"

static int failures;

/* Counts and names a failed condition; the run goes on to show the others. */
#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            failures++;                                                                                                \
            if (failures <= 20) {                                                                                      \
                printf("%s:%d: %s: ", __FILE__, __LINE__, #condition);                                                 \
                printf(__VA_ARGS__);                                                                                   \
                printf("\n");                                                                                          \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

static uint64_t random_state = 1;

static uint32_t random_u32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) ^ (uint32_t)(random_state >> 20);
}

static void *allocate(size_t bytes)
{
    void *const memory = aligned_alloc(64, cf_pad64(bytes));
    if (memory == NULL) {
        printf("out of memory\n");
        exit(2);
    }
    memset(memory, 0, cf_pad64(bytes));
    return memory;
}

/* ---- inputs ------------------------------------------------------------------------------------------------------- */

enum { PATTERN_RANDOM, PATTERN_ALL_CODES, PATTERN_EXTREME_CODES, PATTERN_ZERO_SCALES, PATTERN_COUNT };

/* Zero, subnormal, smallest normal, ordinary, largest, and negative ones. */
static const uint16_t scale_choices[] = {0x0000, 0x8000, 0x0001, 0x03ff, 0x8001, 0x0400,
                                         0x3c00, 0x2400, 0xa400, 0x7bff, 0xfbff};

static uint16_t choose_scale(int pattern)
{
    if (pattern == PATTERN_ZERO_SCALES) {
        return 0;
    }
    if (pattern == PATTERN_RANDOM) {
        return (uint16_t)(0x2000u + (random_u32() & 0x83ffu));
    }
    return scale_choices[random_u32() % (sizeof scale_choices / sizeof scale_choices[0])];
}

static uint8_t choose_code(int pattern, size_t position)
{
    static const uint8_t extremes[] = {0x00, 0xff, 0x80, 0x7f, 0x0f, 0xf0};
    if (pattern == PATTERN_ALL_CODES) {
        return (uint8_t)position;
    }
    return pattern == PATTERN_EXTREME_CODES ? extremes[random_u32() % 6] : (uint8_t)random_u32();
}

static void fill_group(int type, uint32_t blocks, int pattern, uint8_t *group)
{
    const size_t head = cf_group_head_bytes(type, blocks);
    const size_t bytes = cf_group_bytes(type, blocks);
    memset(group, 0, bytes);
    if (type == CFLOW_TYPE_F32) {
        for (size_t i = 0; i < bytes / 4; i++) {
            const float value = pattern == PATTERN_ZERO_SCALES ? 0.0f : (float)(int32_t)random_u32() * 0x1p-31f;
            memcpy(group + 4 * i, &value, 4);
        }
        return;
    }
    const size_t section = cf_pad64((size_t)blocks * 32);
    for (size_t i = 0; i < (head ? head : bytes) / 2; i++) {
        const size_t in_section = head ? i * 2 % section : 0;
        const uint16_t value = in_section < (size_t)blocks * 32 ? choose_scale(pattern) : 0;
        memcpy(group + 2 * i, &value, 2);
    }
    for (size_t i = head; head != 0 && i < bytes; i++) {
        group[i] = choose_code(pattern, i);
    }
}

/* Weight (row, column) of a group, from the layout in cflow.h. */
static double weight(int type, uint32_t blocks, const uint8_t *group, uint32_t row, uint32_t column)
{
    if (type == CFLOW_TYPE_F16) {
        return (double)cf_load_half(group + ((size_t)column * 16 + row) * 2);
    }
    if (type == CFLOW_TYPE_F32) {
        float value;
        memcpy(&value, group + ((size_t)column * 16 + row) * 4, 4);
        return (double)value;
    }
    const uint32_t b = column / 32;
    const uint32_t c = column % 32;
    const uint8_t *const codes = group + cf_group_head_bytes(type, blocks);
    const double scale = (double)cf_load_half(group + ((size_t)b * 16 + row) * 2);
    if (type == CFLOW_TYPE_Q8_0) {
        return scale * (int8_t)codes[(size_t)b * 512 + c / 4 * 64 + row * 4 + c % 4];
    }
    const uint8_t byte = codes[(size_t)b * 256 + c / 8 * 64 + row * 4 + c % 4];
    const int code = c % 8 < 4 ? byte & 15 : byte >> 4;
    if (type == CFLOW_TYPE_Q4_0) {
        return scale * (code - 8);
    }
    const size_t minima = cf_pad64((size_t)blocks * 32);
    return scale * code + (double)cf_load_half(group + minima + ((size_t)b * 16 + row) * 2);
}

/* Largest |weight - what the arithmetic rounds with|: the zero point and the minimum count by themselves. */
static double magnitude(int type, uint32_t blocks, const uint8_t *group, uint32_t row, uint32_t column)
{
    const double value = fabs(weight(type, blocks, group, row, column));
    if (type != CFLOW_TYPE_Q4_0 && type != CFLOW_TYPE_Q4_1) {
        return value;
    }
    return value + 16 * fabs((double)cf_load_half(group + ((size_t)(column / 32) * 16 + row) * 2));
}

typedef struct vector {
    cf_act act;
    float *f32;
} vector;

static vector make_vector(uint32_t blocks, int pattern)
{
    const size_t columns = (size_t)blocks * 32;
    float *const x = allocate(columns * 4);
    for (size_t i = 0; i < columns; i++) {
        x[i] = (float)(int32_t)random_u32() * 0x1p-30f;
        if (pattern == PATTERN_EXTREME_CODES) { /* every code is 127 or -127 */
            x[i] = x[i] < 0 ? -1.5f : 1.5f;
        }
    }
    if (pattern == PATTERN_ALL_CODES) { /* a zero block, and one of a single spike */
        memset(x, 0, 32 * 4);
        if (blocks > 1) {
            memset(x + 32, 0, 32 * 4);
            x[40] = -3.0f;
        }
    }
    float *const sums = allocate((size_t)blocks * 4);
    float *const scaled = allocate(columns * 4);
    int8_t *const codes = allocate(columns);
    float *const scales = allocate((size_t)blocks * 4);
    int32_t *const code_sums = allocate((size_t)blocks * 4);
    cf_act_sums(x, columns, sums);
    cf_act_scale_nibbles(x, columns, scaled);
    cf_act_quantize(x, columns, codes, scales, code_sums);
    return (vector){.act = {x, sums, scaled, codes, scales, code_sums}, .f32 = x};
}

static void free_vector(vector *v)
{
    free(v->f32);
    free((void *)(uintptr_t)v->act.f32_sums);
    free((void *)(uintptr_t)v->act.f32_scaled);
    free((void *)(uintptr_t)v->act.codes);
    free((void *)(uintptr_t)v->act.scales);
    free((void *)(uintptr_t)v->act.sums);
}

/* ---- tiled kernels ------------------------------------------------------------------------------------------------ */

typedef struct tile_case {
    int type;
    uint32_t parts;
    uint32_t groups;
    uint32_t blocks;
    int pattern;
    int hint;
} tile_case;

/* y[parts][16 * groups] starts at `start`, so that accumulation is seen. */
static void run_tile(const cf_kernel *kernel, const tile_case *c, uint8_t *const weights[], const vector *x,
                     float start, float *y)
{
    const size_t rows = (size_t)c->groups * 16;
    for (size_t i = 0; i < c->parts * rows; i++) {
        y[i] = start;
    }
    cf_gemv_call call = {.parts = c->parts,
                         .groups = c->groups,
                         .blocks = c->blocks,
                         .x = x->act,
                         .prefetch_hint = c->hint,
                         .prefetch_bytes = 64u << (random_u32() % 8)};
    for (uint32_t p = 0; p < c->parts; p++) {
        call.weights[p] = weights[p];
        call.y[p] = y + p * rows;
    }
    kernel->tile(&call);
}

static void check_against_double(const cf_kernel *kernel, const tile_case *c, uint8_t *const weights[], const vector *x,
                                 float start, const float *y)
{
    const size_t group_bytes = cf_group_bytes(c->type, c->blocks);
    for (uint32_t i = 0; i < c->parts * c->groups * 16; i++) {
        const uint32_t part = i / (c->groups * 16);
        const uint32_t row = i % (c->groups * 16);
        const uint8_t *const group = weights[part] + row / 16 * group_bytes;
        double sum = (double)start;
        double bound = fabs((double)start);
        for (uint32_t column = 0; column < c->blocks * 32; column++) {
            const double value = kernel->q8 ? (double)x->act.codes[column] * (double)x->act.scales[column / 32]
                                            : (double)x->act.f32[column];
            sum += weight(c->type, c->blocks, group, row % 16, column) * value;
            bound += magnitude(c->type, c->blocks, group, row % 16, column) * fabs(value);
        }
        CHECK(fabs((double)y[i] - sum) <= 1e-6 * bound + 1e-37, "%s row %u: %.9g, expected %.9g", kernel->name, i,
              (double)y[i], sum);
    }
}

static void check_tile_case(const tile_case *c)
{
    const size_t bytes = c->groups * cf_group_bytes(c->type, c->blocks);
    const size_t count = (size_t)c->parts * c->groups * 16;
    vector x = make_vector(c->blocks, c->pattern);
    uint8_t *weights[3] = {NULL, NULL, NULL};
    for (uint32_t p = 0; p < c->parts; p++) {
        weights[p] = allocate(bytes);
        for (uint32_t g = 0; g < c->groups; g++) {
            fill_group(c->type, c->blocks, c->pattern, weights[p] + g * cf_group_bytes(c->type, c->blocks));
        }
    }
    float *const expected = allocate(count * 4);
    float *const y = allocate(count * 4);
    const float start = c->pattern == PATTERN_ZERO_SCALES ? 0.0f : 0.75f;
    for (int q8 = 0; q8 <= 1; q8++) {
        const cf_kernel *const scalar = cf_kernel_find(c->type, q8, CFLOW_ISA_SCALAR, 0);
        CHECK(scalar != NULL, "no scalar kernel for %s", cflow_type_name(c->type));
        run_tile(scalar, c, weights, &x, start, expected);
        check_against_double(scalar, c, weights, &x, start, expected);
        for (int isa = CFLOW_ISA_AVX2; isa < CFLOW_ISA_COUNT; isa++) {
            const cf_kernel *const kernel = cf_kernel_find(c->type, q8, isa, 0);
            if (kernel->isa != isa || !cflow_isa_supported(isa)) {
                continue;
            }
            run_tile(kernel, c, weights, &x, start, y);
            if (kernel->q8) {
                CHECK(memcmp(y, expected, count * 4) == 0, "%s differs from scalar: parts %u groups %u blocks %u",
                      kernel->name, c->parts, c->groups, c->blocks);
            } else {
                check_against_double(kernel, c, weights, &x, start, y);
            }
        }
    }
    free(expected);
    free(y);
    for (uint32_t p = 0; p < c->parts; p++) {
        free(weights[p]);
    }
    free_vector(&x);
}

static void test_tiles(void)
{
    static const uint32_t block_counts[] = {1, 2, 3, 5, 8, 9};
    for (int type = 0; type < CFLOW_TYPE_COUNT; type++) {
        for (int pattern = 0; pattern < PATTERN_COUNT; pattern++) {
            for (uint32_t parts = 1; parts <= 3; parts++) {
                for (size_t i = 0; i < sizeof block_counts / sizeof block_counts[0]; i++) {
                    const tile_case c = {.type = type,
                                         .parts = parts,
                                         .groups = 1 + random_u32() % 8,
                                         .blocks = block_counts[i],
                                         .pattern = pattern,
                                         .hint = (int)(random_u32() % 5)};
                    check_tile_case(&c);
                }
            }
        }
    }
}

/* ---- row-major kernels -------------------------------------------------------------------------------------------- */

static void check_rows(uint32_t n_rows, uint32_t blocks, int pattern)
{
    const size_t row_bytes = (size_t)blocks * 18 + 2; /* the stride may exceed the blocks */
    uint8_t *const rows = allocate(n_rows * row_bytes);
    vector x = make_vector(blocks, pattern);
    float *const y = allocate((size_t)n_rows * 4);
    for (size_t i = 0; i < n_rows * (size_t)blocks; i++) {
        uint8_t *const block = rows + i / blocks * row_bytes + i % blocks * 18;
        const uint16_t scale = choose_scale(pattern);
        memcpy(block, &scale, 2);
        for (size_t k = 0; k < 16; k++) {
            block[2 + k] = choose_code(pattern, k * 17);
        }
    }
    for (uint32_t k = 0; k < cflow_kernel_count(); k++) {
        const cf_kernel *const kernel = cf_kernel_at(k);
        if (kernel->rows_per_pass == 0 || !cflow_isa_supported(kernel->isa)) {
            continue;
        }
        for (uint32_t r = 0; r < n_rows; r++) {
            y[r] = NAN; /* rows are overwritten */
        }
        kernel->rows(rows, row_bytes, n_rows, blocks, &x.act, y);
        for (uint32_t r = 0; r < n_rows; r++) {
            double sum = 0;
            double bound = 0;
            for (uint32_t c = 0; c < blocks * 32; c++) {
                const uint8_t *const block = rows + r * row_bytes + c / 32 * 18;
                const uint8_t byte = block[2 + c % 16];
                const int code = (c % 32 < 16 ? byte & 15 : byte >> 4) - 8;
                const double scale = (double)cf_load_half(block);
                const double value =
                    kernel->q8 ? (double)x.act.codes[c] * (double)x.act.scales[c / 32] : (double)x.f32[c];
                sum += scale * code * value;
                bound += fabs(scale) * 16 * fabs(value);
            }
            CHECK(fabs((double)y[r] - sum) <= 1e-6 * bound + 1e-37, "%s row %u: %.9g, expected %.9g", kernel->name, r,
                  (double)y[r], sum);
        }
    }
    free(rows);
    free(y);
    free_vector(&x);
}

static void test_rows(void)
{
    for (int pattern = 0; pattern < PATTERN_COUNT; pattern++) {
        for (uint32_t n_rows = 1; n_rows <= 19; n_rows++) {
            check_rows(n_rows, 1 + n_rows % 5, pattern);
        }
    }
}

/* ---- look-up ------------------------------------------------------------------------------------------------------ */

static void test_registry(void)
{
    for (uint32_t k = 0; k < cflow_kernel_count(); k++) {
        const cf_kernel *const kernel = cf_kernel_at(k);
        CHECK((kernel->tile != NULL) + (kernel->gemm != NULL) + (kernel->rows != NULL) == 1, "%s", kernel->name);
        if (kernel->gemm != NULL) {
            const cf_kernel *const single = cf_kernel_find(kernel->type, kernel->q8, kernel->isa, 0);
            CHECK(single->isa == kernel->isa && single->needs == kernel->needs, "%s", kernel->name);
            CHECK(cf_kernel_gemm(single) == kernel, "%s", kernel->name);
            continue;
        }
        CHECK((kernel->rows_per_pass == 0) == (kernel->tile != NULL), "%s", kernel->name);
        CHECK(cf_kernel_find(kernel->type, kernel->q8, kernel->isa, kernel->rows_per_pass) == kernel, "%s",
              kernel->name);
    }
    CHECK(cf_kernel_at(cflow_kernel_count()) == NULL, "past the end");
    for (int isa = 0; isa < CFLOW_ISA_COUNT; isa++) {
        for (int type = 0; type < CFLOW_TYPE_COUNT; type++) {
            CHECK(cf_gemv_tile(type, 0, isa) != NULL && cf_gemv_tile(type, 1, isa) != NULL, "type %d isa %d", type,
                  isa);
        }
        CHECK(cf_gemv_tile(CFLOW_TYPE_F16, 1, isa) == cf_gemv_tile(CFLOW_TYPE_F16, 0, isa), "f16 takes f32");
        CHECK(cf_gemv_rows(CFLOW_TYPE_Q4_1, 1, isa, 1) == NULL, "row-major q4_1");
        CHECK(cf_gemv_rows(CFLOW_TYPE_Q4_0, 1, isa, 3) == NULL, "3 rows per pass");
        for (int rows = 1; rows <= 8; rows *= 2) {
            CHECK(cf_gemv_rows(CFLOW_TYPE_Q4_0, 1, isa, rows) != NULL, "rows %d isa %d", rows, isa);
            CHECK(cf_gemv_rows(CFLOW_TYPE_Q4_0, 0, isa, rows) != NULL, "rows %d isa %d", rows, isa);
        }
    }
    CHECK(cf_gemv_tile(CFLOW_TYPE_COUNT, 0, CFLOW_ISA_SCALAR) == NULL, "unknown type");
}

/* ---- layout and conversions --------------------------------------------------------------------------------------- */

static void test_layout(void)
{
    CHECK(8 * cf_group_bytes(CFLOW_TYPE_Q4_0, 8) == 18432, "q4_0 tile of 128 x 256");
    CHECK(8 * cf_group_bytes(CFLOW_TYPE_Q4_1, 8) == 20480, "q4_1 tile of 128 x 256");
    CHECK(8 * cf_group_bytes(CFLOW_TYPE_Q8_0, 8) == 34816, "q8_0 tile of 128 x 256");
    CHECK(cf_group_bytes(CFLOW_TYPE_Q4_0, 1) == 64 + 256, "scales are padded to 64 bytes");

    const uint64_t rows[3] = {300, 17, 1};
    cf_tiles tiles;
    CHECK(cf_tiles_describe(CFLOW_TYPE_Q4_0, 3, rows, 544, 128, 256, &tiles) == CFLOW_OK, "%s", cflow_last_error());
    const uint64_t band = 2 * cf_group_bytes(CFLOW_TYPE_Q4_0, 8) + cf_group_bytes(CFLOW_TYPE_Q4_0, 1);
    CHECK(tiles.band_bytes == band && tiles.bytes == (19 + 2 + 1) * band, "sizes");
    CHECK(cf_tiles_groups(&tiles, 0, 2) == 3 && cf_tiles_groups(&tiles, 0, 3) == 0, "groups of part 0");
    CHECK(cf_tiles_groups(&tiles, 1, 0) == 2 && cf_tiles_groups(&tiles, 1, 1) == 0, "groups of part 1");
    CHECK(cf_tiles_stripe_offset(&tiles, 1) == (8 + 2 + 1) * band, "stripe 1");
    CHECK(cf_tiles_stripe_offset(&tiles, 3) == tiles.bytes, "end");
}

/* Any run of groups gives the bits that the whole matrix gives. */
static void test_group_runs(void)
{
    const uint64_t rows = 16 * 11 - 3;
    cf_tiles tiles;
    CHECK(cf_tiles_describe(CFLOW_TYPE_Q4_0, 1, &rows, 160, 48, 96, &tiles) == CFLOW_OK, "%s", cflow_last_error());
    uint8_t *const weights = allocate(tiles.bytes);
    uint8_t *next = weights;
    for (uint64_t stripe = 0; stripe * 48 < rows; stripe++) {
        for (uint32_t slice = 0; slice < 2; slice++) {
            for (uint32_t g = 0; g < cf_tiles_groups(&tiles, 0, stripe); g++) {
                fill_group(CFLOW_TYPE_Q4_0, slice == 0 ? 3 : 2, PATTERN_RANDOM, next);
                next += cf_group_bytes(CFLOW_TYPE_Q4_0, slice == 0 ? 3 : 2);
            }
        }
    }
    CHECK(next == weights + tiles.bytes, "groups fill the matrix");
    vector x = make_vector(5, PATTERN_RANDOM);
    const cf_gemv_fn kernel = cf_gemv_tile(CFLOW_TYPE_Q4_0, 1, cflow_isa_default());
    float whole[176] = {0};
    cf_walk walk = {.kernel = kernel, .tiles = &tiles, .weights = weights, .x = &x.act, .y = {whole}, .streams = 1};
    cf_walk_parts(&walk, 0, 1, 0, 11);
    for (uint32_t streams = 1; streams <= CF_MAX_LANES; streams++) {
        for (uint64_t first = 0; first < 11; first++) {
            for (uint64_t last = first + 1; last <= 11; last++) {
                float y[176] = {0}, expected[176] = {0};
                memcpy(expected + 16 * first, whole + 16 * first, 64 * (last - first));
                walk.streams = streams;
                walk.y[0] = y;
                walk.prefetch_hint = CFLOW_PREFETCH_T0;
                walk.prefetch_bytes = 256;
                cf_walk_parts(&walk, 0, 1, first, last);
                CHECK(memcmp(y, expected, sizeof y) == 0, "groups %d .. %d, %d streams", (int)first, (int)last,
                      (int)streams);
            }
        }
    }
    free(weights);
    free_vector(&x);
}

/* All 65,536 halves against ldexp(), and back; the midpoints between neighbours against ties-to-even. */
static void test_half(void)
{
    for (uint32_t half = 0; half < 0x10000; half++) {
        const uint32_t exponent = half >> 10 & 31;
        const uint32_t mantissa = half & 0x3ff;
        const float value = cf_half_to_float((uint16_t)half);
        CHECK((cf_float_bits(value) >> 31) == half >> 15, "sign of %04x", half);
        if (exponent == 31) {
            CHECK(mantissa ? isnan(value) : isinf(value), "%04x", half);
            CHECK(mantissa == 0 || isnan(cf_half_to_float(cf_float_to_half(value))), "%04x", half);
            continue;
        }
        const double expected = exponent ? ldexp(1024.0 + mantissa, (int)exponent - 25) : ldexp(mantissa, -24);
        CHECK(fabs((double)value) == expected, "%04x", half);
        CHECK(cf_float_to_half(value) == half, "%04x", half);
        if ((half & 0x7fff) < 0x7bff) {
            const float next = cf_half_to_float((uint16_t)(half + 1));
            const float middle = (value + next) / 2;
            CHECK(cf_float_to_half(middle) == (half & 1 ? half + 1 : half), "middle above %04x", half);
            CHECK(cf_float_to_half(nextafterf(middle, value)) == half, "below the middle above %04x", half);
            CHECK(cf_float_to_half(nextafterf(middle, next)) == half + 1, "above the middle above %04x", half);
        }
    }
    CHECK(cf_float_to_half(65519.996f) == 0x7bff && cf_float_to_half(65520.0f) == 0x7c00, "overflow");
    CHECK(cf_float_to_half(-1e30f) == 0xfc00 && cf_float_to_half(0x1p-25f) == 0, "infinity, underflow to even");
}

static void test_quantize(void)
{
    float x[32 * 6] = {0};
    int8_t codes[32 * 6];
    float scales[6];
    int32_t sums[6];
    x[32 + 3] = NAN;
    x[64 + 5] = -INFINITY;
    for (int i = 0; i < 32; i++) {
        x[96 + i] = (float)i - 15.5f;
        x[160 + i] = 0x1p-140f; /* 127 / x overflows */
    }
    x[128] = 127.0f; /* scale 1: the others show the rounding of ties */
    x[129] = 0.5f;
    x[130] = 1.5f;
    x[131] = -2.5f;
    x[132] = -126.5f;
    cf_act_quantize(x, 192, codes, scales, sums);
    CHECK(scales[0] == 0 && sums[0] == 0 && codes[0] == 0, "zero block");
    CHECK(isnan(scales[1]) && sums[1] == 0 && codes[32] == 0, "NaN block");
    CHECK(isinf(scales[2]) && sums[2] == 0 && codes[69] == 0, "infinite block");
    CHECK(scales[3] == 15.5f / 127.0f && codes[96] == -127 && codes[127] == 127, "extremes");
    CHECK(codes[129] == 0 && codes[130] == 2 && codes[131] == -2 && codes[132] == -126, "ties to even");
    CHECK(sums[4] == 127 + 0 + 2 - 2 - 126, "sum");
    CHECK(scales[5] == 0 && codes[160] == 0, "subnormal block");

    for (int round = 0; round < 200; round++) {
        const float factor = ldexpf(1.0f, (int)(random_u32() % 60) - 30);
        float largest = 0;
        for (int i = 0; i < 32; i++) {
            x[i] = (float)(int32_t)random_u32() * 0x1p-31f * factor;
            largest = fmaxf(largest, fabsf(x[i]));
        }
        cf_act_quantize(x, 32, codes, scales, sums);
        int32_t sum = 0;
        for (int i = 0; i < 32; i++) {
            CHECK(codes[i] == (int)rintf(x[i] * (127.0f / largest)), "code %d", i);
            sum += codes[i];
        }
        CHECK(scales[0] == largest / 127.0f && sums[0] == sum, "scale and sum");
    }
}

int main(void)
{
    test_half();
    test_quantize();
    test_layout();
    test_registry();
    test_tiles();
    test_rows();
    test_group_runs();
    printf("test_kernels: %d failure(s)\n", failures);
    return failures == 0 ? 0 : 1;
}
