/*
 * exec_batch.c - the phases of a plan for a chunk of a prompt. Where a single token repeats its vector operations on every
 * worker, the tokens of a chunk are split over the workers, and a barrier hands their results on to the pieces: with so
 * many of them the repetition would cost more than the barrier. Every value has a place per token in the batch arena, and
 * each operation does for a token what it does in decode, in the same order: results do not depend on the chunk.
 */
#include "exec.h"

/* The tokens of the chunk whose vector operations are this worker's. */
static void own_tokens(const cflow_session *session, int thread, uint32_t *first, uint32_t *last)
{
    const uint32_t threads = (uint32_t)cf_pool_threads(session->pool);
    *first = session->chunk * (uint32_t)thread / threads;
    *last = session->chunk * ((uint32_t)thread + 1) / threads;
}

static void take_token(const cflow_session *session, cf_worker *worker, uint32_t slot)
{
    worker->slot = slot;
    worker->token = session->feed[session->done + slot];
}

/* Vector operations of a phase, and keys and values of its attention cores. Returns 0 when the phase has none. */
static int run_tokens(cflow_session *session, cf_worker *worker, uint32_t phase, uint32_t first, uint32_t last)
{
    const cf_plan *plan = session->plan;
    const uint32_t begin = plan->phase_first[phase], end = plan->phase_first[phase + 1];
    int any = 0;
    for (uint32_t i = begin; i < end; i++) {
        const cf_op *op = &plan->ops[plan->order[i]];
        any |= op->kind != CF_OP_PIECE || op->tensor == NULL;
    }
    for (uint32_t slot = first; any && slot < last; slot++) {
        take_token(session, worker, slot);
        for (uint32_t i = begin; i < end; i++) {
            const cf_op *op = &plan->ops[plan->order[i]];
            if (op->kind != CF_OP_PIECE) {
                cf_exec_vector(session, worker, op, 1, slot + 1 == session->chunk);
                if (op->kind == CF_OP_ROUTE) {
                    cf_exec_routed(session, worker, op);
                }
            } else if (op->tensor == NULL) {
                cf_batch_store_keys(session, worker, op);
            }
        }
    }
    return any;
}

static void run_pieces(cflow_session *session, cf_worker *worker, uint32_t phase, int thread, uint64_t *clock_ns)
{
    const cf_plan *plan = session->plan;
    const uint32_t end = plan->phase_first[phase + 1];
    for (uint32_t i = plan->phase_first[phase], next; i < end; i = next) {
        const cf_op *op = &plan->ops[plan->order[i]];
        next = i + 1;
        if (op->kind != CF_OP_PIECE) {
            continue;
        }
        if (op->tensor == NULL) {
            cf_batch_attention(session, worker, op, thread);
        } else if (op->stream == CFLOW_STREAM_EXPERT) {
            /* The slots of a layer stand side by side: their pieces have one level, and nothing lies between them. */
            cf_batch_experts(session, worker, i, thread);
            next = i + plan->slots;
        } else if (op->stream == CFLOW_STREAM_HEAD && session->all_logits != NULL) {
            cf_batch_head(session, worker, op, thread);
        } else if (op->stream == CFLOW_STREAM_HEAD) {
            take_token(session, worker, session->chunk - 1);
            cf_exec_matrix(session, worker, op, thread);
        } else {
            cf_batch_matrix(session, worker, op, thread);
        }
        const uint64_t now_ns = cf_now_ns();
        worker->counters[cf_exec_stream_ns[op->stream]] += now_ns - *clock_ns;
        *clock_ns = now_ns;
    }
}

static uint64_t add_time(cf_worker *worker, cflow_counter counter, uint64_t since_ns)
{
    const uint64_t now_ns = cf_now_ns();
    worker->counters[counter] += now_ns - since_ns;
    return now_ns;
}

void cf_exec_batch(cflow_session *session, cf_worker *worker, int thread)
{
    const cf_plan *plan = session->plan;
    const uint32_t phases = session->want_logits ? plan->phase_count : plan->head_phase;
    const uint32_t head_dim = session->model->param[CFLOW_PARAM_HEAD_DIM];
    uint64_t clock_ns = cf_now_ns();
    worker->base[CF_VALUE_PRIVATE] = worker->base[CF_VALUE_ACT] = session->batch_arena.data;
    worker->base[CF_VALUE_SHARED] = (uint8_t *)session->batch_arena.data + plan->private_bytes * session->batch;
    worker->copies = session->batch;
    uint32_t first, last;
    own_tokens(session, thread, &first, &last);
    for (uint32_t slot = first; slot < last; slot++) {
        float *cosines = session->batch_rotation + (size_t)slot * head_dim;
        cf_rope_rotation(cosines, cosines + head_dim / 2, session->position + slot, head_dim,
                         session->model->rope_base);
    }
    for (uint32_t phase = 0; phase < phases; phase++) {
        /* From the head on only the last token goes further, unless the logits of all are wanted. */
        if (phase >= plan->head_phase && session->all_logits == NULL) {
            first = last < session->chunk ? last : session->chunk - 1;
        }
        const int handed_on = run_tokens(session, worker, phase, first, last);
        clock_ns = add_time(worker, CFLOW_COUNTER_VECTOR_NS, clock_ns);
        if (handed_on) {
            cf_pool_barrier(session->pool, thread, NULL, NULL);
            clock_ns = add_time(worker, CFLOW_COUNTER_BARRIER_NS, clock_ns);
        }
        run_pieces(session, worker, phase, thread, &clock_ns);
        if (thread == 0) {
            session->phases++;
        }
        cf_pool_barrier(session->pool, thread, phase + 1 == phases ? cf_exec_at_token_end : cf_exec_at_phase_end,
                        session);
        clock_ns = add_time(worker, CFLOW_COUNTER_BARRIER_NS, clock_ns);
        if (atomic_load_explicit(&session->abort, memory_order_relaxed)) {
            return;
        }
    }
}
