/*
 * fault.h - errors of the device, made on purpose. In libcflow there is nothing of it. libcflow_fault is the same sources
 * with the reader compiled once more with CFLOW_FAULTS: there the result of each read passes cf_fault_result() before
 * anybody looks at it.
 */
#ifndef CF_FAULT_H
#define CF_FAULT_H

#include "cflow.h"

#if defined(CFLOW_FAULTS)
/* The result of a read (bytes or a negative errno), or what is to be taken for it. */
int64_t cf_fault_result(int64_t result);

/* How long the next read is held back before the device hears of it. */
uint64_t cf_fault_delay_ns(void);
#else
#define cf_fault_result(result) (result)
#define cf_fault_delay_ns() ((uint64_t)0)
#endif

#endif
