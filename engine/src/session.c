#include "session.h"

#include "storage.h"

#include <stdlib.h>
#include <string.h>

static size_t pad16(size_t n)
{
    return (n + CF_GROUP_ROWS - 1) / CF_GROUP_ROWS * CF_GROUP_ROWS;
}

/* Options of how weights come from the file are those of one residency, and of what it reads. */
static void resolve_reading(cflow_session *session)
{
    static const int of_direct[] = {
        CFLOW_OPTION_READER,    CFLOW_OPTION_READ_PATH, CFLOW_OPTION_READ_BYTES,
        CFLOW_OPTION_READ_RATE, CFLOW_OPTION_VERIFY,
    };
    int64_t *value = session->options.value;
    const int64_t residency = value[CFLOW_OPTION_RESIDENCY];
    const int has_experts = session->model->param[CFLOW_PARAM_EXPERTS] != 0;
    if (residency != CFLOW_RESIDENCY_DIRECT) {
        value[CFLOW_OPTION_RAM_BUDGET] = value[CFLOW_OPTION_STREAM_BYTES] = 0;
    }
    const int reads_experts = residency == CFLOW_RESIDENCY_DIRECT && has_experts;
    if (!reads_experts) {
        value[CFLOW_OPTION_EXPERT_READS] = cf_option_default(CFLOW_OPTION_EXPERT_READS);
    }
    for (size_t i = 0; i < sizeof of_direct / sizeof of_direct[0]; i++) {
        if (!reads_experts && value[CFLOW_OPTION_STREAM_BYTES] == 0) {
            value[of_direct[i]] = cf_option_default(of_direct[i]);
        }
    }
    if (residency != CFLOW_RESIDENCY_MMAP || !has_experts) {
        value[CFLOW_OPTION_EXPERT_ADVICE] = CFLOW_EXPERT_ADVICE_NONE;
    }
    if (value[CFLOW_OPTION_EXPERT_ADVICE] != CFLOW_EXPERT_ADVICE_NONE) {
        session->readahead_bytes = cf_storage_readahead_bytes(session->model->fd);
    }
}

/* Values that stand for "as in the file" become the file's; combinations that cannot work are refused. */
static int resolve_options(cflow_session *session, const cflow_options *options)
{
    const cflow_model *model = session->model;
    int64_t *value = session->options.value;
    if (options == NULL) {
        cflow_options *defaults;
        const int status = cflow_options_create(&defaults);
        if (status != CFLOW_OK) {
            return status;
        }
        session->options = *defaults;
        cflow_options_destroy(defaults);
    } else {
        session->options = *options;
    }
    const int64_t context = model->param[CFLOW_PARAM_CONTEXT];
    if (value[CFLOW_OPTION_CONTEXT] > context) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "option context is %lld; the model was made for %lld at most",
                       (long long)value[CFLOW_OPTION_CONTEXT], (long long)context);
    }
    static const struct {
        int option, param;
    } from_file[] = {
        {CFLOW_OPTION_CONTEXT, CFLOW_PARAM_CONTEXT},
        {CFLOW_OPTION_DENSE_DELAY, CFLOW_PARAM_DENSE_DELAY},
        {CFLOW_OPTION_EXPERT_DELAY, CFLOW_PARAM_EXPERT_DELAY},
        {CFLOW_OPTION_ROUTE, CFLOW_PARAM_ROUTE},
    };
    for (size_t i = 0; i < sizeof from_file / sizeof from_file[0]; i++) {
        if (value[from_file[i].option] < 0) {
            value[from_file[i].option] = model->param[from_file[i].param];
        }
    }
    if (model->param[CFLOW_PARAM_ARCHITECTURE] != CFLOW_ARCH_DELAYED &&
        (value[CFLOW_OPTION_DENSE_DELAY] != 0 || value[CFLOW_OPTION_EXPERT_DELAY] != 0 ||
         value[CFLOW_OPTION_ROUTE] != CFLOW_ROUTE_CURRENT)) {
        return cf_fail(CFLOW_ERR_ARGUMENT,
                       "options dense_delay, expert_delay and route need a model of architecture 0");
    }
    if (!cflow_isa_supported((int)value[CFLOW_OPTION_ISA])) {
        return cf_fail(CFLOW_ERR_UNSUPPORTED, "option isa is %s, which this CPU does not have",
                       cflow_isa_name((int)value[CFLOW_OPTION_ISA]));
    }
    if (value[CFLOW_OPTION_LAYOUT] == CFLOW_LAYOUT_ROW_MAJOR && value[CFLOW_OPTION_RESIDENCY] != CFLOW_RESIDENCY_COPY) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "option layout: row-major needs option residency = copy");
    }
