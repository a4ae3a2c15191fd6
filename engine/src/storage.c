#define _GNU_SOURCE
#include "storage.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* The start of a small file of /proc or /sys as a string; 0 when it cannot be read. */
static int read_text(const char *path, char *text, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    const ssize_t got = read(fd, text, size - 1);
    (void)close(fd);
    text[got < 0 ? 0 : got] = '\0';
    return got > 0;
}

uint64_t cf_storage_read_bytes(void)
{
    static const char field[] = "\nread_bytes: ";
    char text[512];
    if (!read_text("/proc/self/io", text, sizeof text)) {
        return 0;
    }
    const char *at = strstr(text, field);
    return at == NULL ? 0 : strtoull(at + sizeof field - 1, NULL, 10);
}

uint64_t cf_storage_readahead_bytes(int fd)
{
    /* Of a file system, of a whole disk, and of the disk that a partition is part of. */
    static const char *const places[] = {
        "/sys/class/bdi/%u:%u/read_ahead_kb",
        "/sys/dev/block/%u:%u/queue/read_ahead_kb",
        "/sys/dev/block/%u:%u/../queue/read_ahead_kb",
    };
    struct stat status;
    if (fstat(fd, &status) == 0) {
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            char path[96], text[32];
            (void)snprintf(path, sizeof path, places[i], major(status.st_dev), minor(status.st_dev));
            if (read_text(path, text, sizeof text)) {
                const uint64_t kib = strtoull(text, NULL, 10);
                if (kib > 0) {
                    return kib * 1024;
                }
            }
        }
    }
    return 128 * 1024;
}
