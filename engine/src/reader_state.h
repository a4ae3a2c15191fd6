/* reader_state.h - what a reader consists of; reader_create.c makes it, reader.c works with it. */
#ifndef CF_READER_STATE_H
#define CF_READER_STATE_H

#include "reader.h"
#include "reader_back.h"

enum {
    CF_REQUESTS = 1024, /* handed to the device at once; what goes beyond them waits for a later call */
    CF_WHAT_BYTES = 64,
    CF_NO_TICKET = -1
};

/* One cf_reader_issue(). */
typedef struct ticket {
    enum { FREE, TAKEN, ABANDONED } state;
    uint64_t next, end;  /* bytes that no request was made for yet; `end` is aligned */
    uint64_t wanted_end; /* of the bytes that have to come */
    uint64_t begin;
    uint8_t *buffer;   /* its first byte is that at `begin` */
    uint32_t requests; /* made and not over */
    uint64_t due_ns;   /* of the emulated device; 0 = none */
    int failure;       /* of the first request that failed: an errno, or a negative reason; 0 = none */
    uint64_t failed_offset, failed_bytes;
    uint64_t fences; /* that it lies behind */
    cf_read_times times;
    int64_t later; /* next in the queue of those with bytes that no request was made for */
    char what[CF_WHAT_BYTES];
} ticket;

struct cf_reader {
    int fd;
    int kind, path;
    cf_reader_options options;
    uint64_t file_bytes;
    char *name;
    cf_back back;
    ticket *tickets;      /* [options.reads] */
    uint32_t next_ticket; /* where to look for a free one */
    cf_request *requests;
    cf_request *unused, *held; /* lists */
    int64_t first_later, last_later;
    uint32_t under_way; /* tickets with a read that is not over */
    uint32_t in_flight; /* requests that are not over */
    uint64_t fences;    /* so far */
    uint64_t open;      /* fences that the requests in flight lie behind */
    int draining;
    uint64_t server_free_ns; /* when the emulated device has done all that was asked of it */
    uint64_t busy_since_ns, busy_until_ns;
    cf_reader_totals totals;
};

#endif
