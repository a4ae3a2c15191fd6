/* pool.h - pinned worker threads and their barrier. */
#ifndef CF_POOL_H
#define CF_POOL_H

#include "cflow.h"
#include "topology.h"

typedef struct cflow_pool cf_pool;

/* Runs on every worker; `thread` is 0 .. threads - 1. */
typedef void (*cf_job_fn)(void *argument, int thread);
/* Runs once per barrier, on the last worker to arrive, before the others are released. */
typedef void (*cf_barrier_fn)(void *argument);

int cf_pool_threads(const cf_pool *pool);
/* CPU of each of the `threads` workers is cpus[i].cpu, as cf_topology_place() lists them; NULL = not bound. */
int cf_pool_create_at(int threads, const cf_cpu *cpus, int spin, cf_pool **pool_out);
/* Where worker `thread` was put, {-1, 0, ...} when it was not bound. */
const cf_cpu *cf_pool_place(const cf_pool *pool, int thread);
/* 1 when every worker is bound to a CPU of its own. */
int cf_pool_pinned(const cf_pool *pool);
/* Hands a job to all workers and returns at once. One job at a time: wait before the next. */
void cf_pool_start(cf_pool *pool, cf_job_fn job, void *argument);
/* CFLOW_OK when no job runs any more; CFLOW_ERR_INTERRUPTED when a signal handler may have run and the job goes on. */
int cf_pool_wait(cf_pool *pool);
/* cf_pool_start, then waits through interruptions. */
void cf_pool_run(cf_pool *pool, cf_job_fn job, void *argument);
/*
 * Called by every worker of the running job, with its own number. Spins for a while, then sleeps. Everything written
 * before it by any worker, and by at_last, is visible to all after it. at_last may be NULL.
 */
void cf_pool_barrier(cf_pool *pool, int thread, cf_barrier_fn at_last, void *argument);

uint64_t cf_now_ns(void); /* CLOCK_MONOTONIC */

#endif
