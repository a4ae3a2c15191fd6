#include "experts.h"

#include "error.h"
#include "hash.h"
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for one expert of any block. Slots are linked from the one that was used last to the one to be given away next. */
typedef struct expert_slot {
    uint8_t *data;
    uint32_t blob; /* the expert it holds or waits for, of model->experts; CF_NONE: nothing */
    int reading;
    uint32_t ticket;
    uint64_t busy_until; /* last step in which it is used */
    uint32_t newer, older;
} expert_slot;

/* The phases of a layer's experts. */
typedef struct layer_phases {
    uint32_t choice, gate_up, down;
} layer_phases;

struct cf_experts {
    const cf_plan *plan;
    cf_reader *reader;
    int sync;
    int verify;
    int keep; /* 1 = what was read is looked for before it is read again */
    uint64_t slot_bytes;
    cf_memory memory;
    uint32_t slot_count;
    expert_slot *slots;
    uint32_t newest, oldest;
    uint32_t *slot_of;    /* [blobs] that holds or waits for it, CF_NONE when none does; with `keep` */
    uint8_t *verified;    /* [blobs] */
    layer_phases *phases; /* [layers] */
    uint32_t *rows; /* [layers + 2][plan->slots]: slot of each use; the last two rows are those of cf_experts_read() */
    uint32_t *wanted;    /* likewise: the experts themselves */
    uint64_t first_step; /* of the token: steps count phases through all tokens */
    uint64_t hits;
    cf_lane *lane;
    int failed; /* status of the first failure since cf_experts_begin() */
    char message[CF_ERROR_BYTES];
};

/* ---- how much memory ------------------------------------------------------------------------------------------------ */

static uint32_t blob_count(const cflow_model *model)
{
    return model->param[CFLOW_PARAM_BLOCKS] * model->param[CFLOW_PARAM_EXPERTS];
}

static uint64_t slot_bytes_of(const cflow_model *model)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < blob_count(model); i++) {
        const uint64_t bytes = cf_reader_span(model->experts[i].offset, model->experts[i].bytes);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void find_phases(const cf_plan *plan, layer_phases *phases)
{
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const cf_op *op = &plan->ops[i];
        if (op->kind == CF_OP_ROUTE) {
            phases[op->layer].choice = op->level;
        } else if (op->kind == CF_OP_PIECE && op->piece == CFLOW_PIECE_EXPERT_GATE_UP) {
            phases[op->layer].gate_up = op->level;
        } else if (op->kind == CF_OP_PIECE && op->piece == CFLOW_PIECE_EXPERT_DOWN) {
            phases[op->layer].down = op->level;
        }
    }
}

/* Most layers of a token whose experts are on their way or in use in one phase; a pure read has two rows. */
static uint32_t layers_at_once(const cf_plan *plan, const layer_phases *phases)
{
    const uint32_t layers = plan->model->param[CFLOW_PARAM_LAYERS];
    uint32_t most = 2;
    for (uint32_t l = 0; l < layers; l++) {
        uint32_t count = 0;
        for (uint32_t other = 0; other < layers; other++) {
            count += phases[other].choice <= phases[l].choice && phases[l].choice <= phases[other].down;
        }
        most = count > most ? count : most;
    }
    return most;
}

/* Slots that a schedule cannot do without; 0 when memory is out. */
static uint64_t least_slots(const cf_plan *plan)
{
    layer_phases *phases = calloc(plan->model->param[CFLOW_PARAM_LAYERS], sizeof *phases);
    if (phases == NULL) {
        return 0;
    }
    find_phases(plan, phases);
    const uint64_t slots = (uint64_t)layers_at_once(plan, phases) * plan->slots;
    free(phases);
    return slots;
}

uint64_t cf_experts_least_bytes(const cf_plan *plan)
{
    /* At most 2^16 slots of expert matrices that lie in one file. */
    uint64_t bytes;
    return __builtin_mul_overflow(least_slots(plan), slot_bytes_of(plan->model), &bytes) ? UINT64_MAX : bytes;
}

