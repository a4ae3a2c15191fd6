#define _GNU_SOURCE
#include "pool.h"

#include "error.h"
#include "thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
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

/*
 * Workers that arrive at one counter and wait on one word: neighbours of one NUMA node, few enough that the line of the
 * counter does not pass through dozens of cores one after the other. Their last arrives at the pool's counter.
 */
enum { GROUP_WORKERS = 8 };

typedef struct group {
    _Alignas(64) _Atomic uint32_t arrived;
    uint32_t members;
    _Alignas(64) _Atomic uint32_t phase;
    _Atomic uint32_t sleepers;
} group;

typedef struct worker {
    cf_pool *pool;
    int index;
    group *group;
    cf_cpu place; /* where it was put; place.cpu is -1 when it was not */
    int cpu;      /* as read back; -1 when not bound to a single CPU */
    pid_t tid;
    uint64_t run_delay_base_ns;
    int has_run_delay;
    pthread_t handle;
} worker;

struct cflow_pool {
    int threads;
    int started;
    int spin; /* 0 when workers outnumber the allowed CPUs */
    worker *workers;
    group *groups;
    uint32_t group_count;

    cf_job_fn job;
    void *job_argument;
    /* Each of these words is slept upon by its waiters; own cache lines, so that spinning on one leaves the others alone. */
    _Alignas(64) _Atomic uint32_t job_number; /* a new number is a new job; the last one tells the workers to end */
    _Atomic uint32_t job_sleepers;
    _Alignas(64) _Atomic uint32_t running; /* workers still in the job; 0 = idle */
    _Alignas(64) _Atomic uint32_t groups_arrived;
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

/* Counts one arrival. The last of `members` sets the counter back: nobody arrives again before all are released. */
static int is_last(_Atomic uint32_t *arrived, uint32_t members)
{
    if (atomic_fetch_add_explicit(arrived, 1, memory_order_acq_rel) + 1 < members) {
        return 0;
    }
    atomic_store_explicit(arrived, 0, memory_order_relaxed);
    return 1;
}

void cf_pool_barrier(cf_pool *pool, int thread, cf_barrier_fn at_last, void *argument)
{
    group *own = pool->workers[thread].group;
    const uint32_t phase = atomic_load_explicit(&own->phase, memory_order_relaxed);
    if (!is_last(&own->arrived, own->members) ||
        (pool->group_count > 1 && !is_last(&pool->groups_arrived, pool->group_count))) {
        await_change(&own->phase, phase, &own->sleepers, pool->spin);
        return;
    }
    if (at_last != NULL) {
        at_last(argument);
    }
    for (uint32_t i = 0; i < pool->group_count; i++) {
        atomic_store(&pool->groups[i].phase, phase + 1);
    }
    for (uint32_t i = 0; i < pool->group_count; i++) {
        if (atomic_load(&pool->groups[i].sleepers) > 0) {
            futex_wake_all(&pool->groups[i].phase);
        }
    }
}

/* Second field of a task's schedstat: nanoseconds spent runnable but waiting. 0 when the kernel has no such file. */
static int run_delay_ns(pid_t tid, uint64_t *delay_ns)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", (int)tid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    unsigned long long on_cpu = 0, waiting = 0;
    const int read = fscanf(file, "%llu %llu", &on_cpu, &waiting);
    (void)fclose(file);
    *delay_ns = waiting;
    return read == 2;
}

/* The only CPU that the calling thread may run on; -1 when there are several. */
static int bound_cpu(void)
{
    cpu_set_t *mask = CPU_ALLOC(CF_MAX_CPUS);
    const size_t bytes = CPU_ALLOC_SIZE(CF_MAX_CPUS);
    int bound = -1;
    if (mask != NULL && sched_getaffinity(0, bytes, mask) == 0 && CPU_COUNT_S(bytes, mask) == 1) {
        for (int cpu = 0; cpu < CF_MAX_CPUS && bound < 0; cpu++) {
            bound = CPU_ISSET_S((size_t)cpu, bytes, mask) ? cpu : -1;
        }
    }
    CPU_FREE(mask);
    return bound;
}

/* A wish: what the kernel says afterwards counts. */
static void bind_to(int cpu)
{
    cpu_set_t *mask = CPU_ALLOC(CF_MAX_CPUS);
    const size_t bytes = CPU_ALLOC_SIZE(CF_MAX_CPUS);
    if (mask != NULL) {
        CPU_ZERO_S(bytes, mask);
        CPU_SET_S((size_t)cpu, bytes, mask);
        (void)sched_setaffinity(0, bytes, mask);
    }
    CPU_FREE(mask);
}

