/* kernels.c - the registry: all kernels of this build, in one numbering, and look-up by what they do. */
#include "kernels.h"

static const cf_kernel_list *const lists[] = {
    &cf_kernels_scalar,
#if defined(__x86_64__)
    &cf_kernels_avx2,
    &cf_kernels_avx512,
    &cf_kernels_avx512vnni,
#elif defined(__aarch64__)
    &cf_kernels_neondot,
#endif
};

#define LIST_COUNT (sizeof lists / sizeof lists[0])

uint32_t cflow_kernel_count(void)
{
    uint32_t count = 0;
    for (size_t i = 0; i < LIST_COUNT; i++) {
        count += lists[i]->count;
    }
    return count;
}

const cf_kernel *cf_kernel_at(uint32_t kernel)
{
    for (size_t i = 0; i < LIST_COUNT; i++) {
        if (kernel < lists[i]->count) {
            return &lists[i]->kernels[kernel];
        }
        kernel -= lists[i]->count;
    }
    return NULL;
}

const cf_kernel *cf_kernel_find(int type, int q8, int isa, int rows_per_pass)
{
    const int takes_q8 = q8 && type != CFLOW_TYPE_F16 && type != CFLOW_TYPE_F32;
    const cf_kernel *best = NULL;
    for (size_t i = 0; i < LIST_COUNT; i++) {
        for (uint32_t k = 0; k < lists[i]->count; k++) {
            const cf_kernel *const kernel = &lists[i]->kernels[k];
            const int matches = kernel->gemm == NULL && kernel->type == type && kernel->q8 == takes_q8 &&
                                kernel->rows_per_pass == rows_per_pass;
            if (matches && kernel->isa <= isa && (best == NULL || kernel->isa > best->isa)) {
                best = kernel;
            }
        }
    }
    return best;
}

const cf_kernel *cf_kernel_gemm(const cf_kernel *kernel)
{
    for (size_t i = 0; i < LIST_COUNT; i++) {
        for (uint32_t k = 0; k < lists[i]->count; k++) {
            const cf_kernel *const other = &lists[i]->kernels[k];
            if (other->gemm != NULL && other->type == kernel->type && other->q8 == kernel->q8 &&
                other->isa == kernel->isa) {
                return other;
            }
        }
    }
    return NULL;
}

cf_gemv_fn cf_gemv_tile(int type, int q8, int isa)
{
    const cf_kernel *const kernel = cf_kernel_find(type, q8, isa, 0);
    return kernel ? kernel->tile : NULL;
}

cf_rows_fn cf_gemv_rows(int type, int q8, int isa, int rows_per_pass)
{
    const cf_kernel *const kernel = cf_kernel_find(type, q8, isa, rows_per_pass);
    return kernel ? kernel->rows : NULL;
}
