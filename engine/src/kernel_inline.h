/* kernel_inline.h - what the kernel files share: forced inlining, unrolling, prefetching. */
#ifndef CF_KERNEL_INLINE_H
#define CF_KERNEL_INLINE_H

#include <string.h>

#include "kernels.h"
#include "record.h"

#define CF_INLINE static inline __attribute__((always_inline))

/* Before a loop with a constant count: unroll it whole, so that arrays of vectors live in registers. */
#if defined(__clang__)
#define CF_UNROLL _Pragma("clang loop unroll(full)")
#else
#define CF_UNROLL _Pragma("GCC unroll 32")
#endif

/*
 * The vector is computed here and stays in a register. Without it gcc reorders a chain of integer additions into a tree
 * and keeps every product of a block until the end, far more than there are registers.
 */
#if defined(CFLOW_SIMDE) || !defined(__x86_64__)
#define CF_IN_REGISTER(vector) ((void)(vector))
#else
#define CF_IN_REGISTER(vector) __asm__("" : "+v"(vector))
#endif

CF_INLINE void cf_store_float(float *pointer, float value)
{
    *pointer = value;
}

/* hint is a constant at each use, so one instruction or none remains. The address may lie past the matrix. */
CF_INLINE void cf_prefetch(const void *pointer, uint32_t distance, int hint)
{
    const void *const address = (const void *)((uintptr_t)pointer + distance); /* not p + n: n leaves the object */
    switch (hint) {
    case CFLOW_PREFETCH_T0:
        __builtin_prefetch(address, 0, 3);
        break;
    case CFLOW_PREFETCH_T1:
        __builtin_prefetch(address, 0, 2);
        break;
    case CFLOW_PREFETCH_T2:
        __builtin_prefetch(address, 0, 1);
        break;
    case CFLOW_PREFETCH_NTA:
        __builtin_prefetch(address, 0, 0);
        break;
    default:
        break;
    }
}

/*
 * Loads one byte of each cache line. A group's scales lie before its codes and are used after them, line by line in
 * between: a hardware prefetcher takes such jumps back for the end of a sequence. Touched first, all lines of a matrix
 * come in ascending order (docs/performance.md: what that is worth).
 */
CF_INLINE void cf_touch(const uint8_t *pointer, size_t bytes)
{
    for (size_t line = 0; line < bytes; line += CF_CACHE_LINE) {
        (void)*(const volatile uint8_t *)(pointer + line);
    }
}

/* Blocks that a tiled vector kernel computes. The mutant shows that the agreement checks can fail. */
CF_INLINE uint32_t cf_blocks_computed(uint32_t blocks)
{
#if defined(CFLOW_MUTANT_DROP_LAST_COLUMNS)
    return blocks > 0 ? blocks - 1u : 0u;
#else
    return blocks;
#endif
}

/* Lines of a cf_kernel table: the tiled kernel, its twin for panels, and the four row-major ones, of one activation form. */
#define CF_TILE_ENTRY(TYPE, type_, q8_, act, ISA, isa_, needs_)                                                        \
    {.name = #type_ #act "_gemv_t16_" #isa_,                                                                           \
     .type = CFLOW_TYPE_##TYPE,                                                                                        \
     .q8 = (q8_),                                                                                                      \
     .isa = CFLOW_ISA_##ISA,                                                                                           \
     .needs = (needs_),                                                                                                \
     .tile = type_##act}
#define CF_GEMM_ENTRY(TYPE, type_, q8_, act, ISA, isa_, needs_)                                                        \
    {.name = #type_ #act "_gemm_t16x4_" #isa_,                                                                         \
     .type = CFLOW_TYPE_##TYPE,                                                                                        \
     .q8 = (q8_),                                                                                                      \
     .isa = CFLOW_ISA_##ISA,                                                                                           \
     .needs = (needs_),                                                                                                \
     .gemm = type_##act##_gemm}
#define CF_ROWS_ENTRY(q8_, act, ISA, isa_, needs_, count)                                                              \
    {.name = "q4_0" #act "_gemv_r" #count "_" #isa_,                                                                   \
     .type = CFLOW_TYPE_Q4_0,                                                                                          \
     .q8 = (q8_),                                                                                                      \
     .isa = CFLOW_ISA_##ISA,                                                                                           \
     .rows_per_pass = (count),                                                                                         \
     .needs = (needs_),                                                                                                \
     .rows = q4_0##act##_rows_r##count}
#define CF_ROWS_ENTRIES(q8_, act, ISA, isa_, needs_)                                                                   \
    CF_ROWS_ENTRY(q8_, act, ISA, isa_, needs_, 1), CF_ROWS_ENTRY(q8_, act, ISA, isa_, needs_, 2),                      \
        CF_ROWS_ENTRY(q8_, act, ISA, isa_, needs_, 4), CF_ROWS_ENTRY(q8_, act, ISA, isa_, needs_, 8)

#define CF_JOIN_(a, b) a##b
#define CF_JOIN(a, b) CF_JOIN_(a, b)

#endif
