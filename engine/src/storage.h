/* storage.h - what the kernel says about the storage under a process or a file. */
#ifndef CF_STORAGE_H
#define CF_STORAGE_H

#include <stdint.h>

/* Bytes that this process has made storage read so far (read_bytes of /proc/self/io); 0 where nobody counts. */
uint64_t cf_storage_read_bytes(void);
/* read_ahead_kb of the device under an open file, in bytes; the kernel's default of 128 KiB when it cannot be found. */
uint64_t cf_storage_readahead_bytes(int fd);

#endif
