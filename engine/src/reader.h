/*
 * reader.h - ranges of a file read side by side with the computation: by io_uring, or by a few threads where that is
 * refused; past the page cache (O_DIRECT) or through it; as fast as the device or at an emulated rate.
 *
 * A reader is used by one thread at a time. Which one may change, with a barrier between.
 */
#ifndef CF_READER_H
#define CF_READER_H

#include "cflow.h"

typedef struct cf_reader cf_reader;

/* Offsets, lengths and memory of every read: devices ask for 512 or 4,096. */
enum { CF_READ_ALIGN = 4096 };

enum { CF_REQUEST_BYTES_MAX = 16 << 20 };

typedef struct cf_reader_options {
    int kind;               /* cflow_reader */
    int path;               /* cflow_read_path */
    uint64_t request_bytes; /* one read of the device: a multiple of CF_READ_ALIGN up to CF_REQUEST_BYTES_MAX */
    uint64_t bytes_per_s;   /* emulated rate; 0 = that of the device */
    uint32_t reads;         /* most cf_reader_issue()s outstanding at once */
} cf_reader_options;

/*
 * A reader of the file that `fd` is open on; `path` is kept for messages. O_DIRECT is tried with one read and left where
 * it is refused or means nothing (tmpfs, FUSE). Errors: ARGUMENT, MEMORY, IO; UNSUPPORTED when io_uring was asked for by
 * name and is refused.
 */
int cf_reader_create(int fd, const char *path, uint64_t file_bytes, const cf_reader_options *options,
                     cf_reader **reader_out);
void cf_reader_destroy(cf_reader *reader);   /* waits for what is under way; NULL is allowed */
int cf_reader_kind(const cf_reader *reader); /* as resolved */
int cf_reader_path(const cf_reader *reader);

/* Bytes of buffer that a read of [offset, offset + bytes) needs: the range rounded outwards to CF_READ_ALIGN. */
uint64_t cf_reader_span(uint64_t offset, uint64_t bytes);

/*
 * Starts reading [offset, offset + bytes), rounded outwards to CF_READ_ALIGN, into `buffer`, whose first byte is that of
 * the rounded offset; behind the end of the file nothing is written. The buffer is aligned to CF_READ_ALIGN and has room
 * for cf_reader_span(). what: for messages ("expert 3 of block 7"), copied, cut to 63 bytes. Never waits for the device:
 * what does not fit into its queue is started by later calls. Errors: ARGUMENT (also: too many outstanding).
 */
int cf_reader_issue(cf_reader *reader, uint64_t offset, uint64_t bytes, void *buffer, const char *what,
                    uint32_t *ticket_out);
/*
 * Reads that are issued from now on start when all those before are there. A device serves what it is asked for side by
 * side, so that of two reads the one that is needed first would come as late as the other.
 */
void cf_reader_fence(cf_reader *reader);
/*
 * Until all of it is there and its emulated time has come; frees the ticket. Errors: IO (nothing is under way into the
 * buffer any more); CANCELLED when *cancel, which may be NULL, becomes non-zero: then the read goes on, and its ticket
 * and buffer are the reader's until cf_reader_drain().
 */
int cf_reader_wait(cf_reader *reader, uint32_t ticket, const _Atomic int *cancel);
/*
 * Of a read that was waited for with success, until the next cf_reader_issue(). there_ns: all of it was there, as told by
 * the thread that read it, or else when that was noticed, and an emulated device had done it.
 */
typedef struct cf_read_times {
    uint64_t issued_ns, there_ns;
    uint64_t wait_start_ns, wait_end_ns;
} cf_read_times;
cf_read_times cf_reader_times(const cf_reader *reader, uint32_t ticket);
/* Looks for completions and starts what had to stay back, without waiting. */
void cf_reader_poll(cf_reader *reader);
/* Until nothing is under way into any buffer; results are forgotten, all tickets free. What was not started is not. */
void cf_reader_drain(cf_reader *reader);

typedef struct cf_reader_totals {
    uint64_t asked_bytes; /* of all issues, rounding included */
    uint64_t wait_ns;     /* in cf_reader_wait() */
    uint64_t read_ns;     /* in which at least one read was under way, from its issue until it was found complete */
} cf_reader_totals;
void cf_reader_totals_get(const cf_reader *reader, cf_reader_totals *totals_out);

/*
 * When an emulated device that begins at `begin_ns` has read `bytes`. At a byte per second a large file takes longer than
 * 64 bits of nanoseconds: then, and from then on, at no time that comes.
 */
static inline uint64_t cf_emulated_end_ns(uint64_t begin_ns, uint64_t bytes, uint64_t bytes_per_s)
{
    const uint64_t never_ns = UINT64_MAX / 4;
    const double takes_ns = (double)bytes * 1e9 / (double)bytes_per_s;
    return begin_ns >= never_ns || takes_ns >= (double)(never_ns - begin_ns) ? never_ns : begin_ns + (uint64_t)takes_ns;
}

#endif
