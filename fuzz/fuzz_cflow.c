/*
 * fuzz_cflow.c - fuzz target of everything that reads header and tables: opening, names, tensors, tokenizer, verification,
 * the schedule that a session would run, and where its weights would lie. An input is a model file.
 */
#include "model_input.h"

#include "model.h"
#include "plan.h"
#include "spans.h"

#include <stdlib.h>
#include <string.h>

const size_t FUZZ_TAIL_BYTES = 0;

/* Layers times experts of each: more takes long, and makes nothing that few do not. */
enum { MOST_SLOTS = 512 };

static void check_split(const cf_op *op, uint32_t threads)
{
    FUZZ_REQUIRE(op->split[0] == 0 && op->split[threads] == op->units);
    for (uint32_t i = 0; i < threads; i++) {
        FUZZ_REQUIRE(op->split[i] <= op->split[i + 1]);
    }
}

static void check_plan(const cf_plan *plan)
{
    uint32_t *pieces = malloc(plan->piece_count * sizeof *pieces);
    FUZZ_REQUIRE(pieces != NULL);
    for (uint32_t i = 0; i < plan->value_count; i++) {
        const cf_value *value = &plan->values[i];
        const size_t room = value->kind == CF_VALUE_SHARED ? plan->shared_bytes : plan->private_bytes;
        FUZZ_REQUIRE(value->kind == CF_VALUE_LOGITS || (value->offset <= room && value->bytes <= room - value->offset));
        FUZZ_REQUIRE(value->born <= value->last_level && value->born < plan->phase_count);
    }
    for (uint32_t i = 0; i < plan->piece_count; i++) {
        const cf_op *op = &plan->ops[plan->pieces[i]];
        size_t needs;
        FUZZ_REQUIRE(op->kind == CF_OP_PIECE && op->level < plan->phase_count);
        FUZZ_REQUIRE(op->tensor == NULL || op->tiles.bytes == op->tensor->bytes);
        check_split(op, plan->options.threads);
        FUZZ_REQUIRE(cf_plan_dependencies(plan, plan->pieces[i], pieces, plan->piece_count, &needs) == CFLOW_OK);
        FUZZ_REQUIRE(needs < plan->piece_count);
    }
    free(pieces);
}

static void make_plan(const cflow_model *model, const cf_plan_options *options)
{
    cf_plan *plan;
    if (cf_plan_create(model, options, &plan) == CFLOW_OK) {
        check_plan(plan);
        cf_plan_destroy(plan);
    } else {
        FUZZ_REQUIRE(plan == NULL && strlen(cflow_last_error()) > 0);
    }
}

static void make_plans(const cflow_model *model)
{
    const uint32_t *p = model->param;
    const uint32_t delay = p[CFLOW_PARAM_DENSE_DELAY] + p[CFLOW_PARAM_EXPERT_DELAY];
    cf_plan_options options = {
        .threads = 1 + delay % 3,
        .dense_delay = p[CFLOW_PARAM_DENSE_DELAY],
        .expert_delay = p[CFLOW_PARAM_EXPERT_DELAY],
        .route = p[CFLOW_PARAM_ROUTE],
        .q8 = 1,
        .isa = CFLOW_ISA_SCALAR,
    };
    make_plan(model, &options);
    options.late_experts = 1;
    options.read_all_experts = 1;
    options.q8 = 0;
    make_plan(model, &options);
}

static void check_spans(const cflow_model *model, int experts)
{
    cf_spans spans;
    FUZZ_REQUIRE(cf_spans_create(model, experts, NULL, &spans) == CFLOW_OK);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const cf_tensor *tensor = &model->tensors[i];
        if (cf_spans_hold(&spans, tensor)) {
            const uint64_t at = cf_spans_position(&spans, tensor);
            FUZZ_REQUIRE(at <= spans.bytes && tensor->bytes <= spans.bytes - at);
            FUZZ_REQUIRE(at % CF_SPAN_ALIGN == tensor->offset % CF_SPAN_ALIGN);
            FUZZ_REQUIRE(cf_spans_after(&spans, at) < spans.count);
        }
    }
    cf_spans_free(&spans);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cflow_model *model = (cflow_model *)&model;
    const char *path = fuzz_file(data, size, 0);
    const int status = cflow_model_open(path, &model);
    if (status != CFLOW_OK) {
        FUZZ_REQUIRE(model == NULL && strncmp(cflow_last_error(), path, strlen(path)) == 0);
        return 0;
    }
    fuzz_walk(model, size);
    const int verified = cflow_model_verify(model, NULL);
    FUZZ_REQUIRE(verified == CFLOW_OK || verified == CFLOW_ERR_CHECKSUM || verified == CFLOW_ERR_NONFINITE ||
                 verified == CFLOW_ERR_FORMAT);
    const uint64_t experts = model->param[CFLOW_PARAM_EXPERTS];
    if (model->param[CFLOW_PARAM_LAYERS] * (experts + 2) <= MOST_SLOTS) {
        make_plans(model);
    }
    check_spans(model, 0);
    check_spans(model, 1);
    cflow_model_close(model);
    return 0;
}
