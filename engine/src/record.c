/* record.c - the cache that the kernels of libcflow_record feed; in libcflow there is nothing to feed it with. */
#include "record.h"

#include "cache.h"
#include "error.h"

#if defined(CFLOW_RECORD)
#include <stdatomic.h>

/* The kernels are plain functions without a context, so what they feed belongs to the library; the lock orders workers. */
static atomic_flag busy = ATOMIC_FLAG_INIT;
static cflow_cache *fed;
static _Thread_local uint32_t current_piece = CFLOW_PIECE_KIND_COUNT;

static void lock(void)
{
    while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire)) {
    }
}

static void unlock(void)
{
    atomic_flag_clear_explicit(&busy, memory_order_release);
}

void cf_record(const void *pointer, size_t bytes, int kind)
{
    lock();
    if (fed != NULL) {
        cf_cache_access(fed, (uintptr_t)pointer, bytes, current_piece, (uint32_t)kind);
    }
    unlock();
}

void cf_record_piece(uint32_t piece)
{
    current_piece = piece;
}

int cflow_record_to(cflow_cache *cache)
{
    lock();
    const int taken = fed != NULL && cache != NULL && fed != cache;
    if (!taken) {
        fed = cache;
    }
    unlock();
    return taken ? cf_fail(CFLOW_ERR_ARGUMENT, "cflow_record_to: accesses go to another cache already") : CFLOW_OK;
}
#else
int cflow_record_to(cflow_cache *cache)
{
    (void)cache;
    return cf_fail(CFLOW_ERR_UNSUPPORTED, "cflow_record_to: the kernels of this library do not record; load "
                                          "libcflow_record, which is built beside it");
}
#endif
