/* exec_routed.c - what a choice of experts starts before they are needed: reads by the session, or by the kernel. */
#define _GNU_SOURCE
#include "exec.h"

#include <sys/mman.h>

/* The kernel reads at most its readahead for one call, and wants whole pages, which may be larger than those of the file. */
static void advise(const cflow_session *session, const cf_expert_blob *blob)
{
    const uint64_t step = session->readahead_bytes, end = blob->offset + blob->bytes;
    for (uint64_t at = blob->offset / cf_page_bytes() * cf_page_bytes(); at < end; at += step) {
        (void)madvise((uint8_t *)(uintptr_t)(session->model->map + at), end - at < step ? end - at : step,
                      MADV_WILLNEED);
    }
}

void cf_exec_routed(cflow_session *session, const cf_worker *worker, const cf_op *op)
{
    const float *chosen = cf_exec_floats(session, worker, op->output[0]);
    if (session->experts != NULL) {
        cf_experts_choose(session->experts, op->layer, chosen);
    } else if (session->options.value[CFLOW_OPTION_EXPERT_ADVICE] == CFLOW_EXPERT_ADVICE_WILLNEED) {
        const cf_expert_blob *bank =
            session->model->experts + (size_t)op->block * session->model->param[CFLOW_PARAM_EXPERTS];
        for (uint32_t slot = 0; slot < session->plan->slots; slot++) {
            advise(session, &bank[(size_t)chosen[slot]]);
        }
    }
}
