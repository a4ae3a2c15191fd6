/*
 * forward.c - the forward pass of one token, as equations over the graph of plan.h. Read it beside
 * engine/reference/forward.py, which states the same equations for NumPy.
 *
 * The delays (DelayedSum, AsyncExperts) are the paper's; which vector the router of a delayed model reads, and the
 * equations of the two-stream (arch1) and register (arch3) architectures, are this project's reading of it.
 */
#include "plan.h"

#include "error.h"

#include <stdlib.h>

/* sum + the dense FFN and the experts of this block, where it has them: (base + dense) + experts */
static uint32_t add_block(cf_builder *b, uint32_t base, uint32_t dense, uint32_t experts)
{
    if (dense != CF_NONE) {
        base = cf_build_binary(b, CF_OP_ADD, base, dense, NULL);
    }
    if (experts != CF_NONE) {
        base = cf_build_binary(b, CF_OP_ADD, base, experts, NULL);
    }
    return base;
}

static uint32_t dense_of(cf_builder *b, uint32_t in)
{
    if (b->plan->model->param[CFLOW_PARAM_FFN_HIDDEN] == 0) {
        return CF_NONE;
    }
    return cf_build_dense(b, cf_build_norm(b, in, CFLOW_ROLE_FFN_NORM));
}

/* What the experts of a layer read, and the choice among them; both CF_NONE in a model without experts. */
typedef struct routed {
    uint32_t normed;
    uint32_t route;
} routed;

static routed route_of(cf_builder *b, uint32_t in)
{
    routed to = {CF_NONE, CF_NONE};
    if (b->plan->model->param[CFLOW_PARAM_EXPERTS] != 0) {
        to.normed = cf_build_norm(b, in, CFLOW_ROLE_MOE_NORM);
        to.route = cf_build_route(b, to.normed);
    }
    return to;
}

static uint32_t experts_of(cf_builder *b, routed to)
{
    return b->plan->model->param[CFLOW_PARAM_EXPERTS] == 0 ? CF_NONE : cf_build_experts(b, to.normed, to.route);
}

static uint32_t attention_of(cf_builder *b, uint32_t in)
{
    return cf_build_attention(b, cf_build_norm(b, in, CFLOW_ROLE_ATTN_NORM));
}

static void next_layer(cf_builder *b, uint32_t layer)
{
    b->layer = layer;
    b->block = layer % b->plan->model->param[CFLOW_PARAM_BLOCKS];
}

/*
 * e of an earlier layer, just in time for its sum with `base`: gate and up two phases before it, down in the next. The sum
 * lies where it would lie anyway, so there is no further phase, and reads of the experts have all the time from the choice
 * until then.
 */
static uint32_t late_experts_of(cf_builder *b, uint32_t layer, routed to, uint32_t base)
{
    const uint32_t at_layer = b->layer, level = cf_build_level(b, base);
    next_layer(b, layer);
    b->least_level = level > 2 ? level - 2 : 0;
    const uint32_t sum = experts_of(b, to);
    b->least_level = 0;
    next_layer(b, at_layer);
    return sum;
}

/*
 * h[l] = x[l-1] + Attn(Na(x[l-1]));  u[l] = dd = 0 ? h[l] : X(l-dd);  r[l] = pre-dense ? x[l-1] : h[l]
 * x[l] = (h[l] + Dense(Nf(u[l]))) + e[l-de];  y = x[L-1] + e[L-de] + ... + e[L-1] when de > 0
 */
