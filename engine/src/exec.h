/*
 * exec.h - the executor's parts. exec.c runs a call, token by token or, through exec_batch.c, in chunks of a prompt; both
 * run the phases of the plan and call the rest for each operation. All of it runs on a worker between two barriers, and
 * nothing can fail.
 */
#ifndef CF_EXEC_H
#define CF_EXEC_H

#include "act.h"
#include "session.h"

extern const int cf_exec_stream_ns[CFLOW_STREAM_COUNT];    /* counter of a stream's time */
extern const int cf_exec_stream_bytes[CFLOW_STREAM_COUNT]; /* and of its bytes */

/* Barrier functions: the end of a phase; of the last phase of a token or chunk. */
void cf_exec_at_phase_end(void *session);
void cf_exec_at_token_end(void *session);

/*
 * exec_vector.c: an operation that is not a piece, for the token in the worker's hands. counted: this worker's work is
 * what the counters show (decode repeats it on every worker). described: routing and norms of this token are kept.
 */
void cf_exec_vector(cflow_session *session, cf_worker *worker, const cf_op *op, int counted, int described);
/* exec_routed.c: the choice of a CF_OP_ROUTE is made: starts what is to be read early. One worker for each choice. */
void cf_exec_routed(cflow_session *session, const cf_worker *worker, const cf_op *op);
/* exec_hints.c: this worker's share of the hints of CFLOW_OPTION_EXPERT_HINTS, after a CF_OP_ROUTE. */
void cf_exec_hints(cflow_session *session, cf_worker *worker, const cf_op *op, int thread);
/* exec_matrix.c: this worker's rows of a matrix piece, for one token. */
void cf_exec_matrix(cflow_session *session, cf_worker *worker, const cf_op *op, int thread);
/* Adds to the bytes of the operation's stream, and to the trace, that a kernel was called on weights of the file. */
void cf_exec_record_load(const cflow_session *session, cf_worker *worker, const cf_op *op, int thread, uint64_t offset,
                         uint64_t bytes);
/* Adds a record to the trace, if there is one. */
void cf_exec_trace(const cflow_session *session, cf_worker *worker, uint64_t offset, uint64_t bytes, int thread,
                   uint64_t phase);
/* exec_attention.c: this worker's heads of an attention core, for one token. */
void cf_exec_attention(cflow_session *session, cf_worker *worker, const cf_op *op, int thread);
/*
 * One head of q or k [head_dim]: its norm, where the block has one (norm_role), then the rotation. cosines: of the
 * token's position, sines behind them. out may equal head.
 */
void cf_exec_rotate_head(const cflow_session *session, cf_worker *worker, const cf_op *op, cflow_role norm_role,
                         const float *cosines, const float *head, float *out);

/* exec_batch.c: session->chunk tokens at once. */
void cf_exec_batch(cflow_session *session, cf_worker *worker, int thread);
/* exec_batch_matrix.c: this worker's rows of a matrix piece, for all tokens of the chunk. */
void cf_batch_matrix(cflow_session *session, cf_worker *worker, const cf_op *op, int thread);
/* Likewise of the head, into session->all_logits; those of the last token also where decode has them. */
void cf_batch_head(cflow_session *session, cf_worker *worker, const cf_op *op, int thread);
/*
 * Likewise for one matrix of the chosen experts of a layer: pieces plan->order[first ..], one per slot. Each expert is read
 * once, for the tokens that chose it.
 */
void cf_batch_experts(cflow_session *session, cf_worker *worker, uint32_t first, int thread);
/* exec_batch_attention.c: keys and values of the token in the worker's hands into the cache; needs its rotation. */
void cf_batch_store_keys(cflow_session *session, cf_worker *worker, const cf_op *op);
/* After a barrier: this worker's share of all heads of all tokens. */
void cf_batch_attention(cflow_session *session, cf_worker *worker, const cf_op *op, int thread);

/* A vector that is normalised in `layer` has a mean square that is not finite. */
static inline void cf_exec_not_finite(cf_worker *worker, uint32_t layer)
{
    /* Phases of delayed models mix layers: the lowest of the earliest token counts, not the first that was run. */
    if (worker->slot < worker->bad_slot || (worker->slot == worker->bad_slot && layer < worker->bad_layer)) {
        worker->bad_slot = worker->slot;
        worker->bad_layer = layer;
    }
}

/* ---- values ---- */

/* Value of token `slot` of the chunk; outside chunks slot is 0. */
static inline uint8_t *cf_exec_value(const cflow_session *session, const cf_worker *worker, uint32_t value, size_t slot)
{
    const cf_value *v = &session->plan->values[value];
    return worker->base[v->kind] + v->offset * worker->copies + v->bytes * slot;
}

static inline float *cf_exec_floats(const cflow_session *session, const cf_worker *worker, uint32_t value)
{
    return (float *)(void *)cf_exec_value(session, worker, value, worker->slot);
}

static inline float *cf_exec_input(const cflow_session *session, const cf_worker *worker, const cf_op *op,
                                   uint32_t index)
{
    return cf_exec_floats(session, worker, session->plan->inputs[op->input_first + index]);
}

static inline cf_act_arrays cf_exec_act(const cflow_session *session, const cf_worker *worker, uint32_t value)
{
    return cf_act_place(cf_exec_value(session, worker, value, worker->slot), session->plan->values[value].columns);
}

#endif
