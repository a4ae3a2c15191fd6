#define _GNU_SOURCE
#include "pool.h"

#include "error.h"
#include "topology.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * How long a worker spins before it sleeps. A phase of a small model takes tens of microseconds, and a futex wake-up
 * costs about as much; when there are more workers than CPUs a spinning worker only keeps another from running.
 */
static const uint64_t SPIN_NS = 100 * 1000;
static const int SPINS_PER_CLOCK_READ = 64;

typedef struct worker {
    cf_pool *pool;
    int index;
    int cpu; /* as read back; -1 when not bound to a single CPU */
    pid_t tid;
    uint64_t run_delay_base_ns;
    pthread_t handle;
} worker;

struct cflow_pool {
    int threads;
    int started;
    int spin; /* 0 when workers outnumber the allowed CPUs */
    worker *workers;

    cf_job_fn job;
    void *job_argument;
    /* Each of these words is slept upon by its waiters; own cache lines, so that spinning on one leaves the others alone. */
    _Alignas(64) _Atomic uint32_t job_number; /* a new number is a new job; the last one tells the workers to end */
    _Atomic uint32_t job_sleepers;
    _Alignas(64) _Atomic uint32_t running; /* workers still in the job; 0 = idle */
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t phase;
    _Atomic uint32_t phase_sleepers;
    _Atomic int stop;
};

uint64_t cf_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* limit: relative, NULL = none. Returns 0, or -1 with errno EAGAIN (the word changed), EINTR or ETIMEDOUT. */
static long futex_wait(_Atomic uint32_t *word, uint32_t expected, const struct timespec *limit)
{
    return syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, limit, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

/*
 * Waits until *word differs from `old`. The sleeper count is raised before the word is looked at again by the futex
 * call, and the waker reads the count after it changed the word: one of the two sees the other (both sequentially
 * consistent), so no wake-up is lost.
 */
static void await_change(_Atomic uint32_t *word, uint32_t old, _Atomic uint32_t *sleepers, int spin)
{
    if (spin) {
        const uint64_t start_ns = cf_now_ns();
        do {
            for (int i = 0; i < SPINS_PER_CLOCK_READ; i++) {
                if (atomic_load_explicit(word, memory_order_acquire) != old) {
                    return;
                }
                pause_cpu();
            }
        } while (cf_now_ns() - start_ns < SPIN_NS);
    }
    atomic_fetch_add(sleepers, 1);
    while (atomic_load(word) == old) {
        (void)futex_wait(word, old, NULL);
    }
    atomic_fetch_sub(sleepers, 1);
}

void cf_pool_barrier(cf_pool *pool, cf_barrier_fn at_last, void *argument)
{
    const uint32_t phase = atomic_load_explicit(&pool->phase, memory_order_relaxed);
    const uint32_t arrived = atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel) + 1;
    if (arrived < (uint32_t)pool->threads) {
        await_change(&pool->phase, phase, &pool->phase_sleepers, pool->spin);
        return;
    }
    if (at_last != NULL) {
        at_last(argument);
    }
    atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
    atomic_store(&pool->phase, phase + 1);
    if (atomic_load(&pool->phase_sleepers) > 0) {
        futex_wake_all(&pool->phase);
    }
}

/* Second field of a task's schedstat: nanoseconds spent runnable but waiting. 0 when the kernel has none. */
static uint64_t run_delay_ns(pid_t tid)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", (int)tid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    unsigned long long on_cpu = 0, waiting = 0;
    int read = fscanf(file, "%llu %llu", &on_cpu, &waiting);
    (void)fclose(file);
    return read == 2 ? waiting : 0;
}

static int bound_cpu(void)
{
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof mask, &mask) != 0 || CPU_COUNT(&mask) != 1) {
        return -1;
    }
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET((size_t)cpu, &mask)) {
            return cpu;
        }
    }
    return -1;
}

static void *worker_main(void *argument)
{
    worker *self = argument;
    cf_pool *pool = self->pool;
    self->tid = (pid_t)syscall(SYS_gettid);
    if (self->cpu >= 0) {
        cpu_set_t mask;
        CPU_ZERO(&mask);
        CPU_SET((size_t)self->cpu, &mask);
        /* What the kernel says afterwards counts, not what was asked for. */
        (void)sched_setaffinity(0, sizeof mask, &mask);
    }
    self->cpu = bound_cpu();
    self->run_delay_base_ns = run_delay_ns(self->tid);
    uint32_t seen = 0;
    for (;;) {
        if (atomic_fetch_sub(&pool->running, 1) == 1) {
            futex_wake_all(&pool->running);
        }
        /*
         * No spinning between jobs: the thread that prepares the next one needs a CPU too, and where the workers hold
         * all of them each would wait for the other (seen as run-queue delay in every round of a measurement).
         */
        await_change(&pool->job_number, seen, &pool->job_sleepers, 0);
        seen = atomic_load_explicit(&pool->job_number, memory_order_acquire);
        if (atomic_load(&pool->stop)) {
            return NULL;
        }
        pool->job(pool->job_argument, self->index);
    }
}