static uint32_t build_delayed(cf_builder *b)
{
    const cf_plan_options *options = &b->plan->options;
    const uint32_t layers = b->plan->model->param[CFLOW_PARAM_LAYERS];
    uint32_t dd = options->dense_delay;
    const uint32_t de = options->expert_delay;
#ifdef CFLOW_MUTANT_DELAY_OFF_BY_ONE
    dd = dd > 0 ? dd - 1 : dd;
#endif
    uint32_t *x = malloc((size_t)(layers + 1) * sizeof *x); /* x[l + 1] = output of layer l; x[0] = embedding */
    uint32_t *e = malloc((size_t)layers * sizeof *e);
    routed *to = malloc((size_t)layers * sizeof *to);
    if (x == NULL || e == NULL || to == NULL) {
        b->status = cf_fail(CFLOW_ERR_MEMORY, "out of memory for the schedule");
        free(x);
        free(e);
        free(to);
        return CF_NONE;
    }
    x[0] = cf_build_embed(b);
    for (uint32_t l = 0; l < layers; l++) {
        next_layer(b, l);
        const uint32_t h = cf_build_binary(b, CF_OP_ADD, x[l], attention_of(b, x[l]), NULL);
        const uint32_t u = dd == 0 ? h : x[l + 1 >= dd ? l + 1 - dd : 0];
        const uint32_t r = options->route == CFLOW_ROUTE_PRE_DENSE ? x[l] : h;
        const uint32_t f = dense_of(b, u);
        to[l] = route_of(b, r);
        if (!options->late_experts) {
            e[l] = experts_of(b, to[l]);
        }
        x[l + 1] = add_block(b, h, f, CF_NONE);
        if (l >= de) {
            if (options->late_experts) {
                e[l - de] = late_experts_of(b, l - de, to[l - de], x[l + 1]);
            }
            x[l + 1] = add_block(b, x[l + 1], CF_NONE, e[l - de]);
        }
        cf_build_stream(b, x[l + 1], CF_NONE);
    }
    uint32_t y = x[layers];
    for (uint32_t l = de < layers ? layers - de : 0; l < layers; l++) {
        if (options->late_experts) {
            e[l] = late_experts_of(b, l, to[l], y);
        }
        y = add_block(b, y, CF_NONE, e[l]);
    }
    free(x);
    free(e);
    free(to);
    return y;
}

/*
 * s[l] = s[l-1] + Attn(Na((s[l-1] + t[l-1]) / sqrt 2));  v = (s[l] + t[l-1]) / sqrt 2
 * t[l] = t[l-1] + Dense(Nf(v)) + MoE(Nm(v));  y = (s[L-1] + t[L-1]) / sqrt 2
 */
static uint32_t build_two_stream(cf_builder *b)
{
    uint32_t s = cf_build_embed(b);
    uint32_t t = s;
    for (uint32_t l = 0; l < b->plan->model->param[CFLOW_PARAM_LAYERS]; l++) {
        next_layer(b, l);
        const uint32_t a = attention_of(b, cf_build_binary(b, CF_OP_MIX, s, t, NULL));
        s = cf_build_binary(b, CF_OP_ADD, s, a, NULL);
        const uint32_t v = cf_build_binary(b, CF_OP_MIX, s, t, NULL);
        const uint32_t f = dense_of(b, v);
        t = add_block(b, t, f, experts_of(b, route_of(b, v)));
        cf_build_stream(b, s, t);
    }
    return cf_build_binary(b, CF_OP_MIX, s, t, NULL);
}

/*
 * h[l] = x[l-1] + Attn(Na(x[l-1]));  p[l] = a p[l-1] + (1 - a) h[l], a = sigmoid(w), p[-1] = 0
 * x[l] = h[l] + Dense(Nf(p[l])) + MoE(Nm(p[l]))
 */
static uint32_t build_register(cf_builder *b)
{
    uint32_t x = cf_build_embed(b);
    uint32_t p = CF_NONE;
    for (uint32_t l = 0; l < b->plan->model->param[CFLOW_PARAM_LAYERS]; l++) {
        next_layer(b, l);
        const uint32_t h = cf_build_binary(b, CF_OP_ADD, x, attention_of(b, x), NULL);
        p = cf_build_binary(b, CF_OP_REGISTER, h, p, cf_model_find(b->plan->model, b->block, CFLOW_ROLE_REGISTER));
        const uint32_t f = dense_of(b, p);
        x = add_block(b, h, f, experts_of(b, route_of(b, p)));
        cf_build_stream(b, x, CF_NONE);
    }
    return x;
}

void cf_build_forward(cf_builder *b)
{
    uint32_t y;
    switch (b->plan->model->param[CFLOW_PARAM_ARCHITECTURE]) {
    case CFLOW_ARCH_TWO_STREAM:
        y = build_two_stream(b);
        break;
    case CFLOW_ARCH_REGISTER:
        y = build_register(b);
        break;
    default:
        y = build_delayed(b);
        break;
    }
    b->plan->logits = cf_build_head(b, y);
}
