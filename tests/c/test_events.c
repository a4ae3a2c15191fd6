/* test_events.c - lanes of events: what is kept, counted and forgotten; and the times of a read. */
#define _GNU_SOURCE
#include "events.h"
#include "pool.h"
#include "reader_file.h"
#include "session.h"

#include <time.h>

static uint64_t field(const cf_lane *lane, size_t index, cflow_event_field which)
{
    return lane->records[index * CFLOW_EVENT_FIELD_COUNT + which];
}

static void test_lane(void)
{
    cf_lane lane = {0};
    cf_lane_add(&lane, CFLOW_EVENT_PIECE, 1, 2, 3, 4);
    cf_lane_add_read(&lane, &(cf_read_times){.issued_ns = 1}, 4096, 3, 4);
    CHECK(lane.count == 0); /* off */
    CHECK(cf_lane_open(&lane, SIZE_MAX / sizeof(uint64_t)) == CFLOW_ERR_MEMORY);
    CHECK(lane.records == NULL && strstr(cflow_last_error(), "events per lane") != NULL);
    CHECK(cf_lane_open(&lane, 3) == CFLOW_OK);
    lane.token = 7;
    cf_lane_add(&lane, CFLOW_EVENT_PIECE, 10, 20, 3, 4);
    lane.token = 8;
    cf_lane_add_read(&lane, &(cf_read_times){.issued_ns = 30, .there_ns = 60, .wait_start_ns = 50, .wait_end_ns = 70},
                     4096, 5, 6);
    static const uint64_t expected[3][CFLOW_EVENT_FIELD_COUNT] = {
        {CFLOW_EVENT_PIECE, 10, 20, 7, 3, 4, 0},
        {CFLOW_EVENT_READ, 30, 60, 8, 5, 6, 4096},
        {CFLOW_EVENT_READ_WAIT, 50, 70, 8, 5, 6, 0},
    };
    CHECK(lane.count == 3 && memcmp(lane.records, expected, sizeof expected) == 0);
    cf_lane_add(&lane, CFLOW_EVENT_TOKEN, 80, 90, UINT64_MAX, UINT64_MAX); /* no room */
    CHECK(lane.count == 4 && field(&lane, 2, CFLOW_EVENT_FIELD_START_NS) == 50);
    cf_lane_close(&lane);
    CHECK(lane.records == NULL && lane.count == 0 && lane.token == 0);
}

static void test_session(void)
{
    static cflow_session session;
    static cf_worker workers[2];
    uint64_t records[2 * CFLOW_EVENT_FIELD_COUNT];
    size_t total = 99;
    CHECK(cflow_pool_create(2, 0, &session.pool) == CFLOW_OK);
    session.workers = workers;
    session.options.value[CFLOW_OPTION_THREADS] = 2;
    CHECK(cflow_session_events(NULL, 1) == CFLOW_ERR_ARGUMENT);
    CHECK(cflow_session_events(&session, SIZE_MAX) == CFLOW_ERR_MEMORY);
    CHECK(session.lane.records == NULL && workers[0].lane.records == NULL);
    CHECK(cflow_session_events(&session, 1) == CFLOW_OK);
    cf_lane_add(&workers[1].lane, CFLOW_EVENT_VECTOR, 1, 2, 0, UINT64_MAX);
    cf_lane_add(&workers[1].lane, CFLOW_EVENT_PIECE, 2, 3, 0, 0);
    for (int lane = -1; lane <= 3; lane++) {
        const int status = cflow_session_events_read(&session, lane, 0, 2, records, &total);
        CHECK(status == (lane < 0 || lane > 2 ? CFLOW_ERR_ARGUMENT : CFLOW_OK));
        CHECK(status != CFLOW_OK || total == (lane == 1 ? 2 : 0));
    }
    records[CFLOW_EVENT_FIELD_COUNT] = 4711;
    CHECK(cflow_session_events_read(&session, 1, 0, 2, records, &total) == CFLOW_OK && total == 2);
    CHECK(records[CFLOW_EVENT_FIELD_KIND] == CFLOW_EVENT_VECTOR && records[CFLOW_EVENT_FIELD_COUNT] == 4711);
    CHECK(cflow_session_events_read(&session, 1, 1, 1, records, &total) == CFLOW_OK && total == 2);
    CHECK(cflow_session_events_read(&session, 1, 0, 1, NULL, &total) == CFLOW_ERR_ARGUMENT);
    session.busy = 1;
    CHECK(cflow_session_events(&session, 1) == CFLOW_ERR_ARGUMENT);
    CHECK(cflow_session_events_read(&session, 1, 0, 0, NULL, &total) == CFLOW_ERR_ARGUMENT);
    session.busy = 0;
    CHECK(cflow_session_events(&session, 0) == CFLOW_OK);
    CHECK(cflow_session_events_read(&session, 1, 0, 0, NULL, &total) == CFLOW_OK && total == 0);
    cf_lane_add(&session.lane, CFLOW_EVENT_TOKEN, 1, 2, 0, 0);
    CHECK(session.lane.count == 0);
    cflow_pool_destroy(session.pool);
}

