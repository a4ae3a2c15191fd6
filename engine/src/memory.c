#define _GNU_SOURCE
#include "error.h"
#include "session.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static const size_t HUGE_PAGE_BYTES = (size_t)2 << 20;

int cf_memory_map(cf_memory *memory, size_t bytes, int huge, const char *what)
{
    memory->data = NULL;
    memory->bytes = 0;
    if (bytes == 0) {
        return CFLOW_OK;
    }
    /* Whole huge pages: a shorter tail would fall back to small ones. */
    const size_t page = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 4096;
    if (bytes > SIZE_MAX - page) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: %zu bytes is more than can be addressed", what, bytes);
    }
    const size_t rounded = (bytes + page - 1) / page * page;
    void *data = mmap(NULL, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: cannot map %zu bytes: %s", what, rounded, strerror(errno));
    }
    /* A wish: kernels without transparent huge pages refuse it, and the memory works all the same. */
    (void)madvise(data, rounded, huge && rounded >= HUGE_PAGE_BYTES ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memory->data = data;
    memory->bytes = rounded;
    return CFLOW_OK;
}

void cf_memory_unmap(cf_memory *memory)
{
    if (memory->data != NULL) {
        (void)munmap(memory->data, memory->bytes);
    }
    memory->data = NULL;
    memory->bytes = 0;
}
