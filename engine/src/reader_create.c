/* reader_create.c - making a reader: the file as it is to be read, and what reads it. */
#define _GNU_SOURCE
#include "error.h"
#include "reader_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

int cf_reader_kind(const cf_reader *reader)
{
    return reader->kind;
}

int cf_reader_path(const cf_reader *reader)
{
    return reader->path;
}

void cf_reader_totals_get(const cf_reader *reader, cf_reader_totals *totals_out)
{
    *totals_out = reader->totals;
}

static int check_options(const char *path, const cf_reader_options *options)
{
    if (options->kind < CFLOW_READER_AUTO || options->kind >= CFLOW_READER_COUNT ||
        options->path < CFLOW_READ_PATH_DIRECT || options->path >= CFLOW_READ_PATH_COUNT) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "%s: reader %d (allowed: 0 to %d), path %d (allowed: 0 to %d)", path,
                       options->kind, CFLOW_READER_COUNT - 1, options->path, CFLOW_READ_PATH_COUNT - 1);
    }
    if (options->request_bytes == 0 || options->request_bytes > CF_REQUEST_BYTES_MAX ||
        options->request_bytes % CF_READ_ALIGN != 0) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "%s: requests of %llu bytes; allowed: multiples of %d up to %d", path,
                       (unsigned long long)options->request_bytes, CF_READ_ALIGN, CF_REQUEST_BYTES_MAX);
    }
    if (options->reads == 0 || options->reads > 1u << 20) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "%s: %u reads at once; allowed: 1 to %u", path, options->reads, 1u << 20);
    }
    return CFLOW_OK;
}

/* Whether a file system keeps its files in memory, or serves them from a program: there O_DIRECT means nothing. */
static int has_no_device(int fd)
{
    static const unsigned long tmpfs = 0x01021994, ramfs = 0x858458f6, fuse = 0x65735546;
    struct statfs system;
    if (fstatfs(fd, &system) != 0) {
        return 0;
    }
    const unsigned long type = (unsigned long)system.f_type & 0xffffffffu;
    return type == tmpfs || type == ramfs || type == fuse;
}

/* Some file systems take O_DIRECT when a file is opened and refuse the reads. */
static int reads_directly(int fd)
{
    void *page = aligned_alloc(CF_READ_ALIGN, CF_READ_ALIGN);
    if (page == NULL) {
        return 0;
    }
    ssize_t got;
    do {
        got = pread(fd, page, CF_READ_ALIGN, 0);
    } while (got < 0 && errno == EINTR);
    const int refused = got < 0 && (errno == EINVAL || errno == EOPNOTSUPP);
    free(page);
    return !refused;
}

/* The file once more, through its descriptor: the path may name another one by now. */
static int open_file(cf_reader *reader, int fd)
{
    reader->path = CFLOW_READ_PATH_BUFFERED;
    if (reader->options.path == CFLOW_READ_PATH_DIRECT && !has_no_device(fd)) {
        char name[64];
        (void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        reader->fd = open(name, O_RDONLY | O_CLOEXEC | O_DIRECT);
        if (reader->fd >= 0 && reads_directly(reader->fd)) {
            reader->path = CFLOW_READ_PATH_DIRECT;
            return CFLOW_OK;
        }
        if (reader->fd >= 0) {
            (void)close(reader->fd);
        }
    }
    reader->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (reader->fd < 0) {
        return cf_fail(CFLOW_ERR_IO, "%s: cannot be opened for reading: %s", reader->name, strerror(errno));
    }
    return CFLOW_OK;
}

static int open_back(cf_reader *reader)
{
    if (reader->options.kind != CFLOW_READER_THREADS) {
        const int status = cf_uring_create(reader->fd, CF_REQUESTS, &reader->back);
        reader->kind = CFLOW_READER_IO_URING;
        if (status != CFLOW_ERR_UNSUPPORTED || reader->options.kind == CFLOW_READER_IO_URING) {
            return status;
        }
    }
    reader->kind = CFLOW_READER_THREADS;
    return cf_reader_threads_create(reader->fd, &reader->back);
}

static void free_reader(cf_reader *reader)
{
    if (reader->fd >= 0) {
        (void)close(reader->fd);
    }
    free(reader->tickets);
    free(reader->requests);
    free(reader->name);
    free(reader);
}

int cf_reader_create(int fd, const char *path, uint64_t file_bytes, const cf_reader_options *options,
                     cf_reader **reader_out)
{
    int status = check_options(path, options);
    if (status != CFLOW_OK) {
        return status;
    }
    cf_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for a reader", path);
    }
    reader->options = *options;
    reader->file_bytes = file_bytes;
    reader->first_later = CF_NO_TICKET;
    reader->fd = -1;
    reader->name = strdup(path);
    reader->tickets = calloc(options->reads, sizeof *reader->tickets);
    reader->requests = calloc(CF_REQUESTS, sizeof *reader->requests);
    if (reader->name == NULL || reader->tickets == NULL || reader->requests == NULL) {
        status = cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for a reader", path);
    } else {
        for (int i = 0; i < CF_REQUESTS; i++) {
            reader->requests[i].next = reader->unused;
            reader->unused = &reader->requests[i];
        }
        status = open_file(reader, fd);
    }
    if (status == CFLOW_OK) {
        status = open_back(reader);
    }
    if (status != CFLOW_OK) {
        free_reader(reader);
        return status;
    }
    *reader_out = reader;
    return CFLOW_OK;
}

void cf_reader_destroy(cf_reader *reader)
{
    if (reader != NULL) {
        cf_reader_drain(reader);
        reader->back.destroy(reader->back.self);
        free_reader(reader);
    }
}
