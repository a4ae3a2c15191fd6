/* test_pool.c - workers, barrier and waiting: every worker takes part in every job and phase, in order. */
#define _GNU_SOURCE
#include "check.h"
#include "pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

typedef struct shared {
    cf_pool *pool;
    int threads;
    int phases;
    _Atomic int inside;
    int last_calls;
    _Atomic int errors;
    int row[CF_MAX_THREADS];
} shared;

static void at_last(void *argument)
{
    shared *s = argument;
    /* Alone: all workers are inside the barrier. */
    s->errors += atomic_load(&s->inside) != s->threads;
    s->last_calls++;
    atomic_store(&s->inside, 0);
}

/* Each phase every worker writes its number, and after the barrier reads its neighbour's. */
static void phases(void *argument, int thread)
{
    shared *s = argument;
    for (int phase = 0; phase < s->phases; phase++) {
        s->row[thread] = phase;
        atomic_fetch_add(&s->inside, 1);
        cf_pool_barrier(s->pool, thread, at_last, s);
        s->errors += s->row[(thread + 1) % s->threads] != phase;
        cf_pool_barrier(s->pool, thread, NULL, NULL);
    }
}

static void run_phases(cf_pool *pool, int phase_count)
{
    shared s = {.pool = pool, .threads = cf_pool_threads(pool), .phases = phase_count};
    cf_pool_run(pool, phases, &s);
    cf_pool_run(pool, phases, &s);
    CHECK(s.last_calls == 2 * phase_count);
    CHECK(s.errors == 0);
    cflow_pool_destroy(pool);
}

static void test_barrier(int threads, int phase_count)
{
    cf_pool *pool;
    CHECK(cflow_pool_create(threads, 1, &pool) == CFLOW_OK);
    run_phases(pool, phase_count);
}

/* Workers of made-up nodes, `per_node` on each, wherever the kernel runs them: many small groups, full and broken ones. */
static void test_nodes(int threads, int per_node, int spin, int phase_count)
{
    cf_pool *pool;
    cf_cpu cpus[CF_MAX_THREADS] = {0};
    for (int i = 0; i < threads; i++) {
        cpus[i] = (cf_cpu){.cpu = -1, .node = i / per_node};
    }
    CHECK(cf_pool_create_at(threads, cpus, spin, &pool) == CFLOW_OK);
    CHECK(cf_pool_place(pool, threads - 1)->node == (threads - 1) / per_node);
    run_phases(pool, phase_count);
}

static void count_jobs(void *argument, int thread)
{
    (void)thread;
    atomic_fetch_add((_Atomic int *)argument, 1);
}

/* Many short jobs, some after the workers went to sleep. */
static void test_many_jobs(void)
{
    cf_pool *pool;
    _Atomic int count = 0;
    CHECK(cflow_pool_create(3, 0, &pool) == CFLOW_OK);
    for (int i = 0; i < 3000; i++) {
        cf_pool_run(pool, count_jobs, &count);
        if (i % 500 == 0) {
            const struct timespec pause = {0, 2000000};
            (void)nanosleep(&pause, NULL);
        }
    }
    CHECK(count == 9000);
    cflow_pool_destroy(pool);
}

static void sleep_job(void *argument, int thread)
{
    (void)argument;
    (void)thread;
    const struct timespec pause = {0, 200000000};
    (void)nanosleep(&pause, NULL);
}

static volatile sig_atomic_t alarms;
static pthread_t alarm_thread;

static void on_alarm(int number)
{
    (void)number;
    alarm_thread = pthread_self();
    alarms++;
}

/* A signal handler that ran is reported, and the job goes on. */
static void test_interruption(void)
{
    cf_pool *pool;
    CHECK(cflow_pool_create(2, 0, &pool) == CFLOW_OK);
    sigset_t mask;
    sigemptyset(&mask);
    const struct sigaction action = {.sa_handler = on_alarm, .sa_mask = mask};
    struct sigaction old;
    CHECK(sigaction(SIGALRM, &action, &old) == 0);
    const struct itimerval timer = {.it_value = {0, 20000}};
    cf_pool_start(pool, sleep_job, NULL);
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    int interrupted = 0;
    int status;
    while ((status = cf_pool_wait(pool)) == CFLOW_ERR_INTERRUPTED) {
        interrupted++;
    }
    CHECK(status == CFLOW_OK);
    /* Workers block signals: the handler ran on this thread, in the middle of the wait. */
    CHECK(interrupted >= 1);
    CHECK(alarms == 1);
    CHECK(pthread_equal(alarm_thread, pthread_self()));
    CHECK(sigaction(SIGALRM, &old, NULL) == 0);
    cflow_pool_destroy(pool);
}

static void test_arguments(void)
{
    cf_pool *pool;
    CHECK(cflow_pool_create(0, 1, &pool) == CFLOW_ERR_ARGUMENT);
    CHECK(cflow_pool_create(CF_MAX_THREADS + 1, 1, &pool) == CFLOW_ERR_ARGUMENT);
    CHECK(cflow_pool_create(1, 1, NULL) == CFLOW_ERR_ARGUMENT);
    cflow_pool_destroy(NULL);
}

int main(void)
{
    for (int threads = 1; threads <= 8; threads++) {
        test_barrier(threads, 1000);
    }
    test_barrier(9, 500);
    test_barrier(64, 100);
    test_barrier(CF_MAX_THREADS, 10);
    test_nodes(2, 1, 1, 1000);
    test_nodes(3, 2, 1, 500);
    test_nodes(64, 16, 0, 100);
    test_nodes(64, 11, 1, 20); /* spinning beside workers that wait for a CPU */
    test_nodes(30, 1, 0, 100);
    test_many_jobs();
    test_interruption();
    test_arguments();
    return check_summary("test_pool");
}