#ifdef CFLOW_MUTANT_READ_ALL_EXPERTS
    value[CFLOW_OPTION_READ_ALL_EXPERTS] = 1;
#endif
    /* Reported as they act: what the model has not cannot be delayed or read. */
    if (model->param[CFLOW_PARAM_EXPERTS] == 0) {
        value[CFLOW_OPTION_READ_ALL_EXPERTS] = 0;
        value[CFLOW_OPTION_EXPERT_HINTS] = CFLOW_EXPERT_HINTS_NONE;
        value[CFLOW_OPTION_EXPERT_DELAY] = 0;
        value[CFLOW_OPTION_ROUTE] = CFLOW_ROUTE_CURRENT;
    }
    if (model->param[CFLOW_PARAM_FFN_HIDDEN] == 0) {
        value[CFLOW_OPTION_DENSE_DELAY] = 0;
    }
    if (value[CFLOW_OPTION_LAYOUT] == CFLOW_LAYOUT_ROW_MAJOR ||
        value[CFLOW_OPTION_RESIDENCY] == CFLOW_RESIDENCY_DIRECT) {
        value[CFLOW_OPTION_PROMPT_BATCH] = 1;
        value[CFLOW_OPTION_EXPERT_HINTS] = CFLOW_EXPERT_HINTS_NONE;
    }
    if (value[CFLOW_OPTION_EXPERT_HINTS] == CFLOW_EXPERT_HINTS_NONE) {
        value[CFLOW_OPTION_EXPERT_HINT_STRIDE] = cf_option_default(CFLOW_OPTION_EXPERT_HINT_STRIDE);
    } else {
        value[CFLOW_OPTION_PROMPT_BATCH] = 1;
    }
    resolve_reading(session);
    if (value[CFLOW_OPTION_PROMPT_BATCH] > value[CFLOW_OPTION_CONTEXT]) {
        value[CFLOW_OPTION_PROMPT_BATCH] = value[CFLOW_OPTION_CONTEXT];
    }
    session->context = (uint32_t)value[CFLOW_OPTION_CONTEXT];
    session->batch = (uint32_t)value[CFLOW_OPTION_PROMPT_BATCH];
    return CFLOW_OK;
}

static int make_plan(cflow_session *session)
{
    const int64_t *value = session->options.value;
    const cf_plan_options options = {
        .threads = (uint32_t)value[CFLOW_OPTION_THREADS],
        .dense_delay = (uint32_t)value[CFLOW_OPTION_DENSE_DELAY],
        .expert_delay = (uint32_t)value[CFLOW_OPTION_EXPERT_DELAY],
        .route = (uint32_t)value[CFLOW_OPTION_ROUTE],
        .q8 = value[CFLOW_OPTION_Q8_ACTIVATIONS] != 0,
        .isa = (int)value[CFLOW_OPTION_ISA],
        .read_all_experts = value[CFLOW_OPTION_READ_ALL_EXPERTS] != 0,
        .late_experts = value[CFLOW_OPTION_RESIDENCY] == CFLOW_RESIDENCY_DIRECT,
        .rows_per_pass =
            value[CFLOW_OPTION_LAYOUT] == CFLOW_LAYOUT_ROW_MAJOR ? (uint32_t)value[CFLOW_OPTION_ROWS_PER_PASS] : 0,
    };
    /* Before the plan, which asks for the kernel of every matrix. */
    for (uint32_t i = 0; options.rows_per_pass > 0 && i < session->model->tensor_count; i++) {
        const cf_tensor *tensor = &session->model->tensors[i];
        if (!cf_tensor_is_vector(tensor) && cf_plan_kernel(&options, tensor->role, tensor->type) == NULL) {
            return cf_fail(CFLOW_ERR_UNSUPPORTED, "option layout: row-major kernels exist for q4_0; tensor %s is %s",
                           tensor->name, cflow_type_name((int)tensor->type));
        }
    }
    return cf_plan_create(session->model, &options, &session->plan);
}

