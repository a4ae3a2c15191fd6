/* hints.h - prefetch hints over ranges of weights: instructions that ask for cache lines and load nothing. */
#ifndef CF_HINTS_H
#define CF_HINTS_H

#include <stdint.h>

enum { CF_LINE = 64 }; /* what one hint asks for */

/*
 * Hints at first, first + stride, ... below first + bytes; returns how many. hint: cflow_prefetch, none gives none. No
 * address needs to be valid: a hint for memory that is not there is dropped by the processor, without a fault.
 */
uint64_t cf_hints_give(const uint8_t *first, uint64_t bytes, uint64_t stride, int hint);

#endif