static void *worker_main(void *argument)
{
    worker *self = argument;
    cf_pool *pool = self->pool;
    self->tid = (pid_t)syscall(SYS_gettid);
    if (self->place.cpu >= 0) {
        bind_to(self->place.cpu);
    }
    self->cpu = bound_cpu();
    self->has_run_delay = run_delay_ns(self->tid, &self->run_delay_base_ns);
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

const cf_cpu *cf_pool_place(const cf_pool *pool, int thread)
{
    return &pool->workers[thread].place;
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

int cf_pool_pinned(const cf_pool *pool)
{
    int pinned = 1;
    for (int i = 0; i < pool->threads; i++) {
        pinned &= pool->workers[i].cpu >= 0;
    }
    return pinned;
}

/* Puts every worker into a group: those before it of its node, unless they are already too many. */
static void make_groups(cf_pool *pool)
{
    for (int i = 0; i < pool->threads; i++) {
        worker *self = &pool->workers[i];
        group *last = pool->group_count == 0 ? NULL : &pool->groups[pool->group_count - 1];
        if (last == NULL || last->members == GROUP_WORKERS || self[-1].place.node != self->place.node) {
            last = &pool->groups[pool->group_count++];
        }
        last->members++;
        self->group = last;
    }
}

int cf_pool_create_at(int threads, const cf_cpu *cpus, int spin, cf_pool **pool_out)
{
    *pool_out = NULL;
    cf_pool *pool = aligned_alloc(64, (sizeof *pool + 63) / 64 * 64);
    worker *workers = calloc((size_t)threads, sizeof *workers);
    /* At worst every worker is a node of its own. */
    group *groups = aligned_alloc(64, (size_t)threads * sizeof *groups);
    if (pool == NULL || workers == NULL || groups == NULL) {
        free(pool);
        free(workers);
        free(groups);
        return cf_fail(CFLOW_ERR_MEMORY, "out of memory for a pool of %d threads", threads);
    }
    memset(pool, 0, sizeof *pool);
    memset(groups, 0, (size_t)threads * sizeof *groups);
    pool->threads = threads;
    pool->workers = workers;
    pool->groups = groups;
    pool->spin = spin;
    for (int i = 0; i < threads; i++) {
        workers[i].pool = pool;
        workers[i].index = i;
        workers[i].place = cpus != NULL ? cpus[i] : (cf_cpu){.cpu = -1};
    }
    make_groups(pool);
    atomic_store(&pool->running, (uint32_t)threads);
    for (int i = 0; i < threads; i++) {
        int error = cf_create_thread(&workers[i].handle, worker_main, &workers[i]);
        if (error != 0) {
            /* Those that never came to be do not run. */
            atomic_fetch_sub(&pool->running, (uint32_t)(threads - i));
            cflow_pool_destroy(pool);
            return cf_fail(CFLOW_ERR_MEMORY, "cannot create thread %d of %d: %s", i + 1, threads, strerror(error));
        }
        pool->started = i + 1;
    }
    /* All pinned and asleep before anybody measures. */
    while (cf_pool_wait(pool) != CFLOW_OK) {
    }
    *pool_out = pool;
    return CFLOW_OK;
}

int cflow_pool_create(int threads, int pin, cflow_pool **pool_out)
{
    if (pool_out == NULL || threads < 1 || threads > CF_MAX_THREADS) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "threads is %d; allowed: 1 to %d", threads, CF_MAX_THREADS);
    }
    *pool_out = NULL;
    cf_topology *topology = malloc(sizeof *topology);
    if (topology == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "out of memory for a pool of %d threads", threads);
    }
    cf_topology_read("", topology);
    const int fits = threads <= topology->allowed;
    /* A spinning worker also spends the quota that the others need. */
    const long quota = topology->quota_millicpus;
    const int spin = fits && (quota == 0 || (threads - 1) * 1000L < quota);
    cf_cpu cpus[CF_MAX_THREADS];
    if (fits) {
        cf_topology_place(topology, threads, cpus);
    }
    free(topology);
    return cf_pool_create_at(threads, pin && fits ? cpus : NULL, spin, pool_out);
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
    free(pool->groups);
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
    const worker *of = &pool->workers[thread];
    uint64_t now_ns;
    if (!of->has_run_delay || !run_delay_ns(of->tid, &now_ns)) {
        return cf_fail(CFLOW_ERR_UNSUPPORTED, "this kernel keeps no run-queue delay (/proc/self/task/%d/schedstat)",
                       (int)of->tid);
    }
    *delay_ns_out = now_ns - of->run_delay_base_ns;
    return CFLOW_OK;
}
