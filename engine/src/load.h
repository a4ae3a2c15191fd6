/*
 * load.h - the data of a file into anonymous memory, as fast as the slower of touching new memory and reading.
 *
 * What is loaded is cut into chunks of one huge page of the target. Several readers for each worker, on its CPU, take chunks
 * in file order: while one waits for the device, another has its page zeroed or hashes what came. What the page cache
 * does not hold is read past it (O_DIRECT), straight into place; where that is refused, and for what the cache holds,
 * reads are ordinary ones. A page belongs to the NUMA node of the reader that first touches it.
 */
#ifndef CF_LOAD_H
#define CF_LOAD_H

#include "error.h"
#include "model.h"
#include "pool.h"
#include "spans.h"

#define CF_CHUNK_BYTES ((uint64_t)2 << 20)

/* The first failure of a job of many workers. */
typedef struct cf_failure {
    _Atomic int failed;
    int status;
    char message[CF_ERROR_BYTES];
} cf_failure;

/* Keeps status and message of the calling worker's failure unless another was first. */
void cf_failure_keep(cf_failure *failure, int status);
/* Read once the job is over: its status, the message set for the calling thread. */
int cf_failure_status(const cf_failure *failure);

/* NUMA nodes of the workers of a pool, numbered from 0 in the order of the workers. */
typedef struct cf_worker_nodes {
    uint32_t count;
    uint32_t of[CF_MAX_THREADS];
} cf_worker_nodes;

void cf_worker_nodes_of(const cf_pool *pool, cf_worker_nodes *nodes);

/* Chunks of the target, the last one perhaps shorter. */
uint64_t cf_load_chunks(const cf_spans *spans);

typedef struct cf_load {
    const cflow_model *model;
    const cf_spans *spans;
    uint8_t *target;            /* [spans->bytes, up to whole pages], aligned to a chunk */
    const uint32_t *chunk_node; /* [chunks] node, as in cf_worker_nodes, whose readers fetch it; NULL = any */
    int verify;                 /* 1 = every tensor of the spans against its hash */
    uint64_t direct_bytes;      /* out: read past the page cache */
} cf_load;

/* Reads on the CPUs of the pool's workers, which stay asleep. Errors: IO, CHECKSUM, MEMORY. */
int cf_load_run(cf_load *load, const cf_pool *pool);

#endif
