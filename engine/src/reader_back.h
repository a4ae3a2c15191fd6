/* reader_back.h - what the two ways of reading have in common: requests go in, results come out in any order. */
#ifndef CF_READER_BACK_H
#define CF_READER_BACK_H

#include "cflow.h"

/* One read of the device. */
typedef struct cf_request {
    uint64_t offset, bytes; /* aligned to CF_READ_ALIGN */
    uint8_t *to;
    int64_t result;    /* set by the back end: bytes, or a negative errno */
    uint64_t there_ns; /* likewise: when it finished; 0 where the back end does not know before it is asked */
    struct cf_request *next;

    /* Of the front alone. */
    uint64_t end;         /* of the bytes that have to come: in the last unit, the rest need not */
    uint64_t start_at_ns; /* while it is held back */
    uint32_t ticket;
    uint32_t tries; /* in a row that brought nothing */
} cf_request;

typedef struct cf_back {
    void *self;
    /* Takes a request; there are never more of them than `requests` of the creation. */
    void (*start)(void *self, cf_request *request);
    /* Hands over what was taken, and returns what has finished, as a list; if none has, waits up to wait_ns for one. */
    cf_request *(*turn)(void *self, uint64_t wait_ns);
    /* When nothing is under way. */
    void (*destroy)(void *self);
} cf_back;

/* Both keep fd, which stays the caller's. Errors: MEMORY, IO; UNSUPPORTED with the reason where io_uring is refused. */
int cf_uring_create(int fd, uint32_t requests, cf_back *back_out);
int cf_reader_threads_create(int fd, cf_back *back_out);

#endif
