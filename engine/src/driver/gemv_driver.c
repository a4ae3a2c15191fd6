/*
 * gemv_driver.c - one matrix-vector product, for tools that watch a whole process (cachegrind):
 *   cflow_gemv_driver KERNEL ROWS COLUMNS TILE_ROWS TILE_COLS
 * The weights are zero: which addresses a kernel touches does not depend on their values. Exit code 0, or 2 with a
 * sentence on standard error.
 */
#include "cflow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what, const char *found)
{
    (void)fprintf(stderr, "cflow_gemv_driver: %s: %s\n", what, found);
    return 2;
}

/* 1 .. 2^30; 0 when it is no such number. */
static uint64_t number(const char *text)
{
    char *end = NULL;
    const unsigned long value = strtoul(text, &end, 10);
    return *text != '\0' && *end == '\0' && value <= 1ul << 30 ? value : 0;
}

/* cflow_kernel_count() when there is none of that name. */
static uint32_t kernel_of(const char *name)
{
    uint32_t kernel = 0;
    while (kernel < cflow_kernel_count() && strcmp(cflow_kernel_name(kernel), name) != 0) {
        kernel++;
    }
    return kernel;
}

static int multiply(uint32_t kernel, const uint64_t size[4])
{
    const uint64_t rows = size[0], columns = size[1];
    uint64_t fields[CFLOW_KERNEL_FIELD_COUNT], bytes = 0;
    if (cflow_kernel_info(kernel, fields) != CFLOW_OK ||
        cflow_tiles_bytes((int)fields[CFLOW_KERNEL_TYPE], rows, columns, (uint32_t)size[2], (uint32_t)size[3],
                          &bytes) != CFLOW_OK) {
        return fail("no such product", cflow_last_error());
    }
    if (fields[CFLOW_KERNEL_ROWS_PER_PASS] != 0) {
        bytes = rows * (columns / 32u) * 18u; /* GGUF q4_0, the one type that row-major kernels take */
    }
    void *const weights = aligned_alloc(4096, (bytes + 4095u) / 4096u * 4096u);
    float *const x = calloc(columns, sizeof *x);
    float *const y = calloc(rows, sizeof *y);
    int code = 0;
    if (weights == NULL || x == NULL || y == NULL) {
        code = fail("out of memory", "weights, x or y");
    } else {
        memset(weights, 0, bytes);
        if (cflow_gemv(kernel, weights, bytes, rows, columns, (uint32_t)size[2], (uint32_t)size[3], x, y) != CFLOW_OK) {
            code = fail("the product failed", cflow_last_error());
        }
    }
    free(weights);
    free(x);
    free(y);
    return code;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        return fail("arguments", "KERNEL ROWS COLUMNS TILE_ROWS TILE_COLS are needed");
    }
    uint64_t size[4];
    for (int i = 0; i < 4; i++) {
        size[i] = number(argv[i + 2]);
        if (size[i] == 0) {
            return fail("not a number from 1 to 2^30", argv[i + 2]);
        }
    }
    const uint32_t kernel = kernel_of(argv[1]);
    return kernel == cflow_kernel_count() ? fail("no kernel", argv[1]) : multiply(kernel, size);
}