int cf_pool_threads(const cf_pool *pool)
{
    return pool->threads;
}

static void release_workers(cf_pool *pool)
{
    atomic_fetch_add(&pool->job_number, 1);
    if (atomic_load(&pool->job_sleepers) > 0) {
        futex_wake_all(&pool->job_number);
    }
}

void cf_pool_start(cf_pool *pool, cf_job_fn job, void *argument)
{
    pool->job = job;
    pool->job_argument = argument;
    atomic_store(&pool->running, (uint32_t)pool->threads);
    release_workers(pool);
}

int cf_pool_wait(cf_pool *pool)
{
    /* A signal just before the wait ends no wait, and one whose handler restarts system calls never does: look up. */
    static const struct timespec limit = {0, 100 * 1000 * 1000};
    uint32_t running;
    while ((running = atomic_load_explicit(&pool->running, memory_order_acquire)) != 0) {
        if (futex_wait(&pool->running, running, &limit) != 0 && (errno == EINTR || errno == ETIMEDOUT)) {
            return cf_fail(CFLOW_ERR_INTERRUPTED, "the work goes on; a signal may have arrived while waiting");
        }
    }
    return CFLOW_OK;
}

void cf_pool_run(cf_pool *pool, cf_job_fn job, void *argument)
{
    cf_pool_start(pool, job, argument);
    while (cf_pool_wait(pool) != CFLOW_OK) {
    }
}

/* A thread that runs no signal handler of the application: those belong to the threads that it knows. */
static int create_quiet_thread(pthread_t *handle, void *(*run)(void *), void *argument)
{
    sigset_t all, old;
    (void)sigfillset(&all);
    int error = pthread_sigmask(SIG_SETMASK, &all, &old);
    if (error == 0) {
        error = pthread_create(handle, NULL, run, argument);
        (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    return error;
}

int cf_pool_pinned(const cf_pool *pool)
{
    int pinned = 1;
    for (int i = 0; i < pool->threads; i++) {
        pinned &= pool->workers[i].cpu >= 0;
    }
    return pinned;
}

int cflow_pool_create(int threads, int pin, cflow_pool **pool_out)
{
    if (pool_out == NULL || threads < 1 || threads > CF_MAX_THREADS) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "threads is %d; allowed: 1 to %d", threads, CF_MAX_THREADS);
    }
    *pool_out = NULL;
    cf_pool *pool = aligned_alloc(64, (sizeof *pool + 63) / 64 * 64);
    worker *workers = calloc((size_t)threads, sizeof *workers);
    if (pool == NULL || workers == NULL) {
        free(pool);
        free(workers);
        return cf_fail(CFLOW_ERR_MEMORY, "out of memory for a pool of %d threads", threads);
    }
    memset(pool, 0, sizeof *pool);
    pool->threads = threads;
    pool->workers = workers;
    cf_topology topology;
    cf_topology_read("", &topology);
    pool->spin = threads <= topology.allowed;
    atomic_store(&pool->running, (uint32_t)threads);
    for (int i = 0; i < threads; i++) {
        workers[i].pool = pool;
        workers[i].index = i;
        workers[i].cpu = pin && threads <= topology.allowed ? topology.cpus[i] : -1;
        int error = create_quiet_thread(&workers[i].handle, worker_main, &workers[i]);
        if (error != 0) {
            /* Those that never came to be do not run. */
            atomic_fetch_sub(&pool->running, (uint32_t)(threads - i));
            cflow_pool_destroy(pool);
            return cf_fail(CFLOW_ERR_MEMORY, "cannot create thread %d of %d: %s", i + 1, threads, strerror(error));
        }
        pool->started = i + 1;
    }
    /* All pinned and asleep or spinning before anybody measures. */
    while (cf_pool_wait(pool) != CFLOW_OK) {
    }
    *pool_out = pool;
    return CFLOW_OK;
}

void cflow_pool_destroy(cflow_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    while (cf_pool_wait(pool) != CFLOW_OK) {
    }
    atomic_store(&pool->stop, 1);
    release_workers(pool);
    for (int i = 0; i < pool->started; i++) {
        (void)pthread_join(pool->workers[i].handle, NULL);
    }
    free(pool->workers);
    free(pool);
}

int cflow_pool_worker_cpu(const cflow_pool *pool, int thread, int *cpu_out)
{
    if (pool == NULL || cpu_out == NULL || thread < 0 || thread >= pool->threads) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "worker %d is out of range or an argument is NULL", thread);
    }
    *cpu_out = pool->workers[thread].cpu;
    return CFLOW_OK;
}

int cflow_pool_run_delay(const cflow_pool *pool, int thread, uint64_t *delay_ns_out)
{
    if (pool == NULL || delay_ns_out == NULL || thread < 0 || thread >= pool->threads) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "worker %d is out of range or an argument is NULL", thread);
    }
    const uint64_t now_ns = run_delay_ns(pool->workers[thread].tid), base_ns = pool->workers[thread].run_delay_base_ns;
    /* Below its base: it could not be read this time. */
    *delay_ns_out = now_ns > base_ns ? now_ns - base_ns : 0;
    return CFLOW_OK;
}
