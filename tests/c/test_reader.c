/* test_reader.c - the reader without faults: every byte, any sizes, both back ends and paths; totals, rate, cancelling. */
#define _GNU_SOURCE
#include "pool.h"
#include "reader_file.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

static known_file file;

static void test_every_byte(int kind, int path, uint64_t request_bytes)
{
    static const struct {
        uint64_t offset, bytes;
    } RANGES[] = {
        {0, 1},
        {0, 4096},
        {1, 4096},
        {4095, 2},
        {8192, 3 * 1048576},
        {5000, 2000000},
        {FILE_BYTES - 1, 1},
        {FILE_BYTES - 5000, 5000},
        {0, FILE_BYTES},
        {1048576 - 7, 1048576 + 14},
    };
    enum { COUNT = sizeof RANGES / sizeof RANGES[0] };
    cf_reader *reader = make_reader(&file, kind, path, request_bytes, COUNT);
    CHECK(cf_reader_kind(reader) == kind);
    CHECK(cf_reader_path(reader) == path);
    uint64_t asked = 0;
    for (int turn = 0; turn < 2; turn++) {
        uint8_t *buffers[COUNT];
        uint32_t tickets[COUNT];
        for (int i = 0; i < COUNT; i++) {
            buffers[i] = make_buffer(RANGES[i].offset, RANGES[i].bytes);
            asked += cf_reader_span(RANGES[i].offset, RANGES[i].bytes);
            CHECK(cf_reader_issue(reader, RANGES[i].offset, RANGES[i].bytes, buffers[i], "x", &tickets[i]) == CFLOW_OK);
        }
        uint32_t none;
        CHECK(cf_reader_issue(reader, 0, 1, buffers[0], "one too many", &none) == CFLOW_ERR_ARGUMENT);
        for (int i = 0; i < COUNT; i++) {
            const int at = turn == 0 ? i : COUNT - 1 - i;
            cf_reader_poll(reader);
            CHECK(cf_reader_wait(reader, tickets[at], NULL) == CFLOW_OK);
            CHECK(holds(&file, buffers[at], RANGES[at].offset, RANGES[at].bytes));
            free(buffers[at]);
        }
    }
    cf_reader_totals totals;
    cf_reader_totals_get(reader, &totals);
    CHECK(totals.asked_bytes == asked);
    CHECK(totals.read_ns > 0);
    cf_reader_destroy(reader);
}

/* What is behind the wanted bytes of the last unit is nobody's. */
static void test_end_of_file(int kind)
{
    cf_reader *reader = make_reader(&file, kind, CFLOW_READ_PATH_DIRECT, 4096, 1);
    uint8_t *buffer = make_buffer(FILE_BYTES - 1, 1);
    uint32_t ticket;
    CHECK(cf_reader_issue(reader, FILE_BYTES - 1, 2, buffer, "past the end", &ticket) == CFLOW_ERR_ARGUMENT);
    CHECK(strstr(cflow_last_error(), "past the end") != NULL);
    CHECK(cf_reader_issue(reader, FILE_BYTES, 0, buffer, "nothing", &ticket) == CFLOW_ERR_ARGUMENT);
    CHECK(cf_reader_issue(reader, 0, 1, buffer + 64, "crooked", &ticket) == CFLOW_ERR_ARGUMENT);
    CHECK(cf_reader_wait(reader, 0, NULL) == CFLOW_ERR_ARGUMENT);
    CHECK(cf_reader_issue(reader, FILE_BYTES - 1, 1, buffer, "the last byte", &ticket) == CFLOW_OK);
    CHECK(cf_reader_wait(reader, ticket, NULL) == CFLOW_OK);
    free(buffer);
    cf_reader_destroy(reader);
}

