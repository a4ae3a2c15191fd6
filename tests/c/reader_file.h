/* reader_file.h - a file of known bytes and a buffer for reads of it, for the tests of the reader. */
#ifndef READER_FILE_H
#define READER_FILE_H

#include "check.h"
#include "reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 9 * 1048576 + 1234 };

typedef struct known_file {
    char path[64];
    int fd;
    uint8_t *bytes;
} known_file;

static inline known_file make_known_file(const char *folder)
{
    known_file file = {.bytes = malloc(FILE_BYTES)};
    uint64_t state = 11;
    for (int i = 0; i < FILE_BYTES; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        file.bytes[i] = (uint8_t)(state >> 56);
    }
    (void)snprintf(file.path, sizeof file.path, "%s/cflow-reader-XXXXXX", folder);
    file.fd = mkstemp(file.path);
    CHECK(file.fd >= 0);
    CHECK(write(file.fd, file.bytes, FILE_BYTES) == FILE_BYTES);
    CHECK(fsync(file.fd) == 0);
    CHECK(posix_fadvise(file.fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    return file;
}

static inline void remove_known_file(known_file *file)
{
    CHECK(close(file->fd) == 0);
    CHECK(unlink(file->path) == 0);
    free(file->bytes);
}

/* Room for a read, all bytes 0xAA. */
static inline uint8_t *make_buffer(uint64_t offset, uint64_t bytes)
{
    const uint64_t span = cf_reader_span(offset, bytes);
    uint8_t *buffer = aligned_alloc(CF_READ_ALIGN, span);
    memset(buffer, 0xAA, span);
    return buffer;
}

static inline int holds(const known_file *file, const uint8_t *buffer, uint64_t offset, uint64_t bytes)
{
    return memcmp(buffer + offset % CF_READ_ALIGN, file->bytes + offset, bytes) == 0;
}

static inline cf_reader *make_reader(const known_file *file, int kind, int path, uint64_t request_bytes, uint32_t reads)
{
    const cf_reader_options options = {.kind = kind, .path = path, .request_bytes = request_bytes, .reads = reads};
    cf_reader *reader = NULL;
    CHECK(cf_reader_create(file->fd, file->path, FILE_BYTES, &options, &reader) == CFLOW_OK);
    return reader;
}

/* Whether the kernel lets us use this kind: io_uring is forbidden in some containers, and emulators have none. */
static inline int reader_runs(const known_file *file, int kind)
{
    const cf_reader_options options = {.kind = kind, .request_bytes = 4096, .reads = 1};
    cf_reader *reader = NULL;
    const int status = cf_reader_create(file->fd, file->path, FILE_BYTES, &options, &reader);
    CHECK(status == CFLOW_OK || (status == CFLOW_ERR_UNSUPPORTED && kind == CFLOW_READER_IO_URING));
    cf_reader_destroy(reader);
    if (status != CFLOW_OK) {
        printf("left out: %s\n", cflow_last_error());
    }
    return status == CFLOW_OK;
}

static inline int open_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL) {
        count++;
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return count;
}

#endif