uint32_t cf_experts_reads(const cf_plan *plan)
{
    return (uint32_t)least_slots(plan);
}

/* ---- making --------------------------------------------------------------------------------------------------------- */

static void put_first(cf_experts *experts, uint32_t index)
{
    expert_slot *own = &experts->slots[index];
    own->newer = CF_NONE;
    own->older = experts->newest;
    if (experts->newest != CF_NONE) {
        experts->slots[experts->newest].newer = index;
    } else {
        experts->oldest = index;
    }
    experts->newest = index;
}

static int make_slots(cf_experts *experts, uint64_t budget_bytes, uint64_t *held_bytes)
{
    const cflow_model *model = experts->plan->model;
    const uint64_t least = least_slots(experts->plan), all = blob_count(model);
    experts->slot_bytes = slot_bytes_of(model);
    experts->keep = budget_bytes > 0;
    uint64_t count = least;
    if (experts->keep) {
        count = budget_bytes / experts->slot_bytes;
        count = count > all ? all : count;
        count = count < least ? least : count;
    }
    uint64_t bytes;
    if (least == 0 || count >= CF_NONE || __builtin_mul_overflow(count, experts->slot_bytes, &bytes)) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for the experts in use", model->path);
    }
    experts->slot_count = (uint32_t)count;
    experts->slots = calloc(count, sizeof *experts->slots);
    experts->slot_of = malloc(all * sizeof *experts->slot_of);
    experts->verified = calloc(all, 1);
    if (experts->slots == NULL || experts->slot_of == NULL || experts->verified == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for the experts in use", model->path);
    }
    const int status = cf_memory_map(&experts->memory, bytes, 1, "experts in use", held_bytes);
    if (status != CFLOW_OK) {
        return status;
    }
    cf_memory_keep_from_children(&experts->memory);
    /* Those that every token needs are touched now; a larger cache gets its pages with its first reads. */
    memset(experts->memory.data, 0, least * experts->slot_bytes);
    memset(experts->slot_of, 0xff, all * sizeof *experts->slot_of);
    experts->newest = experts->oldest = CF_NONE;
    for (uint32_t i = experts->slot_count; i-- > 0;) {
        experts->slots[i].data = (uint8_t *)experts->memory.data + i * experts->slot_bytes;
        experts->slots[i].blob = CF_NONE;
        put_first(experts, i);
    }
    return CFLOW_OK;
}

static int make_tables(cf_experts *experts)
{
    const cf_plan *plan = experts->plan;
    const size_t layers = plan->model->param[CFLOW_PARAM_LAYERS], uses = (layers + 2) * plan->slots;
    experts->phases = calloc(layers, sizeof *experts->phases);
    experts->rows = malloc(uses * sizeof *experts->rows);
    experts->wanted = malloc(uses * sizeof *experts->wanted);
    if (experts->phases == NULL || experts->rows == NULL || experts->wanted == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for the experts in use", plan->model->path);
    }
    memset(experts->rows, 0xff, uses * sizeof *experts->rows);
    find_phases(plan, experts->phases);
    return CFLOW_OK;
}

int cf_experts_create(const cf_plan *plan, const cf_experts_options *options, cf_experts **experts_out)
{
    const cflow_model *model = plan->model;
    *experts_out = NULL;
    cf_experts *experts = calloc(1, sizeof *experts);
    if (experts == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for the experts in use", model->path);
    }
    experts->plan = plan;
    experts->reader = options->reader;
    experts->sync = options->sync;
    experts->verify = options->verify;
    experts->lane = options->lane;
    experts->first_step = 1; /* a slot that was never used is not in use */
    int status = make_slots(experts, options->bytes, options->held_bytes);
    if (status == CFLOW_OK) {
        status = make_tables(experts);
    }
    if (status != CFLOW_OK) {
        cf_experts_destroy(experts);
        return status;
    }
    *experts_out = experts;
    return CFLOW_OK;
}

