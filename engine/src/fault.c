/* fault.c - which reads of libcflow_fault go wrong, and how; in libcflow none does. */
#include "fault.h"

#include "error.h"

#if defined(CFLOW_FAULTS)
#include <errno.h>
#include <stdatomic.h>

static const uint64_t DELAY_NS = 50000000;

/* The device belongs to the process, so its faults do, too. */
static _Atomic int current_kind;
static _Atomic uint64_t to_pass, to_fail;

/* Counts one read; returns 1 when it is to fail. */
static int is_due(void)
{
    uint64_t left = atomic_load(&to_pass);
    while (left > 0) {
        if (atomic_compare_exchange_weak(&to_pass, &left, left - 1)) {
            return 0;
        }
    }
    left = atomic_load(&to_fail);
    while (left > 0) {
        if (atomic_compare_exchange_weak(&to_fail, &left, left - 1)) {
            return 1;
        }
    }
    return 0;
}

int64_t cf_fault_result(int64_t result)
{
    const int kind = atomic_load(&current_kind);
    if (kind == CFLOW_FAULT_NONE || kind == CFLOW_FAULT_DELAY || !is_due()) {
        return result;
    }
    switch (kind) {
    case CFLOW_FAULT_SHORT:
        return result > 1 ? result / 2 : result;
    case CFLOW_FAULT_END:
        return 0;
    case CFLOW_FAULT_INTERRUPTED:
        return -EINTR;
    case CFLOW_FAULT_AGAIN:
        return -EAGAIN;
    default:
        return -EIO;
    }
}

uint64_t cf_fault_delay_ns(void)
{
    return atomic_load(&current_kind) == CFLOW_FAULT_DELAY && is_due() ? DELAY_NS : 0;
}

int cflow_fault_set(int kind, uint64_t after, uint64_t count)
{
    if (kind < CFLOW_FAULT_NONE || kind >= CFLOW_FAULT_COUNT) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_fault_set: kind %d; allowed: 0 to %d", kind, CFLOW_FAULT_COUNT - 1);
    }
    atomic_store(&to_fail, 0);
    atomic_store(&current_kind, kind);
    atomic_store(&to_pass, after);
    atomic_store(&to_fail, count);
    return CFLOW_OK;
}
#else
int cflow_fault_set(int kind, uint64_t after, uint64_t count)
{
    (void)kind;
    (void)after;
    (void)count;
    return cf_fail(CFLOW_ERR_UNSUPPORTED, "cflow_fault_set: the reads of this library do not fail on purpose; load "
                                          "libcflow_fault, which is built beside it");
}
#endif
