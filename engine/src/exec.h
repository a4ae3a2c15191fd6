/*
 * exec.h - the executor's parts: exec.c runs tokens and phases and calls the others for each operation of a phase.
 * Everything here runs on a worker, between two barriers; nothing here can fail.
 */
#ifndef CF_EXEC_H
#define CF_EXEC_H

#include "act.h"
#include "session.h"

/* exec_vector.c: every operation that is not a piece; each worker makes its own copy of the result. */
void cf_exec_vector(cflow_session *session, cf_worker *worker, const cf_op *op, int thread);
/* exec_matrix.c: this worker's rows of a matrix piece. */
void cf_exec_matrix(cflow_session *session, cf_worker *worker, const cf_op *op, int thread);
/* exec_attention.c: this worker's heads of an attention core. */
void cf_exec_attention(cflow_session *session, cf_worker *worker, const cf_op *op, int thread);

/* ---- values ---- */

static inline float *cf_exec_floats(const cflow_session *session, const cf_worker *worker, uint32_t value)
{
    const cf_value *v = &session->plan->values[value];
    uint8_t *arena = v->kind == CF_VALUE_SHARED ? session->shared_arena.data : worker->arena;
    return (float *)(void *)(arena + v->offset);
}

static inline float *cf_exec_input(const cflow_session *session, const cf_worker *worker, const cf_op *op,
                                   uint32_t index)
{
    return cf_exec_floats(session, worker, session->plan->inputs[op->input_first + index]);
}

static inline cf_act_arrays cf_exec_act(const cflow_session *session, const cf_worker *worker, uint32_t value)
{
    const cf_value *v = &session->plan->values[value];
    return cf_act_place(worker->arena + v->offset, v->columns);
}

#endif