void cf_experts_destroy(cf_experts *experts)
{
    if (experts == NULL) {
        return;
    }
    cf_reader_drain(experts->reader);
    cf_memory_unmap(&experts->memory);
    free(experts->slots);
    free(experts->slot_of);
    free(experts->verified);
    free(experts->phases);
    free(experts->rows);
    free(experts->wanted);
    free(experts);
}

/* ---- slots ---------------------------------------------------------------------------------------------------------- */

static void unlink_slot(cf_experts *experts, uint32_t index)
{
    const expert_slot *own = &experts->slots[index];
    if (own->newer != CF_NONE) {
        experts->slots[own->newer].older = own->older;
    } else {
        experts->newest = own->older;
    }
    if (own->older != CF_NONE) {
        experts->slots[own->older].newer = own->newer;
    } else {
        experts->oldest = own->newer;
    }
}

/* The slot holds nothing that could be taken for an expert. */
static void forget(cf_experts *experts, expert_slot *own)
{
    if (own->blob != CF_NONE && experts->slot_of[own->blob] == (uint32_t)(own - experts->slots)) {
        experts->slot_of[own->blob] = CF_NONE;
    }
    own->blob = CF_NONE;
    own->reading = 0;
}

/* The slot that was not used for longest and is not in use; CF_NONE when all are. */
static uint32_t free_slot(const cf_experts *experts, uint64_t step)
{
    uint32_t index = experts->oldest;
    while (index != CF_NONE && experts->slots[index].busy_until >= step) {
        index = experts->slots[index].newer;
    }
    return index;
}

static void fail(cf_experts *experts, int status)
{
    if (experts->failed == CFLOW_OK) {
        experts->failed = status;
        (void)snprintf(experts->message, sizeof experts->message, "%s", cflow_last_error());
    }
}

static int start_read(cf_experts *experts, uint32_t index, uint32_t blob)
{
    const cflow_model *model = experts->plan->model;
    const cf_expert_blob *place = &model->experts[blob];
    expert_slot *own = &experts->slots[index];
    char what[64];
    (void)snprintf(what, sizeof what, "expert %u of block %u", blob % model->param[CFLOW_PARAM_EXPERTS],
                   blob / model->param[CFLOW_PARAM_EXPERTS]);
    forget(experts, own);
    const int status = cf_reader_issue(experts->reader, place->offset, place->bytes, own->data, what, &own->ticket);
    if (status == CFLOW_OK) {
        own->blob = blob;
        own->reading = 1;
        experts->slot_of[blob] = index;
    }
    return status;
}

/* One use of an expert up to step `last`: a slot for it, and a read unless the slot has it. */
static int use(cf_experts *experts, uint32_t blob, uint64_t step, uint64_t last, uint32_t *index_out)
{
    uint32_t index = experts->keep ? experts->slot_of[blob] : CF_NONE;
    int status = CFLOW_OK;
    if (index != CF_NONE) {
        experts->hits++;
    } else {
        index = free_slot(experts, step);
        if (index == CF_NONE) {
            return cf_fail(CFLOW_ERR_MEMORY, "%s: all %u slots for experts are in use", experts->plan->model->path,
                           experts->slot_count);
        }
        status = start_read(experts, index, blob);
    }
    expert_slot *own = &experts->slots[index];
    own->busy_until = last > own->busy_until ? last : own->busy_until;
    unlink_slot(experts, index);
    put_first(experts, index);
    *index_out = index;
    return status;
}

/* Starts the reads of a row, unless that was done. What is needed first comes first: a row after the one before. */
static void issue(cf_experts *experts, uint32_t row, uint32_t block, uint32_t count, uint64_t step, uint64_t last)
{
    uint32_t *slots = experts->rows + (size_t)row * experts->plan->slots;
    const uint32_t *wanted = experts->wanted + (size_t)row * experts->plan->slots;
    const uint32_t experts_per_block = experts->plan->model->param[CFLOW_PARAM_EXPERTS];
    cf_reader_fence(experts->reader);
    for (uint32_t i = 0; i < count && slots[i] == CF_NONE && experts->failed == CFLOW_OK; i++) {
        uint32_t expert = wanted[i];
#ifdef CFLOW_MUTANT_WRONG_EXPERT_READ
        expert = (expert ^ 1u) < experts_per_block ? expert ^ 1u : expert;
#endif
        const int status = use(experts, block * experts_per_block + expert, step, last, &slots[i]);
        if (status != CFLOW_OK) {
            fail(experts, status);
        }
    }
}