/* More requests than the device is handed at once; a drain ends them all, and what comes after it is whole. */
static void test_drain(int kind)
{
    cf_reader *reader = make_reader(&file, kind, CFLOW_READ_PATH_DIRECT, 4096, 3);
    uint8_t *buffers[3];
    uint32_t ticket;
    for (int i = 0; i < 3; i++) {
        buffers[i] = make_buffer(0, FILE_BYTES);
        CHECK(cf_reader_issue(reader, 0, FILE_BYTES, buffers[i], "all", &ticket) == CFLOW_OK);
    }
    cf_reader_drain(reader);
    memset(buffers[0], 0, FILE_BYTES);
    CHECK(cf_reader_issue(reader, 0, FILE_BYTES, buffers[0], "all", &ticket) == CFLOW_OK);
    CHECK(cf_reader_wait(reader, ticket, NULL) == CFLOW_OK);
    CHECK(holds(&file, buffers[0], 0, FILE_BYTES));
    /* Destroyed with reads under way. */
    for (int i = 0; i < 3; i++) {
        CHECK(cf_reader_issue(reader, 0, FILE_BYTES, buffers[i], "all", &ticket) == CFLOW_OK);
    }
    cf_reader_destroy(reader);
    for (int i = 0; i < 3; i++) {
        free(buffers[i]);
    }
}

/* At 20 MB/s, 1 MiB takes 52 ms: reads queue up behind each other, and idle time is not made up for. */
static void test_rate(int kind)
{
    const cf_reader_options options = {.kind = kind, .request_bytes = 65536, .reads = 2, .bytes_per_s = 20000000};
    const uint64_t bytes = 1 << 20, each_ns = bytes * 50;
    cf_reader *reader = NULL;
    CHECK(cf_reader_create(file.fd, file.path, FILE_BYTES, &options, &reader) == CFLOW_OK);
    uint8_t *buffers[2] = {make_buffer(0, bytes), make_buffer(bytes, bytes)};
    uint32_t tickets[2];
    const uint64_t start_ns = cf_now_ns();
    CHECK(cf_reader_issue(reader, 0, bytes, buffers[0], "first", &tickets[0]) == CFLOW_OK);
    CHECK(cf_reader_issue(reader, bytes, bytes, buffers[1], "second", &tickets[1]) == CFLOW_OK);
    CHECK(cf_reader_wait(reader, tickets[0], NULL) == CFLOW_OK);
    CHECK(cf_now_ns() - start_ns >= each_ns);
    CHECK(cf_reader_wait(reader, tickets[1], NULL) == CFLOW_OK);
    CHECK(cf_now_ns() - start_ns >= 2 * each_ns);
    CHECK(holds(&file, buffers[1], bytes, bytes));
    cf_reader_totals totals;
    cf_reader_totals_get(reader, &totals);
    CHECK(totals.read_ns >= 2 * each_ns && totals.read_ns <= cf_now_ns() - start_ns);
    CHECK(totals.wait_ns <= cf_now_ns() - start_ns);
    const uint64_t again_ns = cf_now_ns();
    CHECK(cf_reader_issue(reader, 0, bytes, buffers[0], "third", &tickets[0]) == CFLOW_OK);
    CHECK(cf_reader_wait(reader, tickets[0], NULL) == CFLOW_OK);
    CHECK(cf_now_ns() - again_ns >= each_ns);
    cf_reader_destroy(reader);
    free(buffers[0]);
    free(buffers[1]);
}

/* At a byte per second a large file takes longer than a clock of 64 bits counts. */
static void test_slowest_rate(void)
{
    const uint64_t day_ns = UINT64_C(86400000000000);
    CHECK(cf_emulated_end_ns(day_ns, 1000, 1) == day_ns + UINT64_C(1000000000000));
    CHECK(cf_emulated_end_ns(day_ns, UINT64_C(1) << 40, 1) == UINT64_MAX / 4);
    CHECK(cf_emulated_end_ns(day_ns, UINT64_MAX, 1) == UINT64_MAX / 4);
    CHECK(cf_emulated_end_ns(UINT64_MAX / 4, 4096, 1) == UINT64_MAX / 4);
    CHECK(cf_emulated_end_ns(UINT64_MAX, 4096, 1) == UINT64_MAX / 4);
}

static _Atomic int cancelled;

static void *cancel_soon(void *argument)
{
    (void)argument;
    (void)usleep(20000);
    atomic_store(&cancelled, 1);
    return NULL;
}

/* At its emulated rate the whole file takes a minute. */
static cf_reader *make_slow_reader(int kind)
{
    const cf_reader_options options = {
        .kind = kind, .request_bytes = 1 << 20, .reads = 1, .bytes_per_s = FILE_BYTES / 60};
    cf_reader *reader = NULL;
    CHECK(cf_reader_create(file.fd, file.path, FILE_BYTES, &options, &reader) == CFLOW_OK);
    return reader;
}

