/* test_reader_faults.c - reads that fail in every way: never a hang, never a wrong byte, and the error says where. */
#define _GNU_SOURCE
#include "pool.h"
#include "reader_file.h"

#include <pthread.h>
#include <stdatomic.h>

enum { REQUEST_BYTES = 65536, WATCHDOG_S = 240 };

static known_file file;

static int read_all(cf_reader *reader, uint8_t *buffer)
{
    uint32_t ticket;
    memset(buffer, 0xAA, cf_reader_span(0, FILE_BYTES));
    CHECK(cf_reader_issue(reader, 0, FILE_BYTES, buffer, "all of it", &ticket) == CFLOW_OK);
    return cf_reader_wait(reader, ticket, NULL);
}

/* Faults that pass: the read succeeds, whatever their number up to the limit of tries. */
static void test_passing_fault(cf_reader *reader, uint8_t *buffer, int kind)
{
    for (uint64_t after = 0; after < 40; after = after * 3 + 1) {
        for (uint64_t count = 1; count < 1000; count *= 30) {
            CHECK(cflow_fault_set(kind, after, kind == CFLOW_FAULT_DELAY && count > 30 ? 30 : count) == CFLOW_OK);
            CHECK(read_all(reader, buffer) == CFLOW_OK);
            CHECK(holds(&file, buffer, 0, FILE_BYTES));
        }
    }
    CHECK(cflow_fault_set(CFLOW_FAULT_NONE, 0, 0) == CFLOW_OK);
}

/* Faults that last: an error which says what and why; then nothing is under way, and the reader works again. */
static void test_lasting_fault(cf_reader *reader, uint8_t *buffer, int kind, uint64_t after, uint64_t count,
                               const char *reason)
{
    CHECK(cflow_fault_set(kind, after, count) == CFLOW_OK);
    CHECK(read_all(reader, buffer) == CFLOW_ERR_IO);
    CHECK(strstr(cflow_last_error(), file.path) != NULL);
    CHECK(strstr(cflow_last_error(), "(all of it)") != NULL);
    CHECK(strstr(cflow_last_error(), "offset ") != NULL);
    CHECK(strstr(cflow_last_error(), reason) != NULL);
    CHECK(cflow_fault_set(CFLOW_FAULT_NONE, 0, 0) == CFLOW_OK);
    CHECK(read_all(reader, buffer) == CFLOW_OK);
    CHECK(holds(&file, buffer, 0, FILE_BYTES));
}

/* One read of several fails: the others are whole. */
static void test_fault_of_one(cf_reader *reader)
{
    enum { READS = 4, BYTES = REQUEST_BYTES / 2 };
    uint8_t *buffers[READS];
    uint32_t tickets[READS];
    CHECK(cflow_fault_set(CFLOW_FAULT_ERROR, 2, 1) == CFLOW_OK);
    int failed = 0;
    for (uint64_t i = 0; i < READS; i++) {
        const uint64_t offset = i * 1000000;
        char what[32];
        (void)snprintf(what, sizeof what, "read %llu", (unsigned long long)i);
        buffers[i] = make_buffer(offset, BYTES);
        CHECK(cf_reader_issue(reader, offset, BYTES, buffers[i], what, &tickets[i]) == CFLOW_OK);
    }
    for (uint64_t i = 0; i < READS; i++) {
        char what[32];
        (void)snprintf(what, sizeof what, "(read %llu)", (unsigned long long)i);
        if (cf_reader_wait(reader, tickets[i], NULL) == CFLOW_OK) {
            CHECK(holds(&file, buffers[i], i * 1000000, BYTES));
        } else {
            CHECK(strstr(cflow_last_error(), what) != NULL);
            failed++;
        }
        free(buffers[i]);
    }
    CHECK(failed == 1);
    CHECK(cflow_fault_set(CFLOW_FAULT_NONE, 0, 0) == CFLOW_OK);
}

/* Held back means that the data are not there either: whoever does not wait sees it. */
static void test_delay_keeps_the_data(cf_reader *reader, uint8_t *buffer)
{
    uint32_t ticket;
    CHECK(cflow_fault_set(CFLOW_FAULT_DELAY, 0, 1) == CFLOW_OK);
    memset(buffer, 0xAA, 4096);
    const uint64_t start_ns = cf_now_ns();
    CHECK(cf_reader_issue(reader, 0, 4096, buffer, "late", &ticket) == CFLOW_OK);
    for (int i = 0; i < 4096; i++) {
        CHECK(buffer[i] == 0xAA);
    }
    CHECK(cf_reader_wait(reader, ticket, NULL) == CFLOW_OK);
    CHECK(cf_now_ns() - start_ns >= 50000000);
    CHECK(holds(&file, buffer, 0, 4096));
}

