/* exec_vector.c - the vector operations of a plan: embedding, norms, sums, expert choice. */
#include "exec.h"

#include "row.h"
#include "vector.h"

#include <math.h>
#include <string.h>

/* Fills what the readers of this activation value need, from its own f32 array or from another vector. */
static void prepare_act(const cflow_session *session, const cf_worker *worker, uint32_t value, const float *in)
{
    const cf_value *v = &session->plan->values[value];
    const cf_act_arrays arrays = cf_exec_act(session, worker, value);
    cf_act_prepare(&arrays, v->needs, in, v->columns);
}

static void run_embed(const cflow_session *session, cf_worker *worker, const cf_op *op, int counted)
{
    const cf_tensor *table = op->tensor;
    const uint32_t *p = session->model->param;
    cf_tiles tiles;
    /* Described once before, when the file was opened: cannot fail. */
    (void)cf_tiles_describe((int)table->type, 1, table->rows, table->columns, p[CFLOW_PARAM_TILE_ROWS],
                            p[CFLOW_PARAM_TILE_COLS], &tiles);
    cf_tiles_read_row(&tiles, cf_tensor_data(session, table), (uint64_t)worker->token,
                      cf_exec_floats(session, worker, op->output[0]));
    if (counted) {
        worker->counters[CFLOW_COUNTER_EMBEDDING_BYTES] +=
            table->columns / CF_BLOCK * cf_row_block_bytes((int)table->type);
    }
}

static void run_norm(cflow_session *session, cf_worker *worker, const cf_op *op)
{
    float *normed = cf_exec_act(session, worker, op->output[0]).f32;
    const float *gain = (const float *)(const void *)cf_tensor_data(session, op->vector);
    const uint32_t d = session->model->param[CFLOW_PARAM_D_MODEL];
    if (!cf_vector_rmsnorm(normed, cf_exec_input(session, worker, op, 0), gain, d, session->model->rms_eps)) {
        cf_exec_not_finite(worker, op->layer == CF_NONE ? session->model->param[CFLOW_PARAM_LAYERS] : op->layer);
    }
    prepare_act(session, worker, op->output[0], normed);
}

/* NaN ranks above everything: it is chosen, and the token then fails at its logits instead of passing unseen. */
static float rank_of(float logit)
{
    return isnan(logit) ? INFINITY : logit;
}

/*
 * Choice of experts: the k largest logits, the lower index first among equals, in ascending order of index, with the
 * softmax over all logits as their weights. The control arm that reads all experts gives the others weight 0.
 */
static void run_route(cflow_session *session, cf_worker *worker, const cf_op *op, int described)
{
    const uint32_t experts = session->model->param[CFLOW_PARAM_EXPERTS];
    const uint32_t k = session->model->param[CFLOW_PARAM_EXPERTS_PER_TOKEN];
    const uint32_t slots = session->plan->slots;
    const float *logits = cf_exec_input(session, worker, op, 0);
    float *chosen = cf_exec_floats(session, worker, op->output[0]);
    float *weights = chosen + slots;
    float *probability = weights + slots;
    memcpy(probability, logits, experts * sizeof *logits);
    cf_vector_softmax(probability, experts);
    float *picked = slots == experts ? probability + experts : chosen; /* [k] indices in order of choice */
    float sum = 0.0f;
    float previous = INFINITY;
    int64_t previous_index = -1;
    for (uint32_t count = 0; count < k; count++) {
        int64_t best = -1;
        for (uint32_t i = 0; i < experts; i++) {
            const int after = rank_of(logits[i]) < previous || (rank_of(logits[i]) == previous && i > previous_index);
            if (after && (best < 0 || rank_of(logits[i]) > rank_of(logits[best]))) {
                best = i;
            }
        }
        previous = rank_of(logits[best]);
        previous_index = best;
        sum += probability[best];
        /* Insertion keeps the indices ascending. */
        uint32_t at = count;
        for (; at > 0 && picked[at - 1] > (float)best; at--) {
            picked[at] = picked[at - 1];
        }
        picked[at] = (float)best;
    }
    const float norm = session->model->param[CFLOW_PARAM_NORM_TOPK] != 0 ? sum : 1.0f;
    if (slots == experts) {
        for (uint32_t slot = 0; slot < slots; slot++) {
            weights[slot] = 0.0f;
        }
    }
    for (uint32_t i = 0; i < k; i++) {
        const uint32_t expert = (uint32_t)picked[i];
        weights[slots == experts ? expert : i] = probability[expert] / norm;
        if (described) {
            session->routing[(size_t)op->layer * k + i] = (int32_t)expert;
            session->routing_weights[(size_t)op->layer * k + i] = probability[expert] / norm;
        }
    }
    for (uint32_t slot = 0; slots == experts && slot < slots; slot++) {
        chosen[slot] = (float)slot;
    }
}

static void run_expert_sum(cflow_session *session, cf_worker *worker, const cf_op *op)
{
    const uint32_t slots = session->plan->slots;
    const float *weights = cf_exec_input(session, worker, op, 0) + slots;
    float *out = cf_exec_floats(session, worker, op->output[0]);
    for (uint32_t slot = 0; slot < slots; slot++) {
        cf_vector_accumulate(out, weights[slot], cf_exec_input(session, worker, op, slot + 1),
                             session->model->param[CFLOW_PARAM_D_MODEL], slot == 0);
    }
}

void cf_exec_vector(cflow_session *session, cf_worker *worker, const cf_op *op, int counted, int described)
{
    const size_t d = session->model->param[CFLOW_PARAM_D_MODEL];
    switch (op->kind) {
    case CF_OP_EMBED:
        run_embed(session, worker, op, counted);
        break;
    case CF_OP_ADD:
        cf_vector_add(cf_exec_floats(session, worker, op->output[0]), cf_exec_input(session, worker, op, 0),
                      cf_exec_input(session, worker, op, 1), d);
        break;
    case CF_OP_MIX:
        cf_vector_mix(cf_exec_floats(session, worker, op->output[0]), cf_exec_input(session, worker, op, 0),
                      cf_exec_input(session, worker, op, 1), d);
        break;
    case CF_OP_REGISTER:
        cf_vector_register(cf_exec_floats(session, worker, op->output[0]),
                           (const float *)(const void *)cf_tensor_data(session, op->vector),
                           op->input_count > 1 ? cf_exec_input(session, worker, op, 1) : NULL,
                           cf_exec_input(session, worker, op, 0), d);
        break;
    case CF_OP_NORM:
        run_norm(session, worker, op);
        break;
    case CF_OP_PREPARE:
        prepare_act(session, worker, op->output[0], cf_exec_input(session, worker, op, 0));
        break;
    case CF_OP_ROUTE:
        run_route(session, worker, op, described);
        break;
    case CF_OP_EXPERT_SUM:
        run_expert_sum(session, worker, op);
        break;
    case CF_OP_STREAM:
        for (uint32_t i = 0; described && i < op->input_count; i++) {
            session->residual_norms[op->layer + (size_t)i * session->model->param[CFLOW_PARAM_LAYERS]] =
                sqrtf(cf_vector_square_sum(cf_exec_input(session, worker, op, i), d));
        }
        break;
    case CF_OP_PIECE:
        break;
    }
}