static int make_memory(cflow_session *session)
{
    const uint32_t *p = session->model->param;
    const size_t threads = (size_t)session->options.value[CFLOW_OPTION_THREADS];
    const size_t head_dim = p[CFLOW_PARAM_HEAD_DIM];
    const size_t hidden = p[CFLOW_PARAM_FFN_HIDDEN] > p[CFLOW_PARAM_EXPERT_HIDDEN] ? p[CFLOW_PARAM_FFN_HIDDEN]
                                                                                   : p[CFLOW_PARAM_EXPERT_HIDDEN];
    const size_t scratch_bytes = cf_pad64(2 * pad16(hidden) * sizeof(float));
    const size_t scores_bytes = cf_pad64(CF_QUERIES * cf_scores_stride(session->context) * sizeof(float));
    const size_t queries_bytes = cf_pad64((CF_QUERIES + 3) * head_dim * sizeof(float));
    const size_t rotation_bytes = cf_pad64(head_dim * sizeof(float));
    /* Pages of its own for each worker. */
    int huge;
    const size_t worker_bytes = cf_memory_whole_pages(
        session->plan->private_bytes + scratch_bytes + scores_bytes + queries_bytes + rotation_bytes, &huge);

    session->kv_ops =
        cf_kv_ops_for((int)session->options.value[CFLOW_OPTION_ISA], session->options.value[CFLOW_OPTION_KV_F32] != 0);
    /* layers <= 2^12, kv_heads <= 2^14, context <= 2^24, head_dim <= 2^12, 4 bytes: may pass 2^64 */
    size_t kv_bytes;
    if (__builtin_mul_overflow((size_t)p[CFLOW_PARAM_LAYERS] * p[CFLOW_PARAM_KV_HEADS], (size_t)session->context,
                               &kv_bytes) ||
        __builtin_mul_overflow(kv_bytes, head_dim * session->kv_ops->element_bytes, &kv_bytes) ||
        kv_bytes > SIZE_MAX / 4) {
        return cf_fail(CFLOW_ERR_MEMORY, "the KV cache of %u positions overflows the address space", session->context);
    }
    session->kv_half_bytes = cf_pad64(kv_bytes);
    /* The kernel would grant it and end some process later; a file may ask for any context. */
    const uint64_t others =
        session->plan->shared_bytes + session->plan->logits_bytes + (uint64_t)worker_bytes * threads;
    const uint64_t all = 2 * session->kv_half_bytes + others, most = cf_memory_most_bytes();
    if (all > most) {
        return cf_fail(CFLOW_ERR_MEMORY,
                       "a session of %u positions needs %llu bytes, of them %llu for keys and values; this process may "
                       "take %llu: option context takes fewer positions",
                       session->context, (unsigned long long)all, (unsigned long long)(2 * session->kv_half_bytes),
                       (unsigned long long)most);
    }
    int status = cf_memory_map(&session->kv, 2 * session->kv_half_bytes, 1, "KV cache", &session->held_bytes);
    if (status == CFLOW_OK) {
        status = cf_memory_map(&session->private_arenas, worker_bytes * threads, huge, "working memory of the threads",
                               &session->held_bytes);
    }
    if (status == CFLOW_OK) {
        status = cf_memory_map(&session->shared_arena, session->plan->shared_bytes + session->plan->logits_bytes, 1,
                               "shared working memory", &session->held_bytes);
    }
    if (status != CFLOW_OK) {
        return status;
    }
    session->worker_bytes = worker_bytes;
    session->workers = aligned_alloc(64, threads * sizeof *session->workers);
    const size_t routes = (size_t)p[CFLOW_PARAM_LAYERS] * p[CFLOW_PARAM_EXPERTS_PER_TOKEN];
    session->residual_count =
        (size_t)p[CFLOW_PARAM_LAYERS] * (p[CFLOW_PARAM_ARCHITECTURE] == CFLOW_ARCH_TWO_STREAM ? 2 : 1);
    session->routing = calloc(routes + 1, sizeof *session->routing);
    session->routing_weights = calloc(routes + 1, sizeof *session->routing_weights);
    session->residual_norms = calloc(session->residual_count, sizeof *session->residual_norms);
    if (session->workers == NULL || session->routing == NULL || session->routing_weights == NULL ||
        session->residual_norms == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "out of memory for a session of %zu threads", threads);
    }
    memset(session->workers, 0, threads * sizeof *session->workers);
    for (size_t i = 0; i < threads; i++) {
        uint8_t *at = (uint8_t *)session->private_arenas.data + i * worker_bytes;
        session->workers[i].arena = at;
        session->workers[i].scratch = (float *)(void *)(at += session->plan->private_bytes);
        session->workers[i].scores = (float *)(void *)(at += scratch_bytes);
        session->workers[i].queries = (float *)(void *)(at += scores_bytes);
        session->workers[i].rotation = (float *)(void *)(at + queries_bytes);
    }
    return cf_batch_memory(session);
}

