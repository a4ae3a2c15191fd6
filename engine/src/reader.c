/* reader.c - reads in tickets and requests: rounding, splitting, retries, the emulated rate, totals, messages. */
#define _GNU_SOURCE
#include "error.h"
#include "fault.h"
#include "pool.h"
#include "reader_state.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum {
    FILE_ENDED = -1, /* these two in the place of an errno */
    STAYS_SHORT = -2,
    TRIES_MAX = 100 /* of a request in a row that brought nothing: a second of back-off */
};

static const uint64_t LOOK_NS = 10000000;  /* at the flag that cancels */
static const uint64_t BACK_OFF_NS = 20000; /* doubled with every try */
static const uint64_t BACK_OFF_MAX_NS = 10000000;

uint64_t cf_reader_span(uint64_t offset, uint64_t bytes)
{
    return (offset % CF_READ_ALIGN + bytes + CF_READ_ALIGN - 1) / CF_READ_ALIGN * CF_READ_ALIGN;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static int is_over(const ticket *read)
{
    return read->requests == 0 && read->next == read->end;
}

/* The read of a ticket is over: no byte will be written to its buffer any more. */
static void close_read(cf_reader *reader, ticket *read)
{
    const uint64_t now = cf_now_ns(), until = read->due_ns > now ? read->due_ns : now;
    const uint64_t there = read->times.there_ns != 0 ? read->times.there_ns : now;
    read->times.there_ns = read->due_ns > there ? read->due_ns : there;
    reader->busy_until_ns = until > reader->busy_until_ns ? until : reader->busy_until_ns;
    reader->under_way--;
    if (reader->under_way == 0) {
        reader->totals.read_ns += reader->busy_until_ns - reader->busy_since_ns;
    }
    if (read->state == ABANDONED) {
        read->state = FREE;
    }
}

/* Forgets a request, and the read with it when it was the last one. */
static void end_request(cf_reader *reader, cf_request *request)
{
    ticket *read = &reader->tickets[request->ticket];
    request->next = reader->unused;
    reader->unused = request;
    if (request->there_ns > read->times.there_ns) {
        read->times.there_ns = request->there_ns;
    }
    read->requests--;
    reader->in_flight--;
    if (is_over(read)) {
        close_read(reader, read);
    }
}

/* What no request was made for yet is of no use any more. */
static void leave_later(cf_reader *reader, uint32_t index)
{
    ticket *read = &reader->tickets[index];
    if (read->next == read->end) {
        return;
    }
    read->next = read->end;
    int64_t before = CF_NO_TICKET;
    for (int64_t at = reader->first_later; at != index; at = reader->tickets[at].later) {
        before = at;
    }
    if (before == CF_NO_TICKET) {
        reader->first_later = read->later;
    } else {
        reader->tickets[before].later = read->later;
    }
    reader->last_later = reader->last_later == index ? before : reader->last_later;
}

static void fail_request(cf_reader *reader, cf_request *request, int failure)
{
    ticket *read = &reader->tickets[request->ticket];
    if (read->failure == 0) {
        read->failure = failure;
        read->failed_offset = request->offset;
        read->failed_bytes = request->end - request->offset;
    }
    leave_later(reader, request->ticket);
    end_request(reader, request);
}

static void hold_request(cf_reader *reader, cf_request *request, uint64_t delay_ns)
{
    request->start_at_ns = cf_now_ns() + delay_ns;
    request->next = reader->held;
    reader->held = request;
}

/* Once more what brought nothing, later and later. */
static void try_again(cf_reader *reader, cf_request *request, int failure)
{
    request->tries++;
    if (request->tries > TRIES_MAX) {
        fail_request(reader, request, failure);
        return;
    }
    const uint64_t delay = request->tries > 9 ? BACK_OFF_MAX_NS : (BACK_OFF_NS << request->tries);
    hold_request(reader, request, delay);
}

/* Takes the result of a request: it is over, or goes on with what is missing. */
static void take_result(cf_reader *reader, cf_request *request)
{
    const int64_t result = cf_fault_result(request->result);
    if (reader->draining || reader->tickets[request->ticket].failure != 0) {
        end_request(reader, request);
    } else if (result == 0) {
        fail_request(reader, request, FILE_ENDED);
    } else if (result == -EINTR || result == -EAGAIN) {
        try_again(reader, request, (int)-result);
    } else if (result < 0) {
        fail_request(reader, request, (int)-result);
    } else if ((uint64_t)result >= request->end - request->offset) {
        end_request(reader, request);
    } else {
        /* O_DIRECT goes on at whole units alone. */
        const uint64_t whole = (uint64_t)result / CF_READ_ALIGN * CF_READ_ALIGN;
        if (whole == 0) {
            try_again(reader, request, STAYS_SHORT);
            return;
        }
        request->tries = 0;
        request->offset += whole;
        request->to += whole;
        request->bytes -= whole;
        reader->back.start(reader->back.self, request);
    }
}

/* Starts what was held back until now. */
static void start_held(cf_reader *reader)
{
    if (reader->held == NULL) {
        return;
    }
    const uint64_t now = cf_now_ns();
    cf_request **link = &reader->held;
    while (*link != NULL) {
        cf_request *request = *link;
        if (request->start_at_ns <= now) {
            *link = request->next;
            reader->back.start(reader->back.self, request);
        } else {
            link = &request->next;
        }
    }
}

/* Makes requests of what was issued, first come first served, as many as there is room for before the next fence. */
static void start_later(cf_reader *reader)
{
    while (reader->first_later != CF_NO_TICKET && reader->unused != NULL) {
        const uint32_t index = (uint32_t)reader->first_later;
        ticket *read = &reader->tickets[index];
        if (read->fences != reader->open && reader->in_flight > 0) {
            return;
        }
        reader->open = read->fences;
        cf_request *request = reader->unused;
        reader->unused = request->next;
        const uint64_t left = read->end - read->next;
        request->ticket = index;
        request->tries = 0;
        request->there_ns = 0;
        request->offset = read->next;
        request->bytes = left < reader->options.request_bytes ? left : reader->options.request_bytes;
        request->to = read->buffer + (read->next - read->begin);
        read->next += request->bytes;
        request->end = read->next < read->wanted_end ? read->next : read->wanted_end;
        read->requests++;
        reader->in_flight++;
        if (read->next == read->end) {
            reader->first_later = read->later;
        }
        const uint64_t delay_ns = cf_fault_delay_ns();
        if (delay_ns > 0) {
            hold_request(reader, request, delay_ns);
        } else {
            reader->back.start(reader->back.self, request);
        }
    }
}

/* Starts what can be, and takes results; waits up to wait_ns when there are none. */
static void turn(cf_reader *reader, uint64_t wait_ns)
{
    start_held(reader);
    start_later(reader);
    if (reader->held != NULL) {
        const uint64_t now = cf_now_ns();
        for (const cf_request *request = reader->held; request != NULL; request = request->next) {
            const uint64_t left = request->start_at_ns > now ? request->start_at_ns - now : 0;
            wait_ns = left < wait_ns ? left : wait_ns;
        }
    }
    cf_request *finished = reader->back.turn(reader->back.self, wait_ns);
    if (finished == NULL) {
        return;
    }
    while (finished != NULL) {
        cf_request *next = finished->next;
        take_result(reader, finished);
        finished = next;
    }
    /* Hands over what goes on, without waiting. */
    start_later(reader);
    cf_request *more = reader->back.turn(reader->back.self, 0);
    while (more != NULL) {
        cf_request *next = more->next;
        take_result(reader, more);
        more = next;
    }
}

/* ---- reads ------------------------------------------------------------------------------------------------------- */

/* When the emulated device has done this read: one after the other, and no credit for the time without any. */
static uint64_t emulate(cf_reader *reader, uint64_t now, uint64_t bytes)
{
    if (reader->options.bytes_per_s == 0) {
        return 0;
    }
    const uint64_t begin = now > reader->server_free_ns ? now : reader->server_free_ns;
    reader->server_free_ns = cf_emulated_end_ns(begin, bytes, reader->options.bytes_per_s);
    return reader->server_free_ns;
}

int cf_reader_issue(cf_reader *reader, uint64_t offset, uint64_t bytes, void *buffer, const char *what,
                    uint32_t *ticket_out)
{
    if (bytes == 0 || offset > reader->file_bytes || bytes > reader->file_bytes - offset) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "%s: read of %llu bytes at offset %llu (%s): the file has %llu bytes",
                       reader->name, (unsigned long long)bytes, (unsigned long long)offset, what,
                       (unsigned long long)reader->file_bytes);
    }
    if ((uintptr_t)buffer % CF_READ_ALIGN != 0) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "%s: read of %s: the buffer is not aligned to %d bytes", reader->name, what,
                       CF_READ_ALIGN);
    }
    uint32_t index = reader->next_ticket, seen = 0;
    while (seen < reader->options.reads && reader->tickets[index].state != FREE) {
        index = (index + 1) % reader->options.reads;
        seen++;
    }
    if (seen == reader->options.reads) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "%s: read of %s: %u reads are outstanding, which is all that were asked for",
                       reader->name, what, reader->options.reads);
    }
    const uint64_t now = cf_now_ns(), span = cf_reader_span(offset, bytes);
    ticket *read = &reader->tickets[index];
    *read = (ticket){.state = TAKEN,
                     .begin = offset / CF_READ_ALIGN * CF_READ_ALIGN,
                     .buffer = buffer,
                     .due_ns = emulate(reader, now, span),
                     .fences = reader->fences,
                     .later = CF_NO_TICKET,
                     .times.issued_ns = now};
    read->next = read->begin;
    read->end = read->begin + span;
    read->wanted_end = offset + bytes;
    (void)snprintf(read->what, sizeof read->what, "%s", what);
    if (reader->under_way == 0) {
        /* An emulated read may have been counted up to a time that lies ahead. */
        reader->busy_since_ns = now > reader->busy_until_ns ? now : reader->busy_until_ns;
    }
    reader->under_way++;
    reader->totals.asked_bytes += span;
    if (reader->first_later == CF_NO_TICKET) {
        reader->first_later = index;
    } else {
        reader->tickets[reader->last_later].later = index;
    }
    reader->last_later = index;
    reader->next_ticket = (index + 1) % reader->options.reads;
    turn(reader, 0);
    *ticket_out = index;
    return CFLOW_OK;
}

