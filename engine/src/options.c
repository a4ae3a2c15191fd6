#include "error.h"
#include "session.h"

#include <stdlib.h>

typedef struct option_rule {
    const char *name;
    int64_t low;
    int64_t high;
    int64_t initial;
} option_rule;

static const option_rule OPTION_RULES[CFLOW_OPTION_COUNT] = {
    [CFLOW_OPTION_ISA] = {"isa", 0, CFLOW_ISA_COUNT - 1, 0},
    [CFLOW_OPTION_THREADS] = {"threads", 1, CF_MAX_THREADS, 1},
    [CFLOW_OPTION_PIN] = {"pin", 0, 1, 1},
    [CFLOW_OPTION_Q8_ACTIVATIONS] = {"q8_activations", 0, 1, 1},
    [CFLOW_OPTION_FUSED] = {"fused", 0, 1, 1},
    [CFLOW_OPTION_LAYOUT] = {"layout", 0, CFLOW_LAYOUT_ROW_MAJOR, CFLOW_LAYOUT_TILED},
    [CFLOW_OPTION_ROWS_PER_PASS] = {"rows_per_pass", 1, 8, 1},
    [CFLOW_OPTION_RESIDENCY] = {"residency", 0, CFLOW_RESIDENCY_DIRECT, CFLOW_RESIDENCY_MMAP},
    [CFLOW_OPTION_PREFETCH_HINT] = {"prefetch_hint", 0, CFLOW_PREFETCH_NTA, CFLOW_PREFETCH_NONE},
    [CFLOW_OPTION_PREFETCH_BYTES] = {"prefetch_bytes", 64, 1 << 20, CF_PREFETCH_DEFAULT_BYTES},
    [CFLOW_OPTION_KV_F32] = {"kv_f32", 0, 1, 0},
    [CFLOW_OPTION_CONTEXT] = {"context", -1, 1 << 24, -1},
    [CFLOW_OPTION_DENSE_DELAY] = {"dense_delay", -1, 64, -1},
    [CFLOW_OPTION_EXPERT_DELAY] = {"expert_delay", -1, 64, -1},
    [CFLOW_OPTION_ROUTE] = {"route", -1, CFLOW_ROUTE_PRE_DENSE, -1},
    [CFLOW_OPTION_READ_ALL_EXPERTS] = {"read_all_experts", 0, 1, 0},
    [CFLOW_OPTION_READ_STREAMS] = {"read_streams", 1, CF_MAX_LANES, CF_MAX_LANES},
    [CFLOW_OPTION_PROMPT_BATCH] = {"prompt_batch", 1, CF_MAX_BATCH, CF_MAX_BATCH},
    [CFLOW_OPTION_EXPERT_READS] = {"expert_reads", 0, CFLOW_EXPERT_READS_SYNC, CFLOW_EXPERT_READS_STAGED},
    [CFLOW_OPTION_READER] = {"reader", 0, CFLOW_READER_THREADS, CFLOW_READER_AUTO},
    [CFLOW_OPTION_READ_PATH] = {"read_path", 0, CFLOW_READ_PATH_BUFFERED, CFLOW_READ_PATH_DIRECT},
    [CFLOW_OPTION_READ_BYTES] = {"read_bytes", CF_READ_ALIGN, CF_REQUEST_BYTES_MAX, 1 << 20},
    [CFLOW_OPTION_READ_RATE] = {"read_rate", 0, INT64_C(1) << 40, 0},
    [CFLOW_OPTION_VERIFY] = {"verify", 0, CFLOW_VERIFY_NEVER, CFLOW_VERIFY_FIRST},
    [CFLOW_OPTION_RAM_BUDGET] = {"ram_budget", 0, INT64_MAX, 0},
    [CFLOW_OPTION_EXPERT_ADVICE] = {"expert_advice", 0, CFLOW_EXPERT_ADVICE_WILLNEED, CFLOW_EXPERT_ADVICE_NONE},
    [CFLOW_OPTION_STREAM_BYTES] = {"stream_bytes", 0, INT64_C(1) << 40, 0},
    [CFLOW_OPTION_EXPERT_HINTS] = {"expert_hints", 0, CFLOW_EXPERT_HINTS_CONDITIONAL, CFLOW_EXPERT_HINTS_NONE},
    [CFLOW_OPTION_EXPERT_HINT_STRIDE] = {"expert_hint_stride", 64, 4096, 64},
};

int64_t cf_option_default(int option)
{
    return OPTION_RULES[option].initial;
}

const char *cflow_option_name(int option)
{
    return option >= 0 && option < CFLOW_OPTION_COUNT ? OPTION_RULES[option].name : NULL;
}

int cflow_options_create(cflow_options **options_out)
{
    if (options_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_options_create: options_out is NULL");
    }
    cflow_options *options = malloc(sizeof *options);
    if (options == NULL) {
        *options_out = NULL;
        return cf_fail(CFLOW_ERR_MEMORY, "cflow_options_create: out of memory");
    }
    for (int i = 0; i < CFLOW_OPTION_COUNT; i++) {
        options->value[i] = OPTION_RULES[i].initial;
    }
    options->value[CFLOW_OPTION_ISA] = cflow_isa_default();
    options->value[CFLOW_OPTION_THREADS] = cflow_threads_default();
    *options_out = options;
    return CFLOW_OK;
}

void cflow_options_destroy(cflow_options *options)
{
    free(options);
}

int cflow_options_set(cflow_options *options, int option, int64_t value)
{
    if (options == NULL || option < 0 || option >= CFLOW_OPTION_COUNT) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_options_set: options is NULL or option %d is unknown", option);
    }
    const option_rule *rule = &OPTION_RULES[option];
    if (value < rule->low || value > rule->high) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "option %s is %lld; allowed: %lld to %lld", rule->name, (long long)value,
                       (long long)rule->low, (long long)rule->high);
    }
    if (option == CFLOW_OPTION_ROWS_PER_PASS && (value & (value - 1)) != 0) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "option rows_per_pass is %lld; allowed: 1, 2, 4, 8", (long long)value);
    }
    if (option == CFLOW_OPTION_READ_BYTES && value % CF_READ_ALIGN != 0) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "option read_bytes is %lld; allowed: multiples of %d", (long long)value,
                       CF_READ_ALIGN);
    }
    if (option == CFLOW_OPTION_EXPERT_HINT_STRIDE && value != rule->low && value != rule->high) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "option expert_hint_stride is %lld; allowed: 64, 4096", (long long)value);
    }
    if (option == CFLOW_OPTION_CONTEXT && value == 0) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "option context is 0; allowed: -1 (the model's) or 1 and more");
    }
    options->value[option] = value;
    return CFLOW_OK;
}

int cflow_options_get(const cflow_options *options, int option, int64_t *value_out)
{
    if (options == NULL || value_out == NULL || option < 0 || option >= CFLOW_OPTION_COUNT) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_options_get: NULL argument or option %d is unknown", option);
    }
    *value_out = options->value[option];
    return CFLOW_OK;
}