/* A read of a minute, cancelled while it is waited for. */
static void test_cancel(int kind)
{
    cf_reader *reader = make_slow_reader(kind);
    uint8_t *buffer = make_buffer(0, FILE_BYTES);
    uint32_t ticket;
    CHECK(cf_reader_issue(reader, 0, FILE_BYTES, buffer, "a long read", &ticket) == CFLOW_OK);
    atomic_store(&cancelled, 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, cancel_soon, NULL) == 0);
    CHECK(cf_reader_wait(reader, ticket, &cancelled) == CFLOW_ERR_CANCELLED);
    CHECK(strstr(cflow_last_error(), "a long read") != NULL);
    CHECK(pthread_join(thread, NULL) == 0);
    cf_reader_drain(reader);
    CHECK(cf_reader_issue(reader, 0, FILE_BYTES, buffer, "another", &ticket) == CFLOW_OK);
    cf_reader_destroy(reader);
    free(buffer);
}

/* Reads that were dropped take no time of the emulated device: at its rate the first one would be a minute's. */
static void test_rate_after_drain(int kind)
{
    cf_reader *reader = make_slow_reader(kind);
    uint8_t *buffer = make_buffer(0, FILE_BYTES);
    uint32_t ticket;
    const uint64_t start_ns = cf_now_ns();
    CHECK(cf_reader_issue(reader, 0, FILE_BYTES, buffer, "dropped", &ticket) == CFLOW_OK);
    cf_reader_drain(reader);
    CHECK(cf_reader_issue(reader, 0, 4096, buffer, "short", &ticket) == CFLOW_OK);
    CHECK(cf_reader_wait(reader, ticket, NULL) == CFLOW_OK);
    cf_reader_totals totals;
    cf_reader_totals_get(reader, &totals);
    CHECK(totals.read_ns <= cf_now_ns() - start_ns);
    CHECK(cf_now_ns() - start_ns < UINT64_C(50000000000));
    cf_reader_destroy(reader);
    free(buffer);
}

typedef struct hand_over {
    cf_reader *reader;
    uint32_t ticket;
    int status;
} hand_over;

static void *wait_elsewhere(void *argument)
{
    hand_over *own = argument;
    own->status = cf_reader_wait(own->reader, own->ticket, NULL);
    return NULL;
}

/* Issued by a thread that goes on computing, waited for by another: completions must not wait for the first. */
static void test_other_thread_waits(int kind)
{
    cf_reader *reader = make_reader(&file, kind, CFLOW_READ_PATH_DIRECT, 1 << 20, 1);
    for (int turn = 0; turn < 8; turn++) {
        uint8_t *buffer = make_buffer(0, FILE_BYTES);
        hand_over over = {.reader = reader, .status = -1};
        CHECK(cf_reader_issue(reader, 0, FILE_BYTES, buffer, "handed over", &over.ticket) == CFLOW_OK);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, wait_elsewhere, &over) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(over.status == CFLOW_OK);
        CHECK(holds(&file, buffer, 0, FILE_BYTES));
        free(buffer);
    }
    cf_reader_destroy(reader);
}

static void test_memory_file_is_buffered(void)
{
    known_file here = make_known_file("/dev/shm");
    cf_reader *reader = make_reader(&here, CFLOW_READER_AUTO, CFLOW_READ_PATH_DIRECT, 1 << 16, 1);
    CHECK(cf_reader_path(reader) == CFLOW_READ_PATH_BUFFERED);
    uint8_t *buffer = make_buffer(5, FILE_BYTES - 5);
    uint32_t ticket;
    CHECK(cf_reader_issue(reader, 5, FILE_BYTES - 5, buffer, "all", &ticket) == CFLOW_OK);
    CHECK(cf_reader_wait(reader, ticket, NULL) == CFLOW_OK);
    CHECK(holds(&here, buffer, 5, FILE_BYTES - 5));
    free(buffer);
    cf_reader_destroy(reader);
    remove_known_file(&here);
}

