/*
 * plan.h - the forward pass of one token as a graph, cut into phases.
 *
 * Two sorts of operation: pieces (matrix-level work, its rows or heads split over the workers) and vector operations
 * (norms, residual sums, activation quantisation, expert choice), which every worker repeats on its own copy because
 * that is cheaper than a barrier (for a chunk of a prompt it is not: exec_batch.c). An operation's level is the largest
 * level of its inputs; a piece's outputs have the level after it. Phase p runs the vector operations of level p in
 * program order, then the pieces of level p, then a barrier: a schedule with delays has fewer levels, hence fewer
 * barriers, without a line of code about delays here. Expert matrices that are read from storage may be asked to come as
 * late as the sum that adds them allows, so that their reads have the time until then.
 *
 * Values live in numbered buffers. Private values have one copy per worker, shared ones a single copy that pieces write.
 * A buffer is used again once the last phase that reads its value is over. For a chunk of a prompt the same buffers exist
 * once per token, all of them shared.
 */
#ifndef CF_PLAN_H
#define CF_PLAN_H

#include "kernels.h"
#include "model.h"

/* Expert slots of all layers together; far above any real model, and keeps a hostile header from taking hours. */
enum { CF_MAX_SLOTS = 1 << 16 };

typedef enum cf_value_kind {
    CF_VALUE_PRIVATE, /* floats */
    CF_VALUE_SHARED,  /* floats, rows rounded up to 16 */
    CF_VALUE_ACT,     /* private; prepared activations of a matrix product */
    CF_VALUE_LOGITS,  /* shared; floats of the last token, kept until the next; alone in their memory */
    CF_VALUE_KIND_COUNT
} cf_value_kind;

typedef struct cf_value {
    cf_value_kind kind;
    uint32_t columns;    /* floats */
    uint32_t level;      /* first phase that may read it */
    uint32_t born;       /* phase that writes it */
    uint32_t last_level; /* last phase that reads it */
    uint32_t producer;   /* operation */
    unsigned needs;      /* CF_VALUE_ACT: union of its readers' CF_NEED_* */
    size_t bytes;
    size_t offset; /* among the private values of a worker, or among the shared ones */
} cf_value;

typedef enum cf_op_kind {
    CF_OP_EMBED,      /* out: embedding row of the token */
    CF_OP_ADD,        /* out = in0 + in1 */
    CF_OP_MIX,        /* out = (in0 + in1) / sqrt 2 */
    CF_OP_REGISTER,   /* out = a * in1 + (1 - a) * in0; in1 absent for the first layer */
    CF_OP_NORM,       /* out: activations of RMSNorm(in0) * vector */
    CF_OP_PREPARE,    /* out: activations of in0 */
    CF_OP_ROUTE,      /* out: [slots] expert indices (as floats), [slots] weights, scratch; in0: router logits */
    CF_OP_EXPERT_SUM, /* out = sum over slots of weight * in[1 + slot]; in0: route */
    CF_OP_STREAM,     /* marks in0 (and in1) as the residual stream after a layer: norms are recorded; no output */
    CF_OP_PIECE
} cf_op_kind;

typedef struct cf_op {
    cf_op_kind kind;
    uint32_t layer; /* layer application */
    uint32_t block;
    uint32_t level;
    uint32_t input_first; /* in plan->inputs */
    uint32_t input_count;
    uint32_t output[3];      /* values; CF_NONE when absent */
    const cf_tensor *vector; /* gain or register weights; the bias of a qkv piece */
    /* pieces only */
    cflow_piece_kind piece;
    cflow_stream stream;
    uint32_t slot;
    uint32_t piece_index;
    const cf_tensor *tensor; /* matrix; NULL for the attention core; expert 0's for expert pieces */
    cf_tiles tiles;          /* shape of the matrix in tiles; tiles.type is the tensor's own */
    uint64_t units;          /* slots of 16 rows (all parts), or heads */
    uint64_t weights;
    uint64_t bytes;
    uint64_t *split; /* [threads + 1] first unit of each worker */
} cf_op;

typedef struct cf_plan_options {
    uint32_t threads;
    uint32_t dense_delay;
    uint32_t expert_delay;
    uint32_t route;
    int q8;
    int isa;
    int read_all_experts;
    int late_experts;       /* 1 = expert matrices lie in the last phases that cost no further one; see forward.c */
    uint32_t rows_per_pass; /* 0 = tiled */
} cf_plan_options;

typedef struct cf_plan {
    const cflow_model *model;
    cf_plan_options options;
    uint32_t slots; /* expert slots per layer */
    cf_op *ops;
    uint32_t op_count, op_capacity;
    cf_value *values;
    uint32_t value_count, value_capacity;
    uint32_t *inputs;
    uint32_t input_count, input_capacity;
    uint32_t *order;       /* [op_count] operations sorted by phase, vector operations first */
    uint32_t *phase_first; /* [phase_count + 1] in order */
    /*
     * [phase_count] in order: with late_experts the first expert piece of a phase in which gate_up pieces of experts are;
     * a barrier in front of it waits for their weights. Otherwise the end of the phase.
     */
    uint32_t *phase_experts;
    uint32_t phase_count;
    uint32_t head_phase; /* phases from here on are needed only when logits are */
    uint32_t *pieces;    /* [piece_count] operation of each piece, in program order */
    uint32_t piece_count;
    uint32_t logits; /* value */
    size_t private_bytes;
    size_t shared_bytes; /* without the logits */
    size_t logits_bytes;
} cf_plan;

int cf_plan_create(const cflow_model *model, const cf_plan_options *options, cf_plan **plan_out);
void cf_plan_destroy(cf_plan *plan);

/* The kernel that a piece's matrix runs on. */
const cf_kernel *cf_plan_kernel(const cf_plan_options *options, uint32_t role, uint32_t type);

/* Pieces whose results operation `op` needs, nearest first through vector operations; see cflow_schedule_dependencies. */
int cf_plan_dependencies(const cf_plan *plan, uint32_t op, uint32_t *pieces_out, size_t count, size_t *total_out);

/* ---- building, for forward.c ---- */

/* First failure of a build; later calls do nothing, so that the equations read without a test on every line. */
typedef struct cf_builder {
    cf_plan *plan;
    int status;
    uint32_t layer;
    uint32_t block;
    uint32_t least_level; /* nothing is put into an earlier phase */
} cf_builder;

uint32_t cf_build_embed(cf_builder *b);
uint32_t cf_build_binary(cf_builder *b, cf_op_kind kind, uint32_t in0, uint32_t in1, const cf_tensor *vector);
uint32_t cf_build_norm(cf_builder *b, uint32_t in, uint32_t norm_role);
uint32_t cf_build_attention(cf_builder *b, uint32_t normed);
uint32_t cf_build_dense(cf_builder *b, uint32_t normed);
/* Router and choice: the value of CF_OP_ROUTE. */
uint32_t cf_build_route(cf_builder *b, uint32_t normed);
/* The chosen experts and their sum. */
uint32_t cf_build_experts(cf_builder *b, uint32_t normed, uint32_t route);
/* First phase that may read a value; 0 after a failure. */
uint32_t cf_build_level(const cf_builder *b, uint32_t value);
void cf_build_stream(cf_builder *b, uint32_t in0, uint32_t in1);
uint32_t cf_build_head(cf_builder *b, uint32_t in);

/* forward.c: the equations of every architecture. */
void cf_build_forward(cf_builder *b);

#endif