static int check_hash(cf_experts *experts, const expert_slot *own)
{
    const cflow_model *model = experts->plan->model;
    const uint32_t blob = own->blob;
    if (experts->verify == CFLOW_VERIFY_NEVER || (experts->verify == CFLOW_VERIFY_FIRST && experts->verified[blob])) {
        return CFLOW_OK;
    }
    if (cf_xxh64_of(own->data, model->experts[blob].bytes) != model->experts[blob].hash) {
        return cf_fail(CFLOW_ERR_CHECKSUM, "%s: expert %u of block %u does not match its hash", model->path,
                       blob % model->param[CFLOW_PARAM_EXPERTS], blob / model->param[CFLOW_PARAM_EXPERTS]);
    }
    experts->verified[blob] = 1;
    return CFLOW_OK;
}

/* Adds the read of a slot, which was waited for, to the events. first_use: a piece; NULL in a pure read. */
static void record_read(cf_experts *experts, const expert_slot *own, const cf_op *first_use)
{
    if (first_use != NULL) {
        const cf_expert_blob *place = &experts->plan->model->experts[own->blob];
        const cf_read_times times = cf_reader_times(experts->reader, own->ticket);
        cf_lane_add_read(experts->lane, &times, cf_reader_span(place->offset, place->bytes), first_use->level,
                         first_use->piece_index);
    }
}

/* Until what the slot waits for is there. first_use: a piece; NULL in a pure read. */
static int await(cf_experts *experts, expert_slot *own, const cf_op *first_use, const _Atomic int *cancel)
{
    if (!own->reading) {
        return CFLOW_OK;
    }
#ifdef CFLOW_MUTANT_READ_CONSUMED_EARLY
    /* Used as if nothing of it had come yet, whatever has; nor does the token wait for an emulated device. */
    (void)cancel;
    (void)first_use;
    (void)check_hash;
    (void)record_read;
    cf_reader_drain(experts->reader);
    memset(own->data, 0, experts->slot_bytes);
    own->reading = 0;
    return CFLOW_OK;
#else
    int status = cf_reader_wait(experts->reader, own->ticket, cancel);
    if (status == CFLOW_ERR_CANCELLED) {
        return status; /* the read goes on until cf_experts_abandon() */
    }
    own->reading = 0;
    if (status == CFLOW_OK) {
        record_read(experts, own, first_use);
        status = check_hash(experts, own);
    }
    if (status != CFLOW_OK) {
        forget(experts, own);
    }
    return status;
#endif
}

/* first: of the pieces, one per slot, that the row is read for, in plan->order; CF_NONE in a pure read. */
static void fetch_row(cf_experts *experts, uint32_t row, uint32_t count, uint32_t first, const _Atomic int *cancel)
{
    const cf_plan *plan = experts->plan;
    const uint32_t *slots = experts->rows + (size_t)row * plan->slots;
    for (uint32_t i = 0; i < count && experts->failed == CFLOW_OK; i++) {
        const cf_op *first_use = first == CF_NONE ? NULL : &plan->ops[plan->order[first + i]];
        const int status = await(experts, &experts->slots[slots[i]], first_use, cancel);
        if (status != CFLOW_OK) {
            fail(experts, status);
        }
    }
}

static int outcome(const cf_experts *experts)
{
    return experts->failed == CFLOW_OK ? CFLOW_OK : cf_fail(experts->failed, "%s", experts->message);
}

/* ---- tokens --------------------------------------------------------------------------------------------------------- */

void cf_experts_begin(cf_experts *experts)
{
    experts->first_step += experts->plan->phase_count;
    experts->failed = CFLOW_OK;
}