static void test_shortened_file(int kind, int path)
{
    known_file here = make_known_file("/tmp");
    cf_reader *reader = make_reader(&here, kind, path, 1 << 20, 1);
    CHECK(ftruncate(here.fd, 5000000) == 0);
    uint8_t *buffer = make_buffer(0, FILE_BYTES);
    uint32_t ticket;
    CHECK(cf_reader_issue(reader, 0, FILE_BYTES, buffer, "expert 3 of block 7", &ticket) == CFLOW_OK);
    CHECK(cf_reader_wait(reader, ticket, NULL) == CFLOW_ERR_IO);
    CHECK(strstr(cflow_last_error(), here.path) != NULL);
    CHECK(strstr(cflow_last_error(), "expert 3 of block 7") != NULL);
    CHECK(strstr(cflow_last_error(), "the file ended") != NULL);
    /* What is still there can be read. */
    CHECK(cf_reader_issue(reader, 0, 5000000, buffer, "the front", &ticket) == CFLOW_OK);
    CHECK(cf_reader_wait(reader, ticket, NULL) == CFLOW_OK);
    CHECK(holds(&here, buffer, 0, 5000000));
    free(buffer);
    cf_reader_destroy(reader);
    remove_known_file(&here);
}

static void test_options_out_of_range(void)
{
    const cf_reader_options good = {.request_bytes = 4096, .reads = 1};
    cf_reader_options bad[] = {good, good, good, good, good, good, good};
    bad[0].kind = CFLOW_READER_COUNT;
    bad[1].kind = -1;
    bad[2].path = CFLOW_READ_PATH_COUNT;
    bad[3].request_bytes = 0;
    bad[4].request_bytes = 4097;
    bad[5].request_bytes = (uint64_t)CF_REQUEST_BYTES_MAX + 4096;
    bad[6].reads = 0;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cf_reader *reader = NULL;
        CHECK(cf_reader_create(file.fd, file.path, FILE_BYTES, &bad[i], &reader) == CFLOW_ERR_ARGUMENT);
        CHECK(reader == NULL);
    }
    cf_reader_destroy(NULL);
}

/* As many descriptors as before, also when there are none left to be had. */
static void test_descriptors(void)
{
    const int before = open_descriptors(), lowest = dup(0);
    CHECK(lowest >= 0 && close(lowest) == 0);
    struct rlimit limit, none;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = limit;
    for (int kind = CFLOW_READER_AUTO; kind < CFLOW_READER_COUNT; kind++) {
        if (!reader_runs(&file, kind)) {
            continue;
        }
        cf_reader_destroy(make_reader(&file, kind, CFLOW_READ_PATH_DIRECT, 4096, 4));
        for (rlim_t spare = 0; spare < 3; spare++) {
            const cf_reader_options options = {.kind = kind, .request_bytes = 4096, .reads = 1};
            cf_reader *reader = NULL;
            none.rlim_cur = (rlim_t)lowest + spare;
            CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
            const int status = cf_reader_create(file.fd, file.path, FILE_BYTES, &options, &reader);
            CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
            CHECK(spare > 0 || status == CFLOW_ERR_IO);
            CHECK((status == CFLOW_OK) == (reader != NULL));
            cf_reader_destroy(reader);
        }
    }
    CHECK(open_descriptors() == before);
}

int main(void)
{
    file = make_known_file("/tmp");
    for (int kind = CFLOW_READER_IO_URING; kind <= CFLOW_READER_THREADS; kind++) {
        if (!reader_runs(&file, kind)) {
            continue;
        }
        for (int path = CFLOW_READ_PATH_DIRECT; path < CFLOW_READ_PATH_COUNT; path++) {
            test_every_byte(kind, path, 4096);
            test_every_byte(kind, path, 12288);
            test_every_byte(kind, path, 1 << 20);
            test_shortened_file(kind, path);
        }
        test_end_of_file(kind);
        test_drain(kind);
        test_rate(kind);
        test_cancel(kind);
        test_rate_after_drain(kind);
        test_other_thread_waits(kind);
    }
    test_memory_file_is_buffered();
    test_slowest_rate();
    test_options_out_of_range();
    test_descriptors();
    remove_known_file(&file);
    return check_summary("test_reader");
}
