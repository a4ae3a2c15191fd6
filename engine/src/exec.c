/* exec.c - runs a call on every worker: tokens one by one, or a prompt in chunks. */
#include "exec.h"

#include "error.h"

#include <stdio.h>
#include <string.h>

const int cf_exec_stream_ns[CFLOW_STREAM_COUNT] = {
    [CFLOW_STREAM_ATTENTION] = CFLOW_COUNTER_ATTENTION_NS, [CFLOW_STREAM_DENSE] = CFLOW_COUNTER_DENSE_NS,
    [CFLOW_STREAM_EXPERT] = CFLOW_COUNTER_EXPERT_NS,       [CFLOW_STREAM_ROUTER] = CFLOW_COUNTER_ROUTER_NS,
    [CFLOW_STREAM_HEAD] = CFLOW_COUNTER_HEAD_NS,
};

/* The token in hand will not be finished. status: CFLOW_ERR_CANCELLED, or that of the last failure on this thread. */
static void give_up(cflow_session *session, int status)
{
    session->job_status = status;
    if (status != CFLOW_ERR_CANCELLED) {
        (void)snprintf(session->job_message, sizeof session->job_message, "%s", cflow_last_error());
    }
    if (session->experts != NULL) {
        cf_experts_abandon(session->experts);
    }
    if (session->stream != NULL) {
        cf_stream_abandon(session->stream);
    }
    atomic_store_explicit(&session->abort, 1, memory_order_relaxed);
}

/* Nanoseconds that the session has waited for storage so far. */
static uint64_t storage_wait(const cflow_session *session)
{
    cf_reader_totals totals = {0};
    if (session->reader != NULL) {
        cf_reader_totals_get(session->reader, &totals);
    }
    return totals.wait_ns;
}

/* The weights that the next phase uses, if they come through the ring. */
static void fetch_streamed(cflow_session *session)
{
    if (session->stream == NULL) {
        return;
    }
    const uint64_t before_ns = storage_wait(session);
    const int status = cf_stream_fetch(session->stream, session->phase, &session->cancel);
    session->storage_wait_ns = storage_wait(session) - before_ns;
    if (status != CFLOW_OK) {
        give_up(session, status);
    }
}

void cf_exec_at_phase_end(void *argument)
{
    cflow_session *session = argument;
    session->storage_wait_ns = 0;
    session->phase++;
    if (session->reader != NULL) {
        cf_reader_poll(session->reader);
    }
    fetch_streamed(session);
    if (atomic_load_explicit(&session->cancel, memory_order_relaxed)) {
        give_up(session, CFLOW_ERR_CANCELLED);
    }
}

/* Barrier function in front of the experts of a phase. */
static void fetch_experts(void *argument)
{
    cflow_session *session = argument;
    const uint64_t before_ns = storage_wait(session);
    const int status = cf_experts_fetch(session->experts, session->phase, &session->cancel);
    session->storage_wait_ns = storage_wait(session) - before_ns;
    if (status != CFLOW_OK) {
        give_up(session, status);
    }
}

/* The next token or chunk of a call, or the end of it. */
static void next_token(cflow_session *session)
{
    const size_t left = session->feed_count - session->done;
    if (left == 0) {
        atomic_store_explicit(&session->abort, 1, memory_order_relaxed);
        return;
    }
    session->chunk = 1;
    if (!session->generate) {
        session->chunk = left < session->batch ? (uint32_t)left : session->batch;
        session->token = session->feed[session->done];
        session->want_logits = session->all_logits != NULL || session->chunk == left;
    }
    session->phase = 0;
    session->lane.token = session->position;
    if (session->experts != NULL) {
        cf_experts_begin(session->experts);
    }
    fetch_streamed(session);
    if (atomic_load_explicit(&session->cancel, memory_order_relaxed)) {
        give_up(session, CFLOW_ERR_CANCELLED);
    }
}

