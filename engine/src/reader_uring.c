/*
 * reader_uring.c - reads by io_uring, through its system calls alone.
 *
 * The ring is the plain one: completions arrive while the thread that started the reads computes, and whichever thread
 * waits is woken. COOP_TASKRUN and DEFER_TASKRUN would put them off until that thread enters the kernel, which a worker
 * spinning at a barrier does not; a polling kernel thread (SQPOLL) takes a core.
 */
#define _GNU_SOURCE
#include "error.h"
#include "reader_back.h"

#if defined(__linux__) && defined(__has_include)
#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#include <sys/syscall.h>
#endif
#endif

/* Came with IORING_OP_READ; a header without it is older. */
#if defined(IORING_FEAT_RW_CUR_POS) && defined(SYS_io_uring_setup) && defined(SYS_io_uring_enter)

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef struct ring {
    int fd;      /* of the file */
    int ring_fd; /* -1: not set up */
    uint8_t *rings;
    size_t rings_bytes;
    struct io_uring_sqe *entries;
    size_t entries_bytes;
    uint32_t *submit_head, *submit_tail, *submit_index, *submit_flags;
    uint32_t *complete_head, *complete_tail;
    struct io_uring_cqe *completions;
    uint32_t submit_mask, complete_mask;
    cf_request *refused; /* finished without the kernel: it did not take them */
} ring;

static int enter(const ring *own, uint32_t submit, uint32_t complete, unsigned flags)
{
    return (int)syscall(SYS_io_uring_enter, own->ring_fd, submit, complete, flags, NULL, (size_t)0);
}

/* The next entry, cleared. The front never has more requests than there are entries, and all are submitted in a turn. */
static struct io_uring_sqe *next_entry(ring *own)
{
    const uint32_t index = *own->submit_tail & own->submit_mask;
    struct io_uring_sqe *entry = &own->entries[index];
    memset(entry, 0, sizeof *entry);
    own->submit_index[index] = index;
    return entry;
}

static void add_entry(ring *own)
{
    __atomic_store_n(own->submit_tail, *own->submit_tail + 1, __ATOMIC_RELEASE);
}

static void start(void *self, cf_request *request)
{
    ring *own = self;
    struct io_uring_sqe *entry = next_entry(own);
    entry->opcode = IORING_OP_READ;
    entry->fd = own->fd;
    entry->off = request->offset;
    entry->addr = (uintptr_t)request->to;
    entry->len = (uint32_t)request->bytes;
    entry->user_data = (uintptr_t)request;
    add_entry(own);
}

static uint32_t not_submitted(const ring *own)
{
    return *own->submit_tail - __atomic_load_n(own->submit_head, __ATOMIC_ACQUIRE);
}

/* What the kernel will not have is taken back, and finishes with its error. */
static void submit(ring *own)
{
    for (uint32_t left = not_submitted(own); left > 0; left = not_submitted(own)) {
        if (enter(own, left, 0, 0) >= 0 || errno == EINTR) {
            continue;
        }
        const int error = errno;
        for (; left > 0; left--) {
            const uint32_t tail = *own->submit_tail - 1;
            cf_request *request = (cf_request *)(uintptr_t)own->entries[tail & own->submit_mask].user_data;
            __atomic_store_n(own->submit_tail, tail, __ATOMIC_RELEASE);
            request->result = -(int64_t)(error == EBUSY ? EAGAIN : error);
            request->next = own->refused;
            own->refused = request;
        }
    }
}

static cf_request *collect(ring *own)
{
    cf_request *list = own->refused;
    own->refused = NULL;
    uint32_t head = *own->complete_head;
    const uint32_t tail = __atomic_load_n(own->complete_tail, __ATOMIC_ACQUIRE);
    for (; head != tail; head++) {
        const struct io_uring_cqe *completion = &own->completions[head & own->complete_mask];
        cf_request *request = (cf_request *)(uintptr_t)completion->user_data;
        request->result = completion->res;
        request->next = list;
        list = request;
    }
    __atomic_store_n(own->complete_head, head, __ATOMIC_RELEASE);
    return list;
}

/* A ring is readable when it holds completions. Kernels before 5.11 have no other wait with a time limit. */
static void wait_for_completion(const ring *own, uint64_t wait_ns)
{
    struct pollfd ready = {.fd = own->ring_fd, .events = POLLIN};
    const struct timespec limit = {.tv_sec = (time_t)(wait_ns / 1000000000u), .tv_nsec = (long)(wait_ns % 1000000000u)};
    (void)ppoll(&ready, 1, &limit, NULL);
}