static const char *reason(int failure)
{
    return failure == FILE_ENDED    ? "the file ended"
           : failure == STAYS_SHORT ? "the reads stay short"
                                    : strerror(failure);
}

static int status_of(const cf_reader *reader, const ticket *read)
{
    if (read->failure == 0) {
        return CFLOW_OK;
    }
    return cf_fail(CFLOW_ERR_IO, "%s: read of %llu bytes at offset %llu (%s): %s", reader->name,
                   (unsigned long long)read->failed_bytes, (unsigned long long)read->failed_offset, read->what,
                   reason(read->failure));
}

/* Lets the kernel wake this thread late by that much, and says by how much it did before; 0 where it cannot. */
static unsigned long set_slack_ns(unsigned long slack_ns)
{
#ifdef __linux__
    const int before_ns = prctl(PR_GET_TIMERSLACK);
    (void)prctl(PR_SET_TIMERSLACK, slack_ns);
    return before_ns > 0 ? (unsigned long)before_ns : 0;
#else
    (void)slack_ns;
    return 0;
#endif
}

/*
 * Until the emulated device has done it, looking at `cancel`. The 50 us by which Linux may wake a thread late would be
 * those of no device.
 */
static void sleep_until(uint64_t due_ns, const _Atomic int *cancel)
{
    const unsigned long slack_ns = set_slack_ns(1);
    for (uint64_t now = cf_now_ns(); now < due_ns; now = cf_now_ns()) {
        if (cancel != NULL && atomic_load(cancel)) {
            break;
        }
        const uint64_t until = due_ns - now > LOOK_NS ? now + LOOK_NS : due_ns;
        const struct timespec at = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    }
    (void)set_slack_ns(slack_ns); /* 0: what the thread began with */
}