int cflow_session_create(const cflow_model *model, const cflow_options *options, cflow_session **session_out)
{
    if (model == NULL || session_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_create: NULL argument");
    }
    *session_out = NULL;
    cflow_session *session = calloc(1, sizeof *session);
    if (session == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "cflow_session_create: out of memory");
    }
    session->model = model;
    int status = resolve_options(session, options);
    if (status == CFLOW_OK) {
        status = make_plan(session);
    }
    if (status == CFLOW_OK) {
        status = cf_residency_map(session);
    }
    if (status == CFLOW_OK) {
        status = make_memory(session);
    }
    if (status == CFLOW_OK) {
        status = cflow_pool_create((int)session->options.value[CFLOW_OPTION_THREADS],
                                   (int)session->options.value[CFLOW_OPTION_PIN], &session->pool);
    }
    if (status == CFLOW_OK) {
        session->options.value[CFLOW_OPTION_PIN] &= cf_pool_pinned(session->pool);
        cf_residency_touch(session);
    }
    if (status == CFLOW_OK && session->options.value[CFLOW_OPTION_RESIDENCY] == CFLOW_RESIDENCY_COPY) {
        status = cf_residency_copy(session);
    }
    if (status == CFLOW_OK && session->options.value[CFLOW_OPTION_RESIDENCY] == CFLOW_RESIDENCY_DIRECT) {
        status = cf_residency_direct(session);
    }
    if (status == CFLOW_OK && session->options.value[CFLOW_OPTION_LAYOUT] == CFLOW_LAYOUT_ROW_MAJOR) {
        status = cf_residency_row_major(session);
    }
    if (status != CFLOW_OK) {
        cflow_session_destroy(session);
        return status;
    }
    *session_out = session;
    return CFLOW_OK;
}

static void free_traces(cflow_session *session)
{
    for (int i = 0; session->workers != NULL && i < (int)session->options.value[CFLOW_OPTION_THREADS]; i++) {
        free(session->workers[i].trace);
        session->workers[i].trace = NULL;
        session->workers[i].trace_count = 0;
    }
    session->trace_capacity = 0;
}

