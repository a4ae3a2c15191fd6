/* test_gemm.c - several vectors at once have the bits of one by one, on every instruction set, whatever is left of a panel. */
#include "cflow.h"
#include "check.h"
#include "gemm.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 45, COLUMNS = 160, TILE_ROWS = 32, TILE_COLS = 96 };

static uint64_t random_index;

static uint64_t draw(void)
{
    return cf_splitmix64(7, random_index++);
}

/* Codes of any value; scales and minima from 2^-7 to 1 of either sign, f16 weights likewise. */
static void fill_group(int type, uint32_t blocks, uint8_t *group)
{
    const size_t head = cf_group_head_bytes(type, blocks), bytes = cf_group_bytes(type, blocks);
    for (size_t i = 0; i < bytes; i++) {
        group[i] = (uint8_t)draw();
    }
    for (size_t i = 0; i < head; i += 2) {
        const uint16_t half = (uint16_t)(0x2000u + (draw() & 0x9bffu));
        memcpy(group + i, &half, sizeof half);
    }
}

static uint8_t *make_weights(int type, uint64_t bytes)
{
    uint8_t *const weights = aligned_alloc(64, cf_pad64((size_t)bytes));
    if (weights == NULL) {
        return NULL;
    }
    uint8_t *at = weights;
    for (uint64_t row = 0; row < ROWS; row += TILE_ROWS) {
        const uint64_t rows = ROWS - row < TILE_ROWS ? ROWS - row : TILE_ROWS;
        for (uint64_t column = 0; column < COLUMNS; column += TILE_COLS) {
            const uint64_t columns = COLUMNS - column < TILE_COLS ? COLUMNS - column : TILE_COLS;
            for (uint64_t g = 0; g < (rows + CF_GROUP_ROWS - 1) / CF_GROUP_ROWS; g++) {
                fill_group(type, (uint32_t)columns / CF_BLOCK, at);
                at += cf_group_bytes(type, (uint32_t)columns / CF_BLOCK);
            }
        }
    }
    CHECK(at == weights + bytes);
    return weights;
}

static uint32_t index_of(const cf_kernel *wanted)
{
    uint32_t kernel = 0;
    while (cf_kernel_at(kernel) != wanted) {
        kernel++;
    }
    return kernel;
}

static void check_kernel(uint32_t panels)
{
    static float x[CF_MAX_BATCH * COLUMNS], y[CF_MAX_BATCH * ROWS], single[ROWS];
    const cf_kernel *const gemm = cf_kernel_at(panels);
    const uint32_t one = index_of(cf_kernel_find(gemm->type, gemm->q8, gemm->isa, 0));
    uint64_t bytes;
    CHECK(cflow_tiles_bytes(gemm->type, ROWS, COLUMNS, TILE_ROWS, TILE_COLS, &bytes) == CFLOW_OK);
    uint8_t *const weights = make_weights(gemm->type, bytes);
    CHECK(weights != NULL);
    for (size_t i = 0; i < CF_MAX_BATCH * COLUMNS; i++) {
        x[i] = (float)(draw() >> 40) * 0x1p-22f - 2.0f;
    }
    for (uint32_t vectors = 1; weights != NULL && vectors <= CF_MAX_BATCH; vectors++) {
        CHECK(cflow_gemm(panels, weights, bytes, ROWS, COLUMNS, TILE_ROWS, TILE_COLS, x, vectors, y) == CFLOW_OK);
        for (uint32_t n = 0; n < vectors; n++) {
            CHECK(cflow_gemv(one, weights, bytes, ROWS, COLUMNS, TILE_ROWS, TILE_COLS, x + (size_t)n * COLUMNS,
                             single) == CFLOW_OK);
            CHECK(memcmp(y + (size_t)n * ROWS, single, sizeof single) == 0);
        }
    }
    free(weights);
}

int main(void)
{
    for (uint32_t kernel = 0; kernel < cflow_kernel_count(); kernel++) {
        const cf_kernel *const found = cf_kernel_at(kernel);
        if (found->gemm != NULL && cflow_isa_supported(found->isa)) {
            check_kernel(kernel);
        }
    }
    return check_summary("test_gemm");
}