void cf_experts_choose(cf_experts *experts, uint32_t layer, const float *chosen)
{
    const cf_plan *plan = experts->plan;
    const size_t at = (size_t)layer * plan->slots;
    for (uint32_t i = 0; i < plan->slots; i++) {
        experts->wanted[at + i] = (uint32_t)chosen[i];
        experts->rows[at + i] = CF_NONE;
    }
    if (!experts->sync) {
        const layer_phases *phases = &experts->phases[layer];
        issue(experts, layer, layer % plan->model->param[CFLOW_PARAM_BLOCKS], plan->slots,
              experts->first_step + phases->choice, experts->first_step + phases->down);
    }
}

int cf_experts_fetch(cf_experts *experts, uint32_t phase, const _Atomic int *cancel)
{
    const cf_plan *plan = experts->plan;
    const uint32_t layers = plan->model->param[CFLOW_PARAM_LAYERS];
    for (int waits = 0; waits < 2; waits++) {
        for (uint32_t i = plan->phase_experts[phase]; i < plan->phase_first[phase + 1]; i++) {
            const cf_op *op = &plan->ops[plan->order[i]];
            if (op->piece != CFLOW_PIECE_EXPERT_GATE_UP || op->slot != 0 || op->layer >= layers) {
                continue;
            }
            if (waits) {
                /* The slots of a layer stand side by side: their pieces have one level, and nothing lies between them. */
                fetch_row(experts, op->layer, plan->slots, i, cancel);
            } else {
                issue(experts, op->layer, op->block, plan->slots, experts->first_step + phase,
                      experts->first_step + experts->phases[op->layer].down);
            }
        }
    }
    return outcome(experts);
}

const uint8_t *cf_experts_tensor(const cf_experts *experts, uint32_t layer, uint32_t slot, const cf_tensor *tensor)
{
    const cflow_model *model = experts->plan->model;
    const uint32_t blob = tensor->block * model->param[CFLOW_PARAM_EXPERTS] + tensor->expert;
    const uint32_t index = experts->rows[(size_t)layer * experts->plan->slots + slot];
    return experts->slots[index].data + (tensor->offset - model->experts[blob].offset);
}

void cf_experts_abandon(cf_experts *experts)
{
    cf_reader_drain(experts->reader);
    for (uint32_t i = 0; i < experts->slot_count; i++) {
        if (experts->slots[i].reading) {
            forget(experts, &experts->slots[i]);
        }
    }
}

int cf_experts_read(cf_experts *experts, const int32_t *chosen, size_t rows, const _Atomic int *cancel)
{
    const cf_plan *plan = experts->plan;
    const uint32_t layers = plan->model->param[CFLOW_PARAM_LAYERS],
                   k = plan->model->param[CFLOW_PARAM_EXPERTS_PER_TOKEN];
    cf_experts_begin(experts);
    for (size_t r = 0; r <= rows && experts->failed == CFLOW_OK; r++) {
        if (r < rows) {
            const uint32_t row = layers + (uint32_t)(r % 2);
            for (uint32_t i = 0; i < k; i++) {
                experts->wanted[(size_t)row * plan->slots + i] = (uint32_t)chosen[r * k + i];
                experts->rows[(size_t)row * plan->slots + i] = CF_NONE;
            }
            issue(experts, row, (uint32_t)(r % layers) % plan->model->param[CFLOW_PARAM_BLOCKS], k, experts->first_step,
                  experts->first_step + 1);
        }
        if (r > 0) {
            fetch_row(experts, layers + (uint32_t)((r - 1) % 2), k, CF_NONE, cancel);
        }
        experts->first_step++;
    }
    const int status = outcome(experts);
    if (status != CFLOW_OK) {
        cf_experts_abandon(experts);
    }
    return status;
}

/* ---- what it did ---------------------------------------------------------------------------------------------------- */

uint64_t cf_experts_hits(const cf_experts *experts)
{
    return experts->hits;
}

uint64_t cf_experts_memory(const cf_experts *experts)
{
    return experts->memory.bytes;
}