void cflow_session_destroy(cflow_session *session)
{
    if (session == NULL) {
        return;
    }
    cflow_pool_destroy(session->pool);
    free_traces(session);
    cf_events_close(session);
    cf_experts_destroy(session->experts);
    cf_stream_destroy(session->stream);
    cf_reader_destroy(session->reader);
    cf_plan_destroy(session->plan);
    cf_memory_unmap(&session->copied);
    cf_memory_unmap(&session->row_major);
    cf_memory_unmap(&session->kv);
    cf_memory_unmap(&session->private_arenas);
    cf_memory_unmap(&session->shared_arena);
    cf_memory_unmap(&session->batch_arena);
    cf_memory_unmap(&session->batch_scratch);
    free(session->place);
    free(session->row_major_offset);
    free(session->workers);
    free(session->routing);
    free(session->routing_weights);
    free(session->residual_norms);
    free(session);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static int refuse_busy(const cflow_session *session, const char *function)
{
    return session->busy
               ? cf_fail(CFLOW_ERR_ARGUMENT, "%s: a call is in progress; cflow_session_wait() first", function)
               : CFLOW_OK;
}

/* For what describes the last token: there must be one, and it must have reached its end. */
static int refuse_incomplete(const cflow_session *session, const char *function)
{
    const int status = refuse_busy(session, function);
    if (status != CFLOW_OK || session->has_logits) {
        return status;
    }
    return cf_fail(CFLOW_ERR_ARGUMENT, "%s: no token yet, or the last call did not end well", function);
}

int cflow_session_wait(cflow_session *session)
{
    if (session == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_wait: session is NULL");
    }
    if (!session->busy) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_wait: no call is in progress");
    }
    const int waiting = cf_pool_wait(session->pool);
    if (waiting != CFLOW_OK) {
        return waiting;
    }
    session->busy = 0;
    atomic_store(&session->cancel, 0);
    if (session->options.value[CFLOW_OPTION_RESIDENCY] != CFLOW_RESIDENCY_COPY) {
        /* 0 where it cannot be told, for want of a descriptor, say. */
        const uint64_t now_bytes = cf_storage_read_bytes();
        session->device_bytes += now_bytes > session->device_start_bytes ? now_bytes - session->device_start_bytes : 0;
    }
    if (session->job_status == CFLOW_ERR_CANCELLED) {
        return session->read_experts != NULL ? cf_fail(CFLOW_ERR_CANCELLED, "reading of experts cancelled")
                                             : cf_fail(CFLOW_ERR_CANCELLED, "cancelled after %zu of %zu tokens",
                                                       session->done, session->feed_count);
    }
    if (session->job_status != CFLOW_OK && session->job_status != CFLOW_ERR_NONFINITE) {
        return session->read_experts != NULL
                   ? cf_fail(session->job_status, "%s", session->job_message)
                   : cf_fail(session->job_status, "token at position %u: %s", session->position, session->job_message);
    }
    if (session->read_experts != NULL) {
        return CFLOW_OK;
    }
    if (session->job_status == CFLOW_ERR_NONFINITE) {
        if (session->job_bad_layer == CF_NONE) {
            return cf_fail(CFLOW_ERR_NONFINITE, "token at position %u: the head gave a logit that is not finite",
                           session->position);
        }
        if (session->job_bad_layer == session->model->param[CFLOW_PARAM_LAYERS]) {
            return cf_fail(CFLOW_ERR_NONFINITE, "token at position %u: the output of the last layer, %u, is not finite",
                           session->position, session->job_bad_layer - 1);
        }
        return cf_fail(
            CFLOW_ERR_NONFINITE,
            "token at position %u: a vector whose mean square is not finite is normalised in layer %u of %u (its "
            "input, or what its attention made of it)",
            session->position, session->job_bad_layer, session->model->param[CFLOW_PARAM_LAYERS]);
    }
    session->has_logits = 1;
    return session->logits_out == NULL ? CFLOW_OK : cflow_session_logits(session, session->logits_out);
}

static int run_job(cflow_session *session, cf_job_fn job)
{
    session->job_status = CFLOW_OK;
    session->job_bad_layer = CF_NONE;
    if (session->options.value[CFLOW_OPTION_RESIDENCY] != CFLOW_RESIDENCY_COPY) {
        session->device_start_bytes = cf_storage_read_bytes();
    }
    atomic_store(&session->abort, 0);
    atomic_store(&session->first_in_ns, 0);
    session->busy = 1;
    cf_pool_start(session->pool, job, session);
    return cflow_session_wait(session);
}

static int start(cflow_session *session, size_t n)
{
    if (n > session->context - session->position) {
        return cf_fail(CFLOW_ERR_CONTEXT, "%zu tokens at position %u do not fit in the context of %u", n,
                       session->position, session->context);
    }
    session->feed_count = n;
    session->done = 0;
    session->has_logits = 0;
    session->read_experts = NULL;
    return run_job(session, cf_exec_job);
}

