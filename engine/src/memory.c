#define _GNU_SOURCE
#include "cgroup.h"
#include "error.h"
#include "session.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t HUGE_PAGE_BYTES = (size_t)2 << 20;

static size_t round_up(size_t bytes, size_t multiple)
{
    return (bytes + multiple - 1) / multiple * multiple;
}

size_t cf_page_bytes(void)
{
    const long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (size_t)bytes : 4096;
}

uint64_t cf_memory_most_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), limit = cf_cgroup_memory_bytes("");
    const uint64_t machine = pages > 0 ? (uint64_t)pages * cf_page_bytes() : UINT64_MAX;
    return limit > 0 && (uint64_t)limit < machine ? (uint64_t)limit : machine;
}

size_t cf_memory_whole_pages(size_t bytes, int *huge_out)
{
    /* A huge page that is mostly empty costs more to clear than it saves in address translation. */
    *huge_out = bytes >= HUGE_PAGE_BYTES / 4;
    return round_up(bytes, *huge_out ? HUGE_PAGE_BYTES : cf_page_bytes());
}

int cf_memory_map(cf_memory *memory, size_t bytes, int huge, const char *what, uint64_t *held_bytes)
{
    memory->data = NULL;
    memory->bytes = 0;
    if (bytes == 0) {
        return CFLOW_OK;
    }
    /* Whole huge pages, aligned to them: a shorter head or tail would fall back to small ones. */
    const int whole = huge && bytes >= HUGE_PAGE_BYTES;
    const size_t page = whole ? HUGE_PAGE_BYTES : cf_page_bytes(), slack = whole ? HUGE_PAGE_BYTES : 0;
    if (bytes > SIZE_MAX - page - slack) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: %zu bytes is more than can be addressed", what, bytes);
    }
    const size_t rounded = round_up(bytes, page);
    /* The kernel would grant more, and end some process when it is touched. */
    const uint64_t most = cf_memory_most_bytes(), held = held_bytes == NULL ? 0 : *held_bytes;
    if (rounded > most) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: needs %zu bytes of memory; this process may take %llu", what, rounded,
                       (unsigned long long)most);
    }
    if (held > most - rounded) {
        return cf_fail(CFLOW_ERR_MEMORY,
                       "%s: needs %zu bytes of memory beside %llu of the same session; this process may take %llu",
                       what, rounded, (unsigned long long)held, (unsigned long long)most);
    }
    uint8_t *data = mmap(NULL, rounded + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: cannot map %zu bytes: %s", what, rounded, strerror(errno));
    }
    if (slack > 0) {
        const size_t before = (HUGE_PAGE_BYTES - (uintptr_t)data % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
        if (before > 0) {
            (void)munmap(data, before);
        }
        data += before;
        if (slack > before) {
            (void)munmap(data + rounded, slack - before);
        }
    }
    /* A wish: kernels without transparent huge pages refuse it, and the memory works all the same. */
    (void)madvise(data, rounded, whole ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memory->data = data;
    memory->bytes = rounded;
    if (held_bytes != NULL) {
        *held_bytes += rounded;
    }
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

void cf_memory_keep_from_children(const cf_memory *memory)
{
#ifdef MADV_DONTFORK
    (void)madvise(memory->data, memory->bytes, MADV_DONTFORK);
#else
    (void)memory;
#endif
}
