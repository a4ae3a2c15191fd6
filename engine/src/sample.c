/* sample.c - draws a token from logits. */
#include "error.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>

typedef struct candidate {
    float logit;
    uint32_t id;
} candidate;

/* Larger logit first, then the lower id: a total order, so that equal logits sort alike everywhere. */
static int compare_candidates(const void *a, const void *b)
{
    const candidate *left = a, *right = b;
    if (left->logit != right->logit) {
        return left->logit < right->logit ? 1 : -1;
    }
    return (left->id > right->id) - (left->id < right->id);
}

static double draw_unit(uint64_t *state)
{
    const uint64_t bits = cf_splitmix64(*state, 0);
    *state += 0x9E3779B97F4A7C15u;
    return (double)(bits >> 11) * 0x1p-53;
}

int cflow_sample(const float *logits, uint32_t vocab, float temperature, uint32_t top_k, float top_p,
                 uint64_t *rng_state, int32_t *token_out)
{
    if (logits == NULL || rng_state == NULL || token_out == NULL || vocab == 0 || vocab > INT32_MAX) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_sample: NULL argument or vocab is %u", vocab);
    }
    if (!(temperature >= 0.0f && isfinite(temperature)) || !(top_p > 0.0f && top_p <= 1.0f)) {
        return cf_fail(CFLOW_ERR_ARGUMENT,
                       "temperature is %g (allowed: 0 and more), top_p is %g (allowed: above 0, to 1)",
                       (double)temperature, (double)top_p);
    }
    uint32_t best = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        if (!isfinite(logits[i])) {
            return cf_fail(CFLOW_ERR_NONFINITE, "cflow_sample: logit %u is not finite", i);
        }
        best = logits[i] > logits[best] ? i : best;
    }
    if (temperature == 0.0f) {
        *token_out = (int32_t)best;
        return CFLOW_OK;
    }
    candidate *candidates = malloc((size_t)vocab * sizeof *candidates);
    double *weights = malloc((size_t)vocab * sizeof *weights);
    if (candidates == NULL || weights == NULL) {
        free(candidates);
        free(weights);
        return cf_fail(CFLOW_ERR_MEMORY, "cflow_sample: out of memory for %u candidates", vocab);
    }
    for (uint32_t i = 0; i < vocab; i++) {
        candidates[i] = (candidate){logits[i], i};
    }
    qsort(candidates, vocab, sizeof *candidates, compare_candidates);
    uint32_t count = top_k > 0 && top_k < vocab ? top_k : vocab;
    double total = 0.0;
    for (uint32_t i = 0; i < count; i++) {
        weights[i] = exp(((double)candidates[i].logit - (double)candidates[0].logit) / (double)temperature);
        total += weights[i];
    }
    if (top_p < 1.0f) {
        double reached = 0.0;
        uint32_t kept = 0;
        while (kept < count && reached < (double)top_p * total) {
            reached += weights[kept++];
        }
        count = kept;
        total = reached;
    }
    double left = draw_unit(rng_state) * total;
    uint32_t chosen = 0;
    while (chosen + 1 < count && left >= weights[chosen]) {
        left -= weights[chosen++];
    }
    *token_out = (int32_t)candidates[chosen].id;
    free(candidates);
    free(weights);
    return CFLOW_OK;
}
