#include "hints.h"

#include "cflow.h"

/* The instruction's kind is part of its encoding: one loop for each. */
#define HINT_LOOP(locality)                                                                                            \
    for (uint64_t at = 0; at < bytes; at += stride) {                                                                  \
        __builtin_prefetch(first + at, 0, locality);                                                                   \
    }

#ifdef CFLOW_MUTANT_HINTS_ELSEWHERE
/* Loads in the place of hints: they fault pages in and read storage. */
static void load_all(const volatile uint8_t *first, uint64_t bytes, uint64_t stride)
{
    for (uint64_t at = 0; at < bytes; at += stride) {
        (void)first[at];
    }
}
#endif

uint64_t cf_hints_give(const uint8_t *first, uint64_t bytes, uint64_t stride, int hint)
{
    if (hint == CFLOW_PREFETCH_NONE) {
        return 0;
    }
#ifdef CFLOW_MUTANT_HINTS_ELSEWHERE
    load_all(first, bytes, stride);
#else
    switch (hint) {
    case CFLOW_PREFETCH_T0:
        HINT_LOOP(3)
        break;
    case CFLOW_PREFETCH_T1:
        HINT_LOOP(2)
        break;
    case CFLOW_PREFETCH_T2:
        HINT_LOOP(1)
        break;
    default:
        HINT_LOOP(0)
        break;
    }
#endif
    return (bytes + stride - 1) / stride;
}
