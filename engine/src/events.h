/*
 * events.h - what happened when: lanes of records, one for each worker and one for the session (cflow_session_events).
 *
 * A lane is written by one thread at a time: a worker's by itself, the session's by whoever runs a barrier function. The
 * times are those that the counters are made of, so that nothing looks at the clock for the events' sake.
 */
#ifndef CF_EVENTS_H
#define CF_EVENTS_H

#include "reader.h"

typedef struct cf_lane {
    uint64_t *records; /* [capacity][CFLOW_EVENT_FIELD_COUNT]; NULL: nothing is recorded */
    size_t capacity;
    size_t count;   /* made, whether there was room or not */
    uint64_t token; /* position of the one in hand */
} cf_lane;

typedef struct cf_event {
    cflow_event_kind kind;
    uint64_t start_ns, end_ns;
    uint64_t phase, piece; /* UINT64_MAX: none */
    uint64_t bytes;
} cf_event;

/* Room for `capacity` records, in pages that were touched: none of them costs a fault later. Errors: MEMORY. */
int cf_lane_open(cf_lane *lane, size_t capacity);
void cf_lane_close(cf_lane *lane);
/* Adds a record, or only counts it. */
void cf_lane_store(cf_lane *lane, const cf_event *event);
/* The events of a read that a piece of `phase` has waited for. */
void cf_lane_add_read(cf_lane *lane, const cf_read_times *times, uint64_t bytes, uint64_t phase, uint64_t piece);

static inline void cf_lane_add(cf_lane *lane, cflow_event_kind kind, uint64_t start_ns, uint64_t end_ns, uint64_t phase,
                               uint64_t piece)
{
    if (lane->records != NULL) {
        cf_lane_store(
            lane, &(cf_event){.kind = kind, .start_ns = start_ns, .end_ns = end_ns, .phase = phase, .piece = piece});
    }
}

#endif