void cf_reader_fence(cf_reader *reader)
{
    reader->fences++;
}

int cf_reader_wait(cf_reader *reader, uint32_t index, const _Atomic int *cancel)
{
    if (index >= reader->options.reads || reader->tickets[index].state != TAKEN) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "%s: no read has ticket %u", reader->name, index);
    }
    const uint64_t start_ns = cf_now_ns();
    ticket *read = &reader->tickets[index];
    while (!is_over(read) && (cancel == NULL || !atomic_load(cancel))) {
        turn(reader, LOOK_NS);
    }
    if (is_over(read) && read->failure == 0) {
        sleep_until(read->due_ns, cancel);
    }
    const uint64_t end_ns = cf_now_ns();
    reader->totals.wait_ns += end_ns - start_ns;
    read->times.wait_start_ns = start_ns;
    read->times.wait_end_ns = end_ns;
    if (cancel != NULL && atomic_load(cancel)) {
        read->state = is_over(read) ? FREE : ABANDONED;
        return cf_fail(CFLOW_ERR_CANCELLED, "%s: the read of %s was cancelled", reader->name, read->what);
    }
    read->state = FREE;
    return status_of(reader, read);
}

cf_read_times cf_reader_times(const cf_reader *reader, uint32_t index)
{
    return reader->tickets[index].times;
}

void cf_reader_poll(cf_reader *reader)
{
    if (reader->under_way > 0) {
        turn(reader, 0);
    }
}

/* What was dropped takes no more of the emulated device's time, nor is time counted that has not passed. */
static void forget_emulated(cf_reader *reader)
{
    const uint64_t now = cf_now_ns();
    reader->server_free_ns = 0;
    if (reader->busy_until_ns > now) {
        reader->totals.read_ns -= reader->busy_until_ns - now;
        reader->busy_until_ns = now;
    }
}

void cf_reader_drain(cf_reader *reader)
{
    reader->draining = 1;
    for (uint32_t i = 0; i < reader->options.reads; i++) {
        ticket *read = &reader->tickets[i];
        if (read->next != read->end) {
            leave_later(reader, i);
            if (is_over(read)) {
                close_read(reader, read);
            }
        }
    }
    while (reader->held != NULL) {
        cf_request *request = reader->held;
        reader->held = request->next;
        end_request(reader, request);
    }
    while (reader->under_way > 0) {
        turn(reader, LOOK_NS);
    }
    for (uint32_t i = 0; i < reader->options.reads; i++) {
        reader->tickets[i].state = FREE;
    }
    forget_emulated(reader);
    reader->draining = 0;
}