static int check_token(const cflow_session *session, int32_t token, size_t index)
{
    if (token < 0 || (uint32_t)token >= session->model->param[CFLOW_PARAM_VOCAB]) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "token %zu is %d; allowed: 0 to %u", index, token,
                       session->model->param[CFLOW_PARAM_VOCAB] - 1);
    }
    return CFLOW_OK;
}

/* Of the two that follow; of_last, of_all: where logits go, or NULL. */
static int decode(cflow_session *session, const char *function, const int32_t *tokens, size_t n, float *of_last,
                  float *of_all)
{
    int status = refuse_busy(session, function);
    for (size_t i = 0; i < n && status == CFLOW_OK; i++) {
        status = check_token(session, tokens[i], i);
    }
    if (status != CFLOW_OK) {
        return status;
    }
    session->generate = 0;
    session->feed = tokens;
    session->logits_out = of_last;
    session->all_logits = of_all;
    session->tokens_out = NULL;
    session->ns_out = NULL;
    return start(session, n);
}

int cflow_session_decode(cflow_session *session, const int32_t *tokens, size_t n, float *logits_out)
{
    if (session == NULL || tokens == NULL || n == 0) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_decode: NULL argument or no tokens");
    }
    return decode(session, "cflow_session_decode", tokens, n, logits_out, NULL);
}

int cflow_session_decode_all(cflow_session *session, const int32_t *tokens, size_t n, float *logits_out)
{
    if (session == NULL || tokens == NULL || n == 0 || logits_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_decode_all: NULL argument or no tokens");
    }
    return decode(session, "cflow_session_decode_all", tokens, n, NULL, logits_out);
}

int cflow_session_generate(cflow_session *session, int32_t token, size_t n, int32_t *tokens_out, uint64_t *ns_out)
{
    if (session == NULL || tokens_out == NULL || n == 0) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_generate: NULL argument or n = 0");
    }
    int status = refuse_busy(session, "cflow_session_generate");
    if (status == CFLOW_OK) {
        status = check_token(session, token, 0);
    }
    if (status != CFLOW_OK) {
        return status;
    }
    session->generate = 1;
    session->token = token;
    session->want_logits = 1;
    session->logits_out = session->all_logits = NULL;
    session->tokens_out = tokens_out;
    session->ns_out = ns_out;
    return start(session, n);
}

int cflow_session_read_experts(cflow_session *session, const int32_t *experts, size_t tokens, uint64_t *ns_out)
{
    if (session == NULL || experts == NULL || tokens == 0 || ns_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_read_experts: NULL argument or no tokens");
    }
    if (session->experts == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT,
                       "cflow_session_read_experts: needs option residency = direct and a model with experts");
    }
    const int status = refuse_busy(session, "cflow_session_read_experts");
    if (status != CFLOW_OK) {
        return status;
    }
    const uint32_t *p = session->model->param;
    const size_t per_token = (size_t)p[CFLOW_PARAM_LAYERS] * p[CFLOW_PARAM_EXPERTS_PER_TOKEN];
    if (tokens > SIZE_MAX / per_token) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_read_experts: %zu tokens are too many", tokens);
    }
    for (size_t i = 0; i < tokens * per_token; i++) {
        if (experts[i] < 0 || (uint32_t)experts[i] >= p[CFLOW_PARAM_EXPERTS]) {
            return cf_fail(CFLOW_ERR_ARGUMENT, "expert %zu is %d; allowed: 0 to %u", i, experts[i],
                           p[CFLOW_PARAM_EXPERTS] - 1);
        }
    }
    session->read_experts = experts;
    session->read_rows = tokens * p[CFLOW_PARAM_LAYERS];
    session->read_ns_out = ns_out;
    return run_job(session, cf_exec_read_job);
}

void cflow_session_cancel(cflow_session *session)
{
    if (session != NULL) {
        atomic_store_explicit(&session->cancel, 1, memory_order_relaxed);
    }
}

int cflow_session_reset(cflow_session *session)
{
    if (session == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_reset: session is NULL");
    }
    const int status = refuse_busy(session, "cflow_session_reset");
    if (status == CFLOW_OK) {
        session->position = 0;
        session->has_logits = 0;
    }
    return status;
}

/* ---- reading a session ------------------------------------------------------------------------------------------- */