/* Behind a fence nothing starts before all in front of it has come, or has failed; and a drain does not wait for it. */
static void test_fence(cf_reader *reader, int fault)
{
    uint8_t *first = make_buffer(0, 2 * REQUEST_BYTES), *second = make_buffer(REQUEST_BYTES, REQUEST_BYTES);
    uint32_t tickets[2];
    for (int drained = 0; drained < 2; drained++) {
        memset(second, 0xAA, REQUEST_BYTES);
        CHECK(cflow_fault_set(fault, 1, 1) == CFLOW_OK);
        CHECK(cf_reader_issue(reader, 0, 2 * REQUEST_BYTES, first, "in front", &tickets[0]) == CFLOW_OK);
        cf_reader_fence(reader);
        CHECK(cf_reader_issue(reader, REQUEST_BYTES, REQUEST_BYTES, second, "behind", &tickets[1]) == CFLOW_OK);
        if (fault == CFLOW_FAULT_DELAY) {
            (void)usleep(20000);
            cf_reader_poll(reader);
            for (int i = 0; i < REQUEST_BYTES; i++) {
                CHECK(second[i] == 0xAA);
            }
        }
        if (drained) {
            cf_reader_drain(reader);
            continue;
        }
        CHECK(cf_reader_wait(reader, tickets[1], NULL) == CFLOW_OK);
        CHECK(holds(&file, second, REQUEST_BYTES, REQUEST_BYTES));
        CHECK(cf_reader_wait(reader, tickets[0], NULL) == (fault == CFLOW_FAULT_ERROR ? CFLOW_ERR_IO : CFLOW_OK));
    }
    CHECK(cflow_fault_set(CFLOW_FAULT_NONE, 0, 0) == CFLOW_OK);
    free(first);
    free(second);
}

static _Atomic int cancelled;

static void *cancel_soon(void *argument)
{
    (void)argument;
    (void)usleep(30000);
    atomic_store(&cancelled, 1);
    return NULL;
}

/* A storm that would go on for seconds ends when somebody cancels, and a drain does not sit it out. */
static void test_cancel_in_a_storm(cf_reader *reader, uint8_t *buffer)
{
    uint32_t ticket;
    CHECK(cflow_fault_set(CFLOW_FAULT_AGAIN, 0, UINT64_MAX) == CFLOW_OK);
    atomic_store(&cancelled, 0);
    CHECK(cf_reader_issue(reader, 0, FILE_BYTES, buffer, "all of it", &ticket) == CFLOW_OK);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, cancel_soon, NULL) == 0);
    CHECK(cf_reader_wait(reader, ticket, &cancelled) == CFLOW_ERR_CANCELLED);
    CHECK(pthread_join(thread, NULL) == 0);
    cf_reader_drain(reader);
    CHECK(cflow_fault_set(CFLOW_FAULT_NONE, 0, 0) == CFLOW_OK);
    CHECK(read_all(reader, buffer) == CFLOW_OK);
    CHECK(holds(&file, buffer, 0, FILE_BYTES));
}

static void test_kind(int kind, int path)
{
    const int before = open_descriptors();
    cf_reader *reader = make_reader(&file, kind, path, REQUEST_BYTES, 4);
    uint8_t *buffer = make_buffer(0, FILE_BYTES);
    test_passing_fault(reader, buffer, CFLOW_FAULT_SHORT);
    test_passing_fault(reader, buffer, CFLOW_FAULT_AGAIN);
    test_passing_fault(reader, buffer, CFLOW_FAULT_INTERRUPTED);
    test_passing_fault(reader, buffer, CFLOW_FAULT_DELAY);
    test_lasting_fault(reader, buffer, CFLOW_FAULT_ERROR, 0, 1, "Input/output error");
    test_lasting_fault(reader, buffer, CFLOW_FAULT_ERROR, 77, 3, "Input/output error");
    test_lasting_fault(reader, buffer, CFLOW_FAULT_ERROR, 0, UINT64_MAX, "Input/output error");
    test_lasting_fault(reader, buffer, CFLOW_FAULT_END, 5, 1, "the file ended");
    test_lasting_fault(reader, buffer, CFLOW_FAULT_AGAIN, 9, UINT64_MAX, "Resource temporarily unavailable");
    test_lasting_fault(reader, buffer, CFLOW_FAULT_INTERRUPTED, 0, UINT64_MAX, "Interrupted system call");
    /* Halves of halves, down to less than O_DIRECT can go on from. */
    test_lasting_fault(reader, buffer, CFLOW_FAULT_SHORT, 0, UINT64_MAX, "the reads stay short");
    test_fault_of_one(reader);
    test_delay_keeps_the_data(reader, buffer);
    test_fence(reader, CFLOW_FAULT_DELAY);
    test_fence(reader, CFLOW_FAULT_ERROR);
    test_cancel_in_a_storm(reader, buffer);
    /* Destroyed in the middle of one. */
    uint32_t ticket;
    CHECK(cflow_fault_set(CFLOW_FAULT_AGAIN, 3, UINT64_MAX) == CFLOW_OK);
    CHECK(cf_reader_issue(reader, 0, FILE_BYTES, buffer, "all of it", &ticket) == CFLOW_OK);
    cf_reader_destroy(reader);
    CHECK(cflow_fault_set(CFLOW_FAULT_NONE, 0, 0) == CFLOW_OK);
    free(buffer);
    CHECK(open_descriptors() == before);
}

int main(void)
{
    (void)alarm(WATCHDOG_S);
    CHECK(cflow_fault_set(CFLOW_FAULT_COUNT, 0, 0) == CFLOW_ERR_ARGUMENT);
    CHECK(cflow_fault_set(-1, 0, 0) == CFLOW_ERR_ARGUMENT);
    file = make_known_file("/tmp");
    for (int kind = CFLOW_READER_IO_URING; kind <= CFLOW_READER_THREADS; kind++) {
        if (reader_runs(&file, kind)) {
            test_kind(kind, CFLOW_READ_PATH_DIRECT);
        }
    }
    test_kind(CFLOW_READER_THREADS, CFLOW_READ_PATH_BUFFERED);
    remove_known_file(&file);
    return check_summary("test_reader_faults");
}
