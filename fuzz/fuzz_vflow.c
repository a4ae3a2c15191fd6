/*
 * fuzz_vflow.c - fuzz target of everything that reads the data of a file: sessions of every residency with any options,
 * the reader of experts and of streamed weights, and tokens of any numbers. An input is a model file in any order, and
 * behind it the bytes that choose what is done with it.
 */
#include "model_input.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    TAIL_RESIDENCY,
    TAIL_FLAGS,
    TAIL_ISA,
    TAIL_READER,
    TAIL_VERIFY,
    TAIL_STREAM,
    TAIL_BUDGET,
    TAIL_DENSE_DELAY,
    TAIL_EXPERT_DELAY,
    TAIL_ROUTE,
    TAIL_LAYOUT,
    TAIL_BATCH,
    TAIL_HINTS,
    TAIL_THREADS,
    TAIL_TOKENS,
    TAIL_ON_DISK,
    TAIL_COUNT
};
const size_t FUZZ_TAIL_BYTES = TAIL_COUNT;

/* What keeps one input to milliseconds. Weights are limited by the length of inputs. */
enum { MOST_SLOTS = 192, MOST_LOGITS = 1 << 16, CONTEXT = 6 };

static void set(cflow_options *options, int option, int64_t value)
{
    FUZZ_REQUIRE(cflow_options_set(options, option, value) == CFLOW_OK);
}

static cflow_options *make_options(const cflow_model *model, const uint8_t *tail)
{
    static const int64_t streams[] = {0, 0, 1, 4096, 1 << 20}, budgets[] = {0, 0, 1 << 20, 8 << 20, 1 << 30};
    cflow_options *options;
    uint32_t context;
    FUZZ_REQUIRE(cflow_options_create(&options) == CFLOW_OK);
    FUZZ_REQUIRE(cflow_model_param(model, CFLOW_PARAM_CONTEXT, &context) == CFLOW_OK);
    set(options, CFLOW_OPTION_CONTEXT, context < CONTEXT ? context : CONTEXT);
    set(options, CFLOW_OPTION_THREADS, 1 + tail[TAIL_THREADS] % 2);
    set(options, CFLOW_OPTION_PIN, 0);
    set(options, CFLOW_OPTION_RESIDENCY, tail[TAIL_RESIDENCY] % 3);
    set(options, CFLOW_OPTION_Q8_ACTIVATIONS, tail[TAIL_FLAGS] & 1);
    set(options, CFLOW_OPTION_FUSED, tail[TAIL_FLAGS] >> 1 & 1);
    set(options, CFLOW_OPTION_KV_F32, tail[TAIL_FLAGS] >> 2 & 1);
    set(options, CFLOW_OPTION_READ_ALL_EXPERTS, tail[TAIL_FLAGS] >> 3 & 1);
    set(options, CFLOW_OPTION_EXPERT_READS, tail[TAIL_FLAGS] >> 4 & 1);
    set(options, CFLOW_OPTION_READ_STREAMS, 1 + (tail[TAIL_FLAGS] >> 5 & 3));
    set(options, CFLOW_OPTION_ISA, cflow_isa_supported(tail[TAIL_ISA] % 4) ? tail[TAIL_ISA] % 4 : CFLOW_ISA_SCALAR);
    set(options, CFLOW_OPTION_READER, tail[TAIL_READER] % 3);
    set(options, CFLOW_OPTION_READ_PATH, tail[TAIL_READER] >> 2 & 1);
    set(options, CFLOW_OPTION_READ_BYTES, 4096 << (tail[TAIL_READER] >> 4) % 13);
    set(options, CFLOW_OPTION_VERIFY, tail[TAIL_VERIFY] % 3);
    set(options, CFLOW_OPTION_STREAM_BYTES, streams[tail[TAIL_STREAM] % 5]);
    set(options, CFLOW_OPTION_RAM_BUDGET, budgets[tail[TAIL_BUDGET] % 5]);
    set(options, CFLOW_OPTION_DENSE_DELAY, tail[TAIL_DENSE_DELAY] % 66 - 1);
    set(options, CFLOW_OPTION_EXPERT_DELAY, tail[TAIL_EXPERT_DELAY] % 66 - 1);
    set(options, CFLOW_OPTION_ROUTE, tail[TAIL_ROUTE] % 3 - 1);
    set(options, CFLOW_OPTION_LAYOUT, tail[TAIL_LAYOUT] % 8 == 1);
    set(options, CFLOW_OPTION_ROWS_PER_PASS, 1 << (tail[TAIL_LAYOUT] >> 4) % 4);
    set(options, CFLOW_OPTION_PROMPT_BATCH, 1 + tail[TAIL_BATCH] % 32);
    set(options, CFLOW_OPTION_EXPERT_HINTS, tail[TAIL_HINTS] % 3);
    set(options, CFLOW_OPTION_EXPERT_ADVICE, tail[TAIL_HINTS] >> 2 & 1);
    set(options, CFLOW_OPTION_PREFETCH_HINT, (tail[TAIL_HINTS] >> 3) % 5);
    return options;
}

/* A slow machine interrupts the wait for a call, which goes on. */
static int finished(cflow_session *session, int status)
{
    while (status == CFLOW_ERR_INTERRUPTED) {
        status = cflow_session_wait(session);
    }
    return status;
}

static int is_of_tokens(int status)
{
    return status == CFLOW_OK || status == CFLOW_ERR_NONFINITE || status == CFLOW_ERR_CHECKSUM ||
           status == CFLOW_ERR_CONTEXT || status == CFLOW_ERR_MEMORY;
}