int cflow_session_logits(const cflow_session *session, float *logits_out)
{
    if (session == NULL || logits_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_logits: NULL argument");
    }
    const int status = refuse_incomplete(session, "cflow_session_logits");
    if (status != CFLOW_OK) {
        return status;
    }
    memcpy(logits_out, (const uint8_t *)session->shared_arena.data + session->plan->shared_bytes,
           session->model->param[CFLOW_PARAM_VOCAB] * sizeof *logits_out);
    return CFLOW_OK;
}

int cflow_session_option(const cflow_session *session, int option, int64_t *value_out)
{
    if (session == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_option: session is NULL");
    }
    return cflow_options_get(&session->options, option, value_out);
}

int cflow_session_position(const cflow_session *session, uint32_t *position_out)
{
    if (session == NULL || position_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_position: NULL argument");
    }
    const int status = refuse_busy(session, "cflow_session_position");
    if (status != CFLOW_OK) {
        return status;
    }
    *position_out = session->position;
    return CFLOW_OK;
}

int cflow_session_worker_cpu(const cflow_session *session, int thread, int *cpu_out)
{
    return cflow_pool_worker_cpu(session == NULL ? NULL : session->pool, thread, cpu_out);
}

int cflow_session_run_delay(const cflow_session *session, int thread, uint64_t *delay_ns_out)
{
    return cflow_pool_run_delay(session == NULL ? NULL : session->pool, thread, delay_ns_out);
}

int cflow_session_memory(const cflow_session *session, uint64_t *kv_bytes_out, uint64_t *total_bytes_out)
{
    if (session == NULL || kv_bytes_out == NULL || total_bytes_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_memory: NULL argument");
    }
    *kv_bytes_out = session->kv.bytes;
    *total_bytes_out = cf_residency_memory(session);
    return CFLOW_OK;
}

static const char *const COUNTER_NAMES[CFLOW_COUNTER_COUNT] = {
    "tokens",       "wall_ns",         "attention_bytes", "dense_bytes",  "expert_bytes", "router_bytes",
    "head_bytes",   "embedding_bytes", "kv_bytes",        "attention_ns", "dense_ns",     "expert_ns",
    "router_ns",    "head_ns",         "vector_ns",       "barrier_ns",   "phases",       "io_wait_ns",
    "device_bytes", "asked_bytes",     "read_ns",         "expert_hits",  "hints",
};

const char *cflow_counter_name(int counter)
{
    return counter >= 0 && counter < CFLOW_COUNTER_COUNT ? COUNTER_NAMES[counter] : NULL;
}

int cflow_session_counters(const cflow_session *session, uint64_t *values_out)
{
    if (session == NULL || values_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_counters: NULL argument");
    }
    const int status = refuse_busy(session, "cflow_session_counters");
    if (status != CFLOW_OK) {
        return status;
    }
    memset(values_out, 0, CFLOW_COUNTER_COUNT * sizeof *values_out);
    for (int i = 0; i < cf_pool_threads(session->pool); i++) {
        for (int k = 0; k < CFLOW_COUNTER_COUNT; k++) {
            values_out[k] += session->workers[i].counters[k];
        }
    }
    values_out[CFLOW_COUNTER_TOKENS] = session->tokens;
    values_out[CFLOW_COUNTER_WALL_NS] = session->wall_ns;
    values_out[CFLOW_COUNTER_PHASES] = session->phases;
    values_out[CFLOW_COUNTER_DEVICE_BYTES] = session->device_bytes;
    if (session->reader != NULL) {
        cf_reader_totals totals;
        cf_reader_totals_get(session->reader, &totals);
        values_out[CFLOW_COUNTER_IO_WAIT_NS] = totals.wait_ns - session->reader_start.wait_ns;
        values_out[CFLOW_COUNTER_ASKED_BYTES] = totals.asked_bytes - session->reader_start.asked_bytes;
        values_out[CFLOW_COUNTER_READ_NS] = totals.read_ns - session->reader_start.read_ns;
    }
    if (session->experts != NULL) {
        values_out[CFLOW_COUNTER_EXPERT_HITS] = cf_experts_hits(session->experts) - session->hits_start;
    }
    return CFLOW_OK;
}

