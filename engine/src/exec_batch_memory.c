/* exec_batch_memory.c - the memory of a session for chunks of a prompt. */
#include "session.h"

#include "error.h"

/* Adds count * bytes, rounded up to 64, to *total; 0 when it does not fit. */
static int add_bytes(size_t *total, size_t count, size_t bytes)
{
    size_t product;
    return !__builtin_mul_overflow(count, bytes, &product) && product <= SIZE_MAX - 63 &&
           !__builtin_add_overflow(*total, cf_pad64(product), total);
}

int cf_batch_memory(cflow_session *session)
{
    const cf_plan *plan = session->plan;
    const uint32_t *p = session->model->param;
    const size_t threads = (size_t)session->options.value[CFLOW_OPTION_THREADS];
    const size_t batch = session->batch;
    if (batch == 1) {
        return CFLOW_OK;
    }
    size_t panels_bytes = 0, parts = 1;
    for (uint32_t i = 0; i < plan->piece_count; i++) {
        const cf_op *op = &plan->ops[plan->pieces[i]];
        if (op->tensor != NULL) {
            const unsigned needs = cf_plan_kernel(&plan->options, op->tensor->role, op->tensor->type)->needs;
            const size_t bytes = cf_gemm_bytes(needs, op->tensor->columns, session->batch);
            panels_bytes = bytes > panels_bytes ? bytes : panels_bytes;
            parts = op->tensor->parts > parts ? op->tensor->parts : parts;
        }
    }
    const size_t experts = p[CFLOW_PARAM_EXPERTS];
    size_t arena_bytes = 0, stripe_bytes = 0, choices_bytes = 0, scratch_bytes, private_bytes = 0;
    int fits = add_bytes(&private_bytes, batch, plan->private_bytes);
    fits &= add_bytes(&arena_bytes, 1, private_bytes) && add_bytes(&arena_bytes, batch, plan->shared_bytes);
    const size_t rotation_offset = arena_bytes;
    fits &= add_bytes(&arena_bytes, batch, p[CFLOW_PARAM_HEAD_DIM] * sizeof(float));
    fits &= add_bytes(&stripe_bytes, parts * batch, p[CFLOW_PARAM_TILE_ROWS] * sizeof(float));
    fits &= add_bytes(&choices_bytes, experts + 1 + plan->slots * batch, sizeof(uint32_t));
    const size_t worker_bytes = panels_bytes + stripe_bytes + choices_bytes;
    if (!fits || __builtin_mul_overflow(worker_bytes, threads, &scratch_bytes)) {
        return cf_fail(CFLOW_ERR_MEMORY, "option prompt_batch: the values of %zu tokens overflow the address space",
                       batch);
    }
    int status = cf_memory_map(&session->batch_arena, arena_bytes, 1, "working memory of a chunk of the prompt",
                               &session->held_bytes);
    if (status == CFLOW_OK) {
        status = cf_memory_map(&session->batch_scratch, scratch_bytes, 1, "products of a chunk of the prompt",
                               &session->held_bytes);
    }
    if (status != CFLOW_OK) {
        return status;
    }
    session->batch_rotation = (float *)(void *)((uint8_t *)session->batch_arena.data + rotation_offset);
    for (size_t i = 0; i < threads; i++) {
        uint8_t *at = (uint8_t *)session->batch_scratch.data + i * worker_bytes;
        session->workers[i].panels = at;
        session->workers[i].stripe = (float *)(void *)(at += panels_bytes);
        session->workers[i].choices = (uint32_t *)(void *)(at + stripe_bytes);
    }
    return CFLOW_OK;
}
