/* probe_loops.h - the inner loops of the roofs: reading memory, and multiply-adds in registers. */
#ifndef CF_PROBE_LOOPS_H
#define CF_PROBE_LOOPS_H

#include <stdint.h>

/*
 * Sums `streams` consecutive parts of `bytes` bytes each (a multiple of 256), read side by side with the widest loads that
 * this CPU has; data: 64-byte aligned. prefetch: bytes ahead; 0 = hardware prefetch alone.
 */
uint64_t cf_loop_read(const uint8_t *data, uint64_t bytes, unsigned streams, unsigned prefetch);

/* f32 operations of one iteration of cf_loop_multiply_add(); 0 when this CPU does not run that instruction set. */
uint64_t cf_loop_operations(int isa);
/* Rounds of independent multiply-adds; returns a number above 0 that depends on each. cf_loop_operations(isa) is not 0. */
float cf_loop_multiply_add(int isa, uint64_t iterations);

#endif