static uint32_t param_of(const cflow_model *model, int param)
{
    uint32_t value = 0;
    FUZZ_REQUIRE(cflow_model_param(model, param, &value) == CFLOW_OK);
    return value;
}

/* What a token leaves behind: finite logits, experts that exist, weights that lie in the file. */
static void check_token(cflow_session *session, const cflow_model *model, const float *logits)
{
    const uint32_t vocab = param_of(model, CFLOW_PARAM_VOCAB), experts = param_of(model, CFLOW_PARAM_EXPERTS);
    const size_t routes = (size_t)param_of(model, CFLOW_PARAM_LAYERS) * param_of(model, CFLOW_PARAM_EXPERTS_PER_TOKEN);
    for (uint32_t i = 0; i < vocab; i++) {
        FUZZ_REQUIRE(isfinite(logits[i]));
    }
    if (experts > 0) {
        int32_t *chosen = malloc(routes * sizeof *chosen);
        float *weights = malloc(routes * sizeof *weights);
        FUZZ_REQUIRE(chosen != NULL && weights != NULL);
        FUZZ_REQUIRE(cflow_session_routing(session, chosen, weights) == CFLOW_OK);
        for (size_t i = 0; i < routes; i++) {
            FUZZ_REQUIRE(chosen[i] >= 0 && (uint32_t)chosen[i] < experts);
        }
        free(chosen);
        free(weights);
    }
}

static void check_trace(const cflow_session *session, const cflow_model *model)
{
    uint64_t records[64][4];
    size_t total;
    FUZZ_REQUIRE(cflow_session_trace_read(session, 0, 0, 64, &records[0][0], &total) == CFLOW_OK);
    const uint64_t bytes = cflow_model_file_bytes(model);
    for (size_t i = 0; i < total && i < 64; i++) {
        FUZZ_REQUIRE(records[i][0] <= bytes && records[i][1] <= bytes - records[i][0]);
    }
}

static void decode(cflow_session *session, const cflow_model *model, const uint8_t *tail)
{
    const uint32_t vocab = param_of(model, CFLOW_PARAM_VOCAB), experts = param_of(model, CFLOW_PARAM_EXPERTS);
    const size_t count = 1 + tail[TAIL_TOKENS] % 3;
    const int32_t tokens[3] = {(int32_t)(vocab - 1), 0, (int32_t)(tail[TAIL_TOKENS] % vocab)};
    uint64_t counters[CFLOW_COUNTER_COUNT];
    float *logits = malloc(3 * (size_t)vocab * sizeof *logits);
    FUZZ_REQUIRE(logits != NULL);
    const int traced = cflow_session_trace(session, 64) == CFLOW_OK;
    FUZZ_REQUIRE(cflow_session_events(session, 64) == CFLOW_OK);
    int status = finished(session, cflow_session_decode(session, tokens, count, logits));
    FUZZ_REQUIRE(is_of_tokens(status));
    if (status == CFLOW_OK) {
        check_token(session, model, logits);
    }
    if (traced) {
        check_trace(session, model);
    }
    int32_t next[2];
    status = finished(session, cflow_session_generate(session, 0, 2, next, NULL));
    FUZZ_REQUIRE(is_of_tokens(status));
    FUZZ_REQUIRE(status != CFLOW_OK ||
                 (next[0] >= 0 && (uint32_t)next[0] < vocab && next[1] >= 0 && (uint32_t)next[1] < vocab));
    FUZZ_REQUIRE(cflow_session_reset(session) == CFLOW_OK);
    FUZZ_REQUIRE(is_of_tokens(finished(session, cflow_session_decode_all(session, tokens, count, logits))));
    if (tail[TAIL_RESIDENCY] % 3 == CFLOW_RESIDENCY_DIRECT && experts > 0) {
        const size_t per_token =
            (size_t)param_of(model, CFLOW_PARAM_LAYERS) * param_of(model, CFLOW_PARAM_EXPERTS_PER_TOKEN);
        int32_t *wanted = calloc(per_token, sizeof *wanted);
        uint64_t elapsed_ns;
        FUZZ_REQUIRE(wanted != NULL);
        for (size_t i = 0; i < per_token; i++) {
            wanted[i] = (int32_t)((tail[TAIL_TOKENS] + i) % experts);
        }
        FUZZ_REQUIRE(is_of_tokens(finished(session, cflow_session_read_experts(session, wanted, 1, &elapsed_ns))));
        free(wanted);
    }
    FUZZ_REQUIRE(cflow_session_counters(session, counters) == CFLOW_OK);
    free(logits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < TAIL_COUNT) {
        return -1;
    }
    const size_t bytes = size - TAIL_COUNT;
    const uint8_t *tail = data + bytes;
    cflow_model *model;
    if (cflow_model_open(fuzz_file(data, bytes, tail[TAIL_ON_DISK] % 16 == 1), &model) != CFLOW_OK) {
        return 0;
    }
    const uint64_t layers = param_of(model, CFLOW_PARAM_LAYERS), experts = param_of(model, CFLOW_PARAM_EXPERTS);
    if (layers * (experts + 2) <= MOST_SLOTS && param_of(model, CFLOW_PARAM_VOCAB) <= MOST_LOGITS) {
        cflow_options *options = make_options(model, tail);
        cflow_session *session;
        if (cflow_session_create(model, options, &session) == CFLOW_OK) {
            decode(session, model, tail);
            cflow_session_destroy(session);
        } else {
            FUZZ_REQUIRE(session == NULL && strlen(cflow_last_error()) > 0);
        }
        cflow_options_destroy(options);
    }
    cflow_model_close(model);
    return 0;
}
