/* exec_hints.c - prefetch hints over the experts of a layer: control arms, see CFLOW_OPTION_EXPERT_HINTS. */
#include "exec.h"
#include "hints.h"

/* A share of one matrix; the shares of the workers meet at lines. */
static void hint_matrix(const cflow_session *session, cf_worker *worker, const cf_op *op, const cf_tensor *tensor,
                        int thread)
{
    const uint64_t threads = (uint64_t)cf_pool_threads(session->pool), worker_index = (uint64_t)thread;
    const uint64_t lines = (tensor->bytes + CF_LINE - 1) / CF_LINE;
    const uint64_t first = lines * worker_index / threads * CF_LINE;
    const uint64_t end = lines * (worker_index + 1) / threads * CF_LINE;
    const uint64_t last = end < tensor->bytes ? end : tensor->bytes;
    if (first < last) {
        worker->counters[CFLOW_COUNTER_HINTS] +=
            cf_hints_give(cf_tensor_data(session, tensor) + first, last - first,
                          (uint64_t)session->options.value[CFLOW_OPTION_EXPERT_HINT_STRIDE], CFLOW_PREFETCH_T0);
        cf_exec_trace(session, worker, tensor->offset + first, last - first, thread,
                      (uint64_t)op->level + CFLOW_TRACE_HINT);
    }
}

void cf_exec_hints(cflow_session *session, cf_worker *worker, const cf_op *op, int thread)
{
    const int64_t which = session->options.value[CFLOW_OPTION_EXPERT_HINTS];
    if (which == CFLOW_EXPERT_HINTS_NONE) {
        return;
    }
    const uint32_t experts = session->model->param[CFLOW_PARAM_EXPERTS];
    const float *chosen = cf_exec_floats(session, worker, op->output[0]);
    const uint32_t count = which == CFLOW_EXPERT_HINTS_LINEAR ? experts : session->plan->slots;
    for (uint32_t i = 0; i < count; i++) {
        size_t expert = which == CFLOW_EXPERT_HINTS_LINEAR ? i : (size_t)chosen[i];
#ifdef CFLOW_MUTANT_HINTS_ELSEWHERE
        expert = (expert + 1) % experts;
#endif
        const cf_tensor *const *matrices = session->model->bank + ((size_t)op->block * experts + expert) * 2;
        hint_matrix(session, worker, op, matrices[0], thread);
        hint_matrix(session, worker, op, matrices[1], thread);
    }
}
