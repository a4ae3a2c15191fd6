/*
 * reads_driver.c - what a file can be read at by io_uring and nothing else, to compare the engine's reader with:
 *   cflow_reads_driver FILE REQUEST_BYTES DEPTH
 * Reads the file from its first byte to its last, past the page cache, DEPTH requests under way, each into a buffer of its
 * own on huge pages. It shares no line with the engine. Prints nanoseconds and bytes; exit code 0, or 2 with a sentence on
 * standard error.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH_MAX = 256, HUGE_PAGE_BYTES = 2 << 20 };

static int fail(const char *what, const char *reason)
{
    (void)fprintf(stderr, "cflow_reads_driver: %s: %s\n", what, reason);
    return 2;
}

typedef struct ring {
    int fd;
    uint32_t *submit_tail, *submit_mask, *submit_index, *complete_head, *complete_tail, *complete_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *completions;
} ring;

static uint32_t *field(uint8_t *base, uint32_t offset)
{
    return (uint32_t *)(void *)(base + offset);
}

static int make_ring(ring *own, uint32_t depth)
{
    struct io_uring_params params;
    memset(&params, 0, sizeof params);
    own->fd = (int)syscall(SYS_io_uring_setup, depth, &params);
    if (own->fd < 0 || (params.features & IORING_FEAT_SINGLE_MMAP) == 0) {
        return 0;
    }
    const size_t bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    uint8_t *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own->fd, IORING_OFF_SQ_RING);
    void *entries = mmap(NULL, params.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED,
                         own->fd, (off_t)IORING_OFF_SQES);
    if (base == MAP_FAILED || entries == MAP_FAILED) {
        return 0;
    }
    own->entries = entries;
    own->submit_tail = field(base, params.sq_off.tail);
    own->submit_mask = field(base, params.sq_off.ring_mask);
    own->submit_index = field(base, params.sq_off.array);
    own->complete_head = field(base, params.cq_off.head);
    own->complete_tail = field(base, params.cq_off.tail);
    own->complete_mask = field(base, params.cq_off.ring_mask);
    own->completions = (struct io_uring_cqe *)(void *)(base + params.cq_off.cqes);
    return 1;
}

static void add_read(ring *own, int file, uint8_t *to, uint64_t offset, uint32_t bytes, uint32_t buffer)
{
    const uint32_t index = *own->submit_tail & *own->submit_mask;
    struct io_uring_sqe *entry = &own->entries[index];
    memset(entry, 0, sizeof *entry);
    entry->opcode = IORING_OP_READ;
    entry->fd = file;
    entry->addr = (uintptr_t)to;
    entry->len = bytes;
    entry->off = offset;
    entry->user_data = buffer;
    own->submit_index[index] = index;
    __atomic_store_n(own->submit_tail, *own->submit_tail + 1, __ATOMIC_RELEASE);
}

/* Returns 0 or an errno. */
static int read_all(ring *own, int file, uint64_t file_bytes, uint8_t *buffers, uint32_t request_bytes, uint32_t depth)
{
    uint64_t next = 0, done = 0;
    uint32_t added = 0, shorts = 0, idle[DEPTH_MAX], idle_count = depth;
    for (uint32_t i = 0; i < depth; i++) {
        idle[i] = i;
    }
    while (done < file_bytes) {
        for (; idle_count > 0 && next < file_bytes; next += request_bytes, added++) {
            const uint32_t buffer = idle[--idle_count];
            add_read(own, file, buffers + (uint64_t)buffer * request_bytes, next, request_bytes, buffer);
        }
        if (syscall(SYS_io_uring_enter, own->fd, added, 1, IORING_ENTER_GETEVENTS, NULL, (size_t)0) < 0) {
            return errno;
        }
        added = 0;
        uint32_t head = *own->complete_head;
        for (; head != __atomic_load_n(own->complete_tail, __ATOMIC_ACQUIRE); head++) {
            const struct io_uring_cqe *completion = &own->completions[head & *own->complete_mask];
            if (completion->res < 0) {
                return -completion->res;
            }
            /* Only the last one of the file may be short. */
            shorts += (uint32_t)completion->res < request_bytes;
            if (shorts > (file_bytes % request_bytes != 0)) {
                return EIO;
            }
            done += (uint64_t)completion->res;
            idle[idle_count++] = (uint32_t)completion->user_data;
        }
        __atomic_store_n(own->complete_head, head, __ATOMIC_RELEASE);
    }
    return 0;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* 1 .. most, a multiple of `unit`; 0 when it is no such number. */
static uint32_t number(const char *text, unsigned long unit, unsigned long most)
{
    char *end = NULL;
    const unsigned long value = strtoul(text, &end, 10);
    return *text != '\0' && *end == '\0' && value <= most && value % unit == 0 ? (uint32_t)value : 0;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        return fail("arguments", "FILE REQUEST_BYTES DEPTH are needed");
    }
    const uint32_t request_bytes = number(argv[2], 4096, 16 << 20), depth = number(argv[3], 1, DEPTH_MAX);
    if (request_bytes == 0 || depth == 0) {
        return fail("arguments", "REQUEST_BYTES is a multiple of 4096 up to 16 MiB, DEPTH 1 to 256");
    }
    const int file = open(argv[1], O_RDONLY | O_CLOEXEC | O_DIRECT);
    struct stat about;
    if (file < 0 || fstat(file, &about) != 0) {
        return fail(argv[1], strerror(errno));
    }
    const size_t bytes = ((size_t)request_bytes * depth + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    uint8_t *buffers = aligned_alloc(HUGE_PAGE_BYTES, bytes);
    ring own = {.fd = -1};
    if (buffers == NULL || !make_ring(&own, depth)) {
        return fail("cannot set up", buffers == NULL ? "out of memory" : strerror(errno));
    }
    (void)madvise(buffers, bytes, MADV_HUGEPAGE);
    memset(buffers, 1, bytes);
    const uint64_t start_ns = now_ns();
    const int error = read_all(&own, file, (uint64_t)about.st_size, buffers, request_bytes, depth);
    const uint64_t passed_ns = now_ns() - start_ns;
    if (error != 0) {
        return fail(argv[1], strerror(error));
    }
    (void)printf("%llu %llu\n", (unsigned long long)passed_ns, (unsigned long long)about.st_size);
    return 0;
}
