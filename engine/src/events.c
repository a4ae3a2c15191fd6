#include "events.h"

#include "error.h"
#include "session.h"

#include <stdlib.h>
#include <string.h>

/* ---- lanes ---------------------------------------------------------------------------------------------------------- */

int cf_lane_open(cf_lane *lane, size_t capacity)
{
    enum { RECORD_BYTES = CFLOW_EVENT_FIELD_COUNT * sizeof(uint64_t) };
    *lane = (cf_lane){0};
    lane->records = capacity > SIZE_MAX / RECORD_BYTES ? NULL : malloc(capacity * RECORD_BYTES);
    if (lane->records == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "out of memory for %zu events per lane", capacity);
    }
    memset(lane->records, 0, capacity * RECORD_BYTES);
    lane->capacity = capacity;
    return CFLOW_OK;
}

void cf_lane_close(cf_lane *lane)
{
    free(lane->records);
    *lane = (cf_lane){0};
}

void cf_lane_store(cf_lane *lane, const cf_event *event)
{
    if (lane->count < lane->capacity) {
        uint64_t *fields = lane->records + lane->count * CFLOW_EVENT_FIELD_COUNT;
        fields[CFLOW_EVENT_FIELD_KIND] = (uint64_t)event->kind;
        fields[CFLOW_EVENT_FIELD_START_NS] = event->start_ns;
        fields[CFLOW_EVENT_FIELD_END_NS] = event->end_ns;
        fields[CFLOW_EVENT_FIELD_TOKEN] = lane->token;
        fields[CFLOW_EVENT_FIELD_PHASE] = event->phase;
        fields[CFLOW_EVENT_FIELD_PIECE] = event->piece;
        fields[CFLOW_EVENT_FIELD_BYTES] = event->bytes;
    }
    lane->count++;
}

void cf_lane_add_read(cf_lane *lane, const cf_read_times *times, uint64_t bytes, uint64_t phase, uint64_t piece)
{
    if (lane->records == NULL) {
        return;
    }
    cf_lane_store(lane, &(cf_event){.kind = CFLOW_EVENT_READ,
                                    .start_ns = times->issued_ns,
                                    .end_ns = times->there_ns,
                                    .phase = phase,
                                    .piece = piece,
                                    .bytes = bytes});
    cf_lane_add(lane, CFLOW_EVENT_READ_WAIT, times->wait_start_ns, times->wait_end_ns, phase, piece);
}

/* ---- of a session --------------------------------------------------------------------------------------------------- */

const char *cflow_event_kind_name(int kind)
{
    static const char *const names[CFLOW_EVENT_KIND_COUNT] = {"token",   "vector", "piece",
                                                              "barrier", "read",   "read_wait"};
    return kind >= 0 && kind < CFLOW_EVENT_KIND_COUNT ? names[kind] : NULL;
}

void cf_events_close(cflow_session *session)
{
    for (int i = 0; session->workers != NULL && i < (int)session->options.value[CFLOW_OPTION_THREADS]; i++) {
        cf_lane_close(&session->workers[i].lane);
    }
    cf_lane_close(&session->lane);
}

int cflow_session_events(cflow_session *session, size_t capacity)
{
    if (session == NULL || session->busy) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_events: session is NULL or busy");
    }
    cf_events_close(session);
    if (capacity == 0) {
        return CFLOW_OK;
    }
    int status = cf_lane_open(&session->lane, capacity);
    for (int i = 0; status == CFLOW_OK && i < cf_pool_threads(session->pool); i++) {
        status = cf_lane_open(&session->workers[i].lane, capacity);
    }
    if (status != CFLOW_OK) {
        cf_events_close(session);
    }
    return status;
}

int cflow_session_events_read(const cflow_session *session, int lane, size_t first, size_t count, uint64_t *records_out,
                              size_t *total_out)
{
    if (session == NULL || session->busy || total_out == NULL || (records_out == NULL && count > 0) || lane < 0 ||
        lane > cf_pool_threads(session->pool)) {
        return cf_fail(CFLOW_ERR_ARGUMENT,
                       "cflow_session_events_read: NULL argument, session busy, or lane %d out of range", lane);
    }
    const cf_lane *own = lane < cf_pool_threads(session->pool) ? &session->workers[lane].lane : &session->lane;
    const size_t kept = own->count < own->capacity ? own->count : own->capacity;
    *total_out = own->count;
    if (first < kept && count > 0) {
        const size_t copied = kept - first < count ? kept - first : count;
        memcpy(records_out, own->records + first * CFLOW_EVENT_FIELD_COUNT,
               copied * CFLOW_EVENT_FIELD_COUNT * sizeof *records_out);
    }
    return CFLOW_OK;
}
