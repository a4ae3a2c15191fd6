/*
 * experts.h - the expert bank of a session whose experts stay in the file: those that were chosen are read into slots of
 * memory, and after their use kept there for as long as a budget gives them room.
 *
 * A row is the experts of one layer of one token (or of one step of a pure read). Its life: issue, fetch, use; its slots
 * are nobody else's until the last step in which they are used is over. Without a budget every use of an expert is a read
 * of its own, also of one that another row holds: bytes asked are exactly those of the experts that were chosen. With one,
 * an expert that is there or on its way is shared.
 *
 * The store is used like its reader: by one thread at a time, with a barrier between, except cf_experts_tensor().
 */
#ifndef CF_EXPERTS_H
#define CF_EXPERTS_H

#include "events.h"
#include "plan.h"
#include "reader.h"

typedef struct cf_experts cf_experts;

typedef struct cf_experts_options {
    cf_reader *reader;    /* with room for cf_experts_reads(); outlives the store */
    int sync;             /* 1 = read when needed, 0 = when chosen */
    int verify;           /* cflow_verify */
    uint64_t bytes;       /* most memory of the slots; 0 = as little as works */
    cf_lane *lane;        /* for the events of reads; outlives the store */
    uint64_t *held_bytes; /* of the session, see cf_memory_map() */
} cf_experts_options;

/* The least memory that the slots of a schedule need. */
uint64_t cf_experts_least_bytes(const cf_plan *plan);
/* Reads that are outstanding at once, at most; 0 when memory is out. */
uint32_t cf_experts_reads(const cf_plan *plan);
/* plan: with late_experts. Errors: MEMORY. */
int cf_experts_create(const cf_plan *plan, const cf_experts_options *options, cf_experts **experts_out);
void cf_experts_destroy(cf_experts *experts); /* waits for reads that are under way */

/* A new token: slots of the last one are free. */
void cf_experts_begin(cf_experts *experts);
/*
 * The router of `layer` has decided: chosen[slots], indices as floats. Starts the reads unless they wait for their need;
 * a failure shows in cf_experts_fetch().
 */
void cf_experts_choose(cf_experts *experts, uint32_t layer, const float *chosen);
/* Until the experts of all layers whose gate and up are in this phase are there, and verified. Errors: IO, CHECKSUM,
   CANCELLED. */
int cf_experts_fetch(cf_experts *experts, uint32_t phase, const _Atomic int *cancel);
/* Where a tensor of the expert in `slot` of `layer` lies, between its fetch and the end of its use. */
const uint8_t *cf_experts_tensor(const cf_experts *experts, uint32_t layer, uint32_t slot, const cf_tensor *tensor);
/* The token ended early: waits for what is under way and forgets it. */
void cf_experts_abandon(cf_experts *experts);

/*
 * Reads the experts of `rows` layers in order, the next row issued before the last one is waited for. chosen:
 * [rows][experts_per_token]; row r belongs to layer r mod layers. Errors as fetch.
 */
int cf_experts_read(cf_experts *experts, const int32_t *chosen, size_t rows, const _Atomic int *cancel);

uint64_t cf_experts_hits(const cf_experts *experts); /* uses that were served without a read of their own */
uint64_t cf_experts_memory(const cf_experts *experts);

#endif
