/*
 * stream.h - the matrices outside the expert bank, read from the file in order of use, ahead of the computation, through
 * a ring of memory. For models whose weights, experts aside, do not fit either.
 *
 * The order of use is that of the schedule, phase by phase, token after token of a call. What a phase uses is waited for
 * before it starts and given up when it is over; what is free of the ring by then is filled with what comes next, up to
 * the end of the call. Norms, biases and the embedding, of which a token needs one row, stay in memory; so does a head
 * that is the embedding. A block that several layers share is read for each of them.
 *
 * Used by one thread at a time, with a barrier between, except cf_stream_weights().
 */
#ifndef CF_STREAM_H
#define CF_STREAM_H

#include "events.h"
#include "plan.h"
#include "reader.h"

typedef struct cf_stream cf_stream;

/* Reads of the reader that a stream needs. */
uint32_t cf_stream_reads(const cf_plan *plan);
/*
 * bytes: of the ring. verify: cflow_verify. lane: for the events of reads. It and the reader outlive the stream.
 * held_bytes: of the session, see cf_memory_map(). Errors: MEMORY, which says how many bytes are needed when they are
 * too few.
 */
int cf_stream_create(const cf_plan *plan, cf_reader *reader, uint64_t bytes, int verify, cf_lane *lane,
                     uint64_t *held_bytes, cf_stream **stream_out);
void cf_stream_destroy(cf_stream *stream); /* waits for reads that are under way */
/* [tensor_count] 1 = read through the ring, 0 = not; NULL for no stream. */
const uint8_t *cf_stream_tensors(const cf_stream *stream);
uint64_t cf_stream_memory(const cf_stream *stream);

/* A call of so many tokens begins, or what is left of one: the head is used for each of them, or for the last alone. */
void cf_stream_begin(cf_stream *stream, size_t tokens, int every_head);
/* Until the weights of `phase` of the token in hand are there, and verified. Errors: IO, CHECKSUM, CANCELLED. */
int cf_stream_fetch(cf_stream *stream, uint32_t phase, const _Atomic int *cancel);
/* Where the matrix of a piece lies in this phase; NULL for one that is not read through the ring. */
const uint8_t *cf_stream_weights(const cf_stream *stream, const cf_op *op);
/* The call ends early: waits for what is under way and forgets it. */
void cf_stream_abandon(cf_stream *stream);

#endif
