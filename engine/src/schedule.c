/* schedule.c - what the executor runs, for those who measure it. */
#include "error.h"
#include "session.h"

const char *cflow_piece_kind_name(int kind)
{
    static const char *const names[CFLOW_PIECE_KIND_COUNT] = {
        "qkv", "attention", "output", "gate_up", "down", "router", "expert_gate_up", "expert_down", "head",
    };
    return kind >= 0 && kind < CFLOW_PIECE_KIND_COUNT ? names[kind] : NULL;
}

const char *cflow_stream_name(int stream)
{
    static const char *const names[CFLOW_STREAM_COUNT] = {"attention", "dense", "expert", "router", "head"};
    return stream >= 0 && stream < CFLOW_STREAM_COUNT ? names[stream] : NULL;
}

uint32_t cflow_schedule_phase_count(const cflow_session *session)
{
    return session == NULL ? 0 : session->plan->phase_count;
}

uint32_t cflow_schedule_piece_count(const cflow_session *session)
{
    return session == NULL ? 0 : session->plan->piece_count;
}

int cflow_schedule_piece(const cflow_session *session, uint32_t piece, uint64_t *fields_out)
{
    if (session == NULL || fields_out == NULL || piece >= session->plan->piece_count) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_schedule_piece: NULL argument or piece %u out of range", piece);
    }
    const cf_op *op = &session->plan->ops[session->plan->pieces[piece]];
    fields_out[CFLOW_PIECE_KIND] = op->piece;
    fields_out[CFLOW_PIECE_LAYER] = op->layer == CF_NONE ? UINT64_MAX : op->layer;
    fields_out[CFLOW_PIECE_SLOT] = op->slot;
    fields_out[CFLOW_PIECE_STREAM] = op->stream;
    fields_out[CFLOW_PIECE_PHASE] = op->level;
    fields_out[CFLOW_PIECE_WEIGHTS] = op->weights;
    fields_out[CFLOW_PIECE_BYTES] = op->bytes;
    return CFLOW_OK;
}

int cflow_schedule_dependencies(const cflow_session *session, uint32_t piece, uint32_t *pieces_out, size_t count,
                                size_t *total_out)
{
    if (session == NULL || total_out == NULL || (pieces_out == NULL && count > 0) ||
        piece >= session->plan->piece_count) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_schedule_dependencies: NULL argument or piece %u out of range",
                       piece);
    }
    return cf_plan_dependencies(session->plan, session->plan->pieces[piece], pieces_out, count, total_out);
}