int cflow_session_counters_reset(cflow_session *session)
{
    if (session == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_counters_reset: session is NULL");
    }
    const int status = refuse_busy(session, "cflow_session_counters_reset");
    if (status != CFLOW_OK) {
        return status;
    }
    for (int i = 0; i < cf_pool_threads(session->pool); i++) {
        memset(session->workers[i].counters, 0, sizeof session->workers[i].counters);
    }
    session->tokens = session->wall_ns = session->phases = session->device_bytes = 0;
    if (session->reader != NULL) {
        cf_reader_totals_get(session->reader, &session->reader_start);
    }
    if (session->experts != NULL) {
        session->hits_start = cf_experts_hits(session->experts);
    }
    return CFLOW_OK;
}

int cflow_session_routing(const cflow_session *session, int32_t *experts_out, float *weights_out)
{
    if (session == NULL || experts_out == NULL || weights_out == NULL ||
        session->model->param[CFLOW_PARAM_EXPERTS] == 0) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_routing: NULL argument, or the model has no experts");
    }
    const int status = refuse_incomplete(session, "cflow_session_routing");
    if (status != CFLOW_OK) {
        return status;
    }
    const size_t count =
        (size_t)session->model->param[CFLOW_PARAM_LAYERS] * session->model->param[CFLOW_PARAM_EXPERTS_PER_TOKEN];
    memcpy(experts_out, session->routing, count * sizeof *experts_out);
    memcpy(weights_out, session->routing_weights, count * sizeof *weights_out);
    return CFLOW_OK;
}

int cflow_session_residual_norms(const cflow_session *session, float *norms_out, size_t count)
{
    if (session == NULL || norms_out == NULL || count != session->residual_count) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_residual_norms: NULL argument, or count is %zu and not %zu",
                       count, session == NULL ? 0 : session->residual_count);
    }
    const int status = refuse_incomplete(session, "cflow_session_residual_norms");
    if (status == CFLOW_OK) {
        memcpy(norms_out, session->residual_norms, count * sizeof *norms_out);
    }
    return status;
}

int cflow_session_trace(cflow_session *session, size_t capacity)
{
    if (session == NULL || session->busy || capacity > SIZE_MAX / (CF_TRACE_FIELDS * sizeof(uint64_t))) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_trace: session is NULL or busy, or capacity is too large");
    }
    if (session->options.value[CFLOW_OPTION_LAYOUT] != CFLOW_LAYOUT_TILED) {
        return cf_fail(CFLOW_ERR_UNSUPPORTED, "cflow_session_trace: file offsets exist for the tiled layout only");
    }
    free_traces(session);
    for (int i = 0; capacity > 0 && i < cf_pool_threads(session->pool); i++) {
        session->workers[i].trace = malloc(capacity * CF_TRACE_FIELDS * sizeof(uint64_t));
        if (session->workers[i].trace == NULL) {
            free_traces(session);
            return cf_fail(CFLOW_ERR_MEMORY, "out of memory for a trace of %zu records per thread", capacity);
        }
    }
    session->trace_capacity = capacity;
    return CFLOW_OK;
}

int cflow_session_trace_read(const cflow_session *session, int thread, size_t first, size_t count,
                             uint64_t *records_out, size_t *total_out)
{
    if (session == NULL || total_out == NULL || (records_out == NULL && count > 0) || thread < 0 ||
        thread >= cf_pool_threads(session->pool)) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_session_trace_read: NULL argument or worker %d out of range", thread);
    }
    const int status = refuse_busy(session, "cflow_session_trace_read");
    if (status != CFLOW_OK) {
        return status;
    }
    const cf_worker *worker = &session->workers[thread];
    const size_t kept = worker->trace_count < session->trace_capacity ? worker->trace_count : session->trace_capacity;
    *total_out = worker->trace_count;
    if (first < kept && count > 0) {
        const size_t copied = kept - first < count ? kept - first : count;
        memcpy(records_out, worker->trace + first * CF_TRACE_FIELDS, copied * CF_TRACE_FIELDS * sizeof *records_out);
    }
    return CFLOW_OK;
}