static cf_request *turn(void *self, uint64_t wait_ns)
{
    ring *own = self;
    submit(own);
    cf_request *finished = collect(own);
    if (finished == NULL && (__atomic_load_n(own->submit_flags, __ATOMIC_RELAXED) & IORING_SQ_CQ_OVERFLOW) != 0) {
        (void)enter(own, 0, 0, IORING_ENTER_GETEVENTS);
        finished = collect(own);
    }
    if (finished == NULL && wait_ns > 0) {
        wait_for_completion(own, wait_ns);
        finished = collect(own);
    }
    return finished;
}

static void destroy(void *self)
{
    ring *own = self;
    if (own->entries != NULL) {
        (void)munmap(own->entries, own->entries_bytes);
    }
    if (own->rings != NULL) {
        (void)munmap(own->rings, own->rings_bytes);
    }
    if (own->ring_fd >= 0) {
        (void)close(own->ring_fd);
    }
    free(own);
}

static void *map_ring(const ring *own, size_t bytes, off_t offset)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, own->ring_fd, offset);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Returns 0 or an errno. */
static int set_up(ring *own, uint32_t requests)
{
    struct io_uring_params params;
    memset(&params, 0, sizeof params);
    own->ring_fd = (int)syscall(SYS_io_uring_setup, requests, &params);
    if (own->ring_fd < 0) {
        return errno;
    }
    if ((params.features & IORING_FEAT_RW_CUR_POS) == 0 || (params.features & IORING_FEAT_SINGLE_MMAP) == 0) {
        return ENOSYS;
    }
    const size_t submit_bytes = params.sq_off.array + params.sq_entries * sizeof(uint32_t);
    const size_t complete_bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    own->rings_bytes = submit_bytes > complete_bytes ? submit_bytes : complete_bytes;
    own->rings = map_ring(own, own->rings_bytes, IORING_OFF_SQ_RING);
    own->entries_bytes = params.sq_entries * sizeof(struct io_uring_sqe);
    own->entries = map_ring(own, own->entries_bytes, (off_t)IORING_OFF_SQES);
    if (own->rings == NULL || own->entries == NULL) {
        return errno;
    }
    own->submit_head = (uint32_t *)(void *)(own->rings + params.sq_off.head);
    own->submit_tail = (uint32_t *)(void *)(own->rings + params.sq_off.tail);
    own->submit_flags = (uint32_t *)(void *)(own->rings + params.sq_off.flags);
    own->submit_index = (uint32_t *)(void *)(own->rings + params.sq_off.array);
    own->submit_mask = params.sq_entries - 1;
    own->complete_head = (uint32_t *)(void *)(own->rings + params.cq_off.head);
    own->complete_tail = (uint32_t *)(void *)(own->rings + params.cq_off.tail);
    own->completions = (struct io_uring_cqe *)(void *)(own->rings + params.cq_off.cqes);
    own->complete_mask = params.cq_entries - 1;
    return 0;
}

/* A filter of system calls may let a ring be made and refuse its use. Returns 0 or an errno. */
static int try_out(ring *own)
{
    cf_request nothing = {.result = -1};
    struct io_uring_sqe *entry = next_entry(own);
    entry->opcode = IORING_OP_NOP;
    entry->user_data = (uintptr_t)&nothing;
    add_entry(own);
    const cf_request *finished = NULL;
    while (finished == NULL) {
        finished = turn(own, 10000000);
    }
    return (int)-nothing.result;
}

int cf_uring_create(int fd, uint32_t requests, cf_back *back_out)
{
    ring *own = calloc(1, sizeof *own);
    if (own == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "out of memory for io_uring");
    }
    own->fd = fd;
    int error = set_up(own, requests);
    error = error != 0 ? error : try_out(own);
    if (error != 0) {
        destroy(own);
        return cf_fail(CFLOW_ERR_UNSUPPORTED, "io_uring is refused: %s%s", strerror(error),
                       error == EPERM    ? " (by a filter of system calls, or kernel.io_uring_disabled)"
                       : error == ENOMEM ? " (the limit of locked memory, ulimit -l)"
                       : error == ENOSYS ? " (no kernel of 5.6 or later)"
                                         : "");
    }
    *back_out = (cf_back){.self = own, .start = start, .turn = turn, .destroy = destroy};
    return CFLOW_OK;
}

#else

int cf_uring_create(int fd, uint32_t requests, cf_back *back_out)
{
    (void)fd;
    (void)requests;
    (void)back_out;
    return cf_fail(CFLOW_ERR_UNSUPPORTED, "io_uring was not there when the library was built");
}

#endif