/* Issued, there, waited for: in this order, and as long as an emulated device takes. */
static void test_times(const known_file *file, int kind, uint64_t bytes_per_s)
{
    enum { READS = 3, EACH_BYTES = 1 << 20 };
    const cf_reader_options options = {
        .kind = kind, .request_bytes = 65536, .reads = READS, .bytes_per_s = bytes_per_s};
    const uint64_t each_ns = bytes_per_s == 0 ? 0 : (uint64_t)((double)EACH_BYTES * 1e9 / (double)bytes_per_s);
    cf_reader *reader = NULL;
    CHECK(cf_reader_create(file->fd, file->path, FILE_BYTES, &options, &reader) == CFLOW_OK);
    uint8_t *buffers[READS];
    uint32_t tickets[READS];
    const uint64_t start_ns = cf_now_ns();
    for (int i = 0; i < READS; i++) {
        buffers[i] = make_buffer(0, EACH_BYTES);
        CHECK(cf_reader_issue(reader, 0, EACH_BYTES, buffers[i], "a read", &tickets[i]) == CFLOW_OK);
    }
    uint64_t waited_ns = 0, last_issued_ns = start_ns;
    for (int i = 0; i < READS; i++) {
        CHECK(cf_reader_wait(reader, tickets[i], NULL) == CFLOW_OK);
        const cf_read_times times = cf_reader_times(reader, tickets[i]);
        CHECK(last_issued_ns <= times.issued_ns && times.issued_ns < times.there_ns);
        CHECK(times.there_ns <= times.wait_end_ns && times.wait_start_ns <= times.wait_end_ns);
        CHECK(times.wait_end_ns <= cf_now_ns());
        CHECK(times.there_ns - start_ns >= (uint64_t)(i + 1) * each_ns);
        waited_ns += times.wait_end_ns - times.wait_start_ns;
        last_issued_ns = times.issued_ns;
    }
    cf_reader_totals totals;
    cf_reader_totals_get(reader, &totals);
    CHECK(totals.wait_ns == waited_ns);
    cf_reader_destroy(reader);
    for (int i = 0; i < READS; i++) {
        free(buffers[i]);
    }
}

/* A read that was there before anybody looked: its thread knows when, however slow it was this time. */
static void test_noticed_late(const known_file *file)
{
    cf_reader *reader = make_reader(file, CFLOW_READER_THREADS, CFLOW_READ_PATH_BUFFERED, 65536, 1);
    uint8_t *buffer = make_buffer(0, 4096);
    int before_wait = 0;
    for (long pause_ns = 1000000; !before_wait && pause_ns < 1000000000; pause_ns *= 2) {
        uint32_t ticket;
        CHECK(cf_reader_issue(reader, 0, 4096, buffer, "a read", &ticket) == CFLOW_OK);
        (void)nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
        CHECK(cf_reader_wait(reader, ticket, NULL) == CFLOW_OK);
        const cf_read_times times = cf_reader_times(reader, ticket);
        before_wait = times.there_ns < times.wait_start_ns;
    }
    CHECK(before_wait);
    cf_reader_destroy(reader);
    free(buffer);
}

int main(void)
{
    for (int kind = 0; kind < CFLOW_EVENT_KIND_COUNT; kind++) {
        CHECK(cflow_event_kind_name(kind) != NULL);
    }
    CHECK(cflow_event_kind_name(-1) == NULL && cflow_event_kind_name(CFLOW_EVENT_KIND_COUNT) == NULL);
    test_lane();
    test_session();
    known_file file = make_known_file("/tmp");
    for (int kind = CFLOW_READER_IO_URING; kind <= CFLOW_READER_THREADS; kind++) {
        if (reader_runs(&file, kind)) {
            test_times(&file, kind, 0);
            test_times(&file, kind, 100000000);
        }
    }
    test_noticed_late(&file);
    remove_known_file(&file);
    return check_summary("test_events");
}