/* The first token of the chunk with a value that is not finite; its lowest layer, CF_NONE for a logit. */
static int find_nonfinite(const cflow_session *session, uint32_t *slot_out, uint32_t *layer_out)
{
    uint32_t slot = CF_NONE, layer = CF_NONE;
    int finite = 1;
    for (int i = 0; i < cf_pool_threads(session->pool); i++) {
        const cf_worker *worker = &session->workers[i];
        finite &= worker->logits_finite;
        if (worker->bad_slot < slot || (worker->bad_slot == slot && worker->bad_layer < layer)) {
            slot = worker->bad_slot;
            layer = worker->bad_layer;
        }
    }
    *slot_out = slot != CF_NONE ? slot : session->chunk - 1;
    *layer_out = layer;
    return slot != CF_NONE || !finite;
}

void cf_exec_at_token_end(void *argument)
{
    cflow_session *session = argument;
    const uint64_t now_ns = cf_now_ns();
    const uint64_t start_ns = session->token_start_ns, token_ns = now_ns - start_ns;
    session->token_start_ns = now_ns;
    session->storage_wait_ns = 0;
    uint32_t bad_slot, bad_layer;
    if (find_nonfinite(session, &bad_slot, &bad_layer)) {
        session->job_status = CFLOW_ERR_NONFINITE;
        session->job_bad_layer = bad_layer;
        /* The tokens before it are whole. */
        session->position += bad_slot;
        session->done += bad_slot;
        if (session->stream != NULL) {
            cf_stream_abandon(session->stream);
        }
        atomic_store_explicit(&session->abort, 1, memory_order_relaxed);
        return;
    }
    if (session->chunk == 1) {
        cf_lane_add(&session->lane, CFLOW_EVENT_TOKEN, start_ns, now_ns, UINT64_MAX, UINT64_MAX);
    }
    session->position += session->chunk;
    session->tokens += session->chunk;
    session->wall_ns += token_ns;
    if (session->generate) {
        const cf_worker *best = NULL;
        for (int i = 0; i < cf_pool_threads(session->pool); i++) {
            const cf_worker *worker = &session->workers[i];
            /* Workers hold ascending rows: only a strictly larger logit beats a lower id. */
            if (worker->best_token >= 0 && (best == NULL || worker->best_logit > best->best_logit)) {
                best = worker;
            }
        }
        session->token = best->best_token;
        session->tokens_out[session->done] = session->token;
    }
    if (session->all_logits != NULL && session->chunk == 1) {
        const size_t vocab = session->model->param[CFLOW_PARAM_VOCAB];
        const uint8_t *logits = (const uint8_t *)session->shared_arena.data + session->plan->shared_bytes;
        memcpy(session->all_logits + session->done * vocab, logits, vocab * sizeof(float));
    }
    if (session->ns_out != NULL) {
        session->ns_out[session->done] = token_ns;
    }
    session->done += session->chunk;
    next_token(session);
}

/* What a worker has done since `since_ns`; it goes on from the time that is returned. */
static uint64_t count_work(cf_worker *worker, cflow_counter counter, cflow_event_kind kind, uint32_t phase,
                           uint64_t piece, uint64_t since_ns)
{
    const uint64_t now_ns = cf_now_ns();
    worker->counters[counter] += now_ns - since_ns;
    cf_lane_add(&worker->lane, kind, since_ns, now_ns, phase, piece);
    return now_ns;
}

/*
 * A barrier, in which the last worker may wait for storage: that is counted once, not per worker. piece: that it lies in
 * front of; UINT64_MAX at the end of a phase.
 */
static uint64_t meet(cflow_session *session, cf_worker *worker, int thread, cf_barrier_fn at_last, uint32_t phase,
                     uint64_t piece, uint64_t since_ns)
{
    cf_pool_barrier(session->pool, thread, at_last, session);
    const uint64_t now_ns = cf_now_ns(), passed_ns = now_ns - since_ns;
    const uint64_t storage_ns = session->storage_wait_ns;
    worker->counters[CFLOW_COUNTER_BARRIER_NS] += passed_ns > storage_ns ? passed_ns - storage_ns : 0;
    cf_lane_add(&worker->lane, CFLOW_EVENT_BARRIER, since_ns, now_ns, phase, piece);
    return now_ns;
}

