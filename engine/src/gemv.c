/* gemv.c - one matrix-vector product on the calling thread, for tests and measurement, and the kernels' public names. */
#include <stdlib.h>
#include <string.h>

#include "act.h"
#include "error.h"
#include "walk.h"

const char *cflow_kernel_name(uint32_t kernel)
{
    const cf_kernel *const found = cf_kernel_at(kernel);
    return found ? found->name : NULL;
}

int cflow_kernel_info(uint32_t kernel, uint64_t fields_out[/* CFLOW_KERNEL_FIELD_COUNT */])
{
    const cf_kernel *const found = cf_kernel_at(kernel);
    if (found == NULL || fields_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT,
                       "cflow_kernel_info: kernel is %lu; allowed are 0 .. %lu, with fields_out set",
                       (unsigned long)kernel, (unsigned long)cflow_kernel_count() - 1);
    }
    fields_out[CFLOW_KERNEL_TYPE] = (uint64_t)found->type;
    fields_out[CFLOW_KERNEL_Q8] = (uint64_t)found->q8;
    fields_out[CFLOW_KERNEL_ISA] = (uint64_t)found->isa;
    fields_out[CFLOW_KERNEL_ROWS_PER_PASS] = (uint64_t)found->rows_per_pass;
    fields_out[CFLOW_KERNEL_SUPPORTED] = (uint64_t)cflow_isa_supported(found->isa);
    fields_out[CFLOW_KERNEL_VECTORS] = found->gemm != NULL ? CF_PANEL : 1;
    return CFLOW_OK;
}

/* ---- cflow_gemv --------------------------------------------------------------------------------------------------- */

/* Prepared activations and a padded result in one allocation. */
typedef struct scratch {
    void *memory;
    cf_act act;
    float *y; /* [padded_rows], zero */
} scratch;

static int scratch_create(const cf_kernel *kernel, const float *x, size_t columns, size_t padded_rows, scratch *out)
{
    const size_t act_bytes = cf_act_bytes(columns);
    const size_t y_bytes = cf_pad64(padded_rows * sizeof(float));
    uint8_t *const memory = aligned_alloc(CF_CACHE_LINE, act_bytes + y_bytes);
    if (memory == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "cflow_gemv: %llu bytes of scratch memory could not be had",
                       (unsigned long long)(act_bytes + y_bytes));
    }
    const cf_act_arrays arrays = cf_act_place(memory, columns);
    cf_act_prepare(&arrays, kernel->needs, x, columns);
    memset(memory + act_bytes, 0, y_bytes);
    *out = (scratch){.memory = memory, .act = cf_act_view(&arrays), .y = (float *)(void *)(memory + act_bytes)};
    return CFLOW_OK;
}

int cf_gemv_check(const char *function, const cf_kernel *kernel, const void *weights, uint64_t weights_bytes,
                  const cf_tiles *tiles)
{
    const uint64_t row_bytes = tiles->columns / CF_BLOCK * cf_row_block_bytes(kernel->type);
    const uint64_t needed = kernel->rows_per_pass ? tiles->rows[0] * row_bytes : tiles->bytes;
    if (weights_bytes != needed) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "%s: weights_bytes is %llu; %llu rows x %llu columns for %s need %llu",
                       function, (unsigned long long)weights_bytes, (unsigned long long)tiles->rows[0],
                       (unsigned long long)tiles->columns, kernel->name, (unsigned long long)needed);
    }
    if (kernel->rows_per_pass == 0 && (uintptr_t)weights % CF_CACHE_LINE != 0) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "%s: the tiles are not 64-byte aligned", function);
    }
    /* Sixteenths, so that no size of the scratch memory overflows. */
    if (tiles->rows[0] > UINT32_MAX / 16 || tiles->columns > UINT32_MAX / 16) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "%s: %llu rows x %llu columns; at most 2^28 - 1 of either", function,
                       (unsigned long long)tiles->rows[0], (unsigned long long)tiles->columns);
    }
    if (!cflow_isa_supported(kernel->isa)) {
        return cf_fail(CFLOW_ERR_UNSUPPORTED, "%s: this CPU does not run %s (%s)", function, kernel->name,
                       cflow_isa_name(kernel->isa));
    }
    return CFLOW_OK;
}

int cflow_gemv(uint32_t kernel, const void *weights, uint64_t weights_bytes, uint64_t rows, uint64_t columns,
               uint32_t tile_rows, uint32_t tile_cols, const float *x, float *y_out)
{
    const cf_kernel *const found = cf_kernel_at(kernel);
    if (found == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_gemv: kernel is %lu; allowed are 0 .. %lu", (unsigned long)kernel,
                       (unsigned long)cflow_kernel_count() - 1);
    }
    if (found->gemm != NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_gemv: kernel %s takes several vectors: cflow_gemm()", found->name);
    }
    if (weights == NULL || x == NULL || y_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_gemv: weights, x and y_out must not be NULL");
    }
    if (found->rows_per_pass) { /* no tiles: any legal shape serves to check rows and columns */
        tile_rows = CF_GROUP_ROWS;
        tile_cols = CF_BLOCK;
    }
    cf_tiles tiles;
    int status = cf_tiles_describe(found->type, 1, &rows, columns, tile_rows, tile_cols, &tiles);
    if (status == CFLOW_OK) {
        status = cf_gemv_check("cflow_gemv", found, weights, weights_bytes, &tiles);
    }
    if (status != CFLOW_OK) {
        return status;
    }
    const size_t groups = (size_t)(rows / CF_GROUP_ROWS + (rows % CF_GROUP_ROWS != 0));
    scratch work;
    status = scratch_create(found, x, (size_t)columns, groups * CF_GROUP_ROWS, &work);
    if (status != CFLOW_OK) {
        return status;
    }
    if (found->rows_per_pass) {
        const size_t row_bytes = (size_t)(columns / CF_BLOCK) * cf_row_block_bytes(found->type);
        found->rows(weights, row_bytes, (uint32_t)rows, (uint32_t)(columns / CF_BLOCK), &work.act, work.y);
    } else {
        /* One stream: what the cache model is asked about. */
        const cf_walk walk = {.kernel = found->tile,
                              .tiles = &tiles,
                              .weights = weights,
                              .x = &work.act,
                              .y = {work.y},
                              .streams = 1,
                              .prefetch_hint = CFLOW_PREFETCH_NONE};
        cf_walk_parts(&walk, 0, 1, 0, groups);
    }
    memcpy(y_out, work.y, (size_t)rows * sizeof(float));
    free(work.memory);
    return CFLOW_OK;
}