static void run_token(cflow_session *session, cf_worker *worker, int thread)
{
    const cf_plan *plan = session->plan;
    const uint32_t phases = session->want_logits ? plan->phase_count : plan->head_phase;
    const uint32_t head_dim = session->model->param[CFLOW_PARAM_HEAD_DIM];
    worker->base[CF_VALUE_PRIVATE] = worker->base[CF_VALUE_ACT] = worker->arena;
    worker->base[CF_VALUE_SHARED] = session->shared_arena.data;
    worker->copies = 1;
    worker->slot = 0;
    worker->token = session->token;
    worker->lane.token = session->position;
    uint64_t clock_ns = cf_now_ns();
    cf_rope_rotation(worker->rotation, worker->rotation + head_dim / 2, session->position, head_dim,
                     session->model->rope_base);
    for (uint32_t phase = 0; phase < phases; phase++) {
        int in_pieces = 0;
        for (uint32_t i = plan->phase_first[phase]; i < plan->phase_first[phase + 1]; i++) {
            const cf_op *op = &plan->ops[plan->order[i]];
            if (op->kind != CF_OP_PIECE) {
                cf_exec_vector(session, worker, op, thread == 0, thread == 0);
                if (op->kind == CF_OP_ROUTE && thread == 0) {
                    cf_exec_routed(session, worker, op);
                }
                if (op->kind == CF_OP_ROUTE) {
                    cf_exec_hints(session, worker, op, thread);
                }
                continue;
            }
            if (!in_pieces) {
                clock_ns = count_work(worker, CFLOW_COUNTER_VECTOR_NS, CFLOW_EVENT_VECTOR, phase, UINT64_MAX, clock_ns);
                in_pieces = 1;
            }
            if (i == plan->phase_experts[phase]) {
                clock_ns = meet(session, worker, thread, fetch_experts, phase, op->piece_index, clock_ns);
                if (atomic_load_explicit(&session->abort, memory_order_relaxed)) {
                    return;
                }
            }
            if (op->tensor == NULL) {
                cf_exec_attention(session, worker, op, thread);
            } else {
                cf_exec_matrix(session, worker, op, thread);
            }
            clock_ns = count_work(worker, (cflow_counter)cf_exec_stream_ns[op->stream], CFLOW_EVENT_PIECE, phase,
                                  op->piece_index, clock_ns);
        }
        const int is_last = phase + 1 == phases;
        if (thread == 0) {
            session->phases++;
        }
        clock_ns = meet(session, worker, thread, is_last ? cf_exec_at_token_end : cf_exec_at_phase_end, phase,
                        UINT64_MAX, clock_ns);
        if (atomic_load_explicit(&session->abort, memory_order_relaxed)) {
            return;
        }
    }
}

static void at_start(void *argument)
{
    cflow_session *session = argument;
    session->token_start_ns = atomic_load_explicit(&session->first_in_ns, memory_order_relaxed);
    if (session->stream != NULL) {
        cf_stream_begin(session->stream, session->feed_count, session->generate || session->all_logits != NULL);
    }
    next_token(session);
}

void cf_exec_job(void *argument, int thread)
{
    cflow_session *session = argument;
    uint64_t unset = 0;
    (void)atomic_compare_exchange_strong(&session->first_in_ns, &unset, cf_now_ns());
    cf_pool_barrier(session->pool, thread, at_start, session);
    while (!atomic_load_explicit(&session->abort, memory_order_relaxed)) {
        cf_worker *worker = &session->workers[thread];
        worker->base[CF_VALUE_LOGITS] = (uint8_t *)session->shared_arena.data + session->plan->shared_bytes;
        worker->best_token = -1;
        worker->logits_finite = 1;
        worker->bad_slot = worker->bad_layer = CF_NONE;
        if (session->chunk > 1) {
            cf_exec_batch(session, worker, thread);
        } else {
            run_token(session, worker, thread);
        }
    }
}

void cf_exec_read_job(void *argument, int thread)
{
    cflow_session *session = argument;
    if (thread != 0) {
        return;
    }
    const uint64_t start_ns = cf_now_ns();
    const int status = cf_experts_read(session->experts, session->read_experts, session->read_rows, &session->cancel);
    *session->read_ns_out = cf_now_ns() - start_ns;
    if (status != CFLOW_OK) {
        give_up(session, status);
    }
}
