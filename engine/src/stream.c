#include "stream.h"

#include "error.h"
#include "hash.h"
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 64 }; /* most matrices in the ring, unless a phase has more */

/* A matrix in the order of use. */
typedef struct use {
    uint32_t op; /* in plan->ops */
    uint32_t phase;
} use;

/* One in the ring. */
typedef struct entry {
    uint32_t use;
    uint32_t ticket;
    int is_there;
    uint64_t at, bytes; /* in the ring */
} entry;

struct cf_stream {
    const cf_plan *plan;
    cf_reader *reader;
    int verify;
    cf_lane *lane;
    use *uses;                      /* of one token */
    uint32_t use_count, head_first; /* uses from head_first on are the head's */
    uint8_t *streamed;              /* [tensor_count] */
    uint8_t *verified;              /* [tensor_count] */
    const uint8_t **weights;        /* [op_count] */
    cf_memory ring;
    uint64_t ring_bytes;
    entry *entries; /* [capacity] from `first` on, in order of use */
    uint32_t capacity, first, count;
    uint64_t next_at; /* first free byte behind the last entry */
    /* What is to be issued next. */
    size_t tokens; /* of the call, from the one that `next` belongs to on */
    uint32_t next;
    int every_head;
    int failed; /* of an issue: told when the weights are waited for */
    char message[CF_ERROR_BYTES];
};

/* ---- the order of use ------------------------------------------------------------------------------------------------ */

static int is_streamed(const cf_op *op)
{
    return op->kind == CF_OP_PIECE && op->tensor != NULL && op->stream != CFLOW_STREAM_EXPERT &&
           op->tensor->role != CFLOW_ROLE_EMBEDDING;
}

static uint64_t span_of(const cf_tensor *tensor)
{
    return cf_reader_span(tensor->offset, tensor->bytes);
}

uint32_t cf_stream_reads(const cf_plan *plan)
{
    uint32_t most = ENTRIES;
    for (uint32_t phase = 0; phase < plan->phase_count; phase++) {
        uint32_t count = 0;
        for (uint32_t i = plan->phase_first[phase]; i < plan->phase_first[phase + 1]; i++) {
            count += (uint32_t)is_streamed(&plan->ops[plan->order[i]]);
        }
        most = count > most ? count : most;
    }
    return most;
}

/*
 * Memory that a ring cannot do without: what a phase uses, and what stays empty in front of the place where it wraps.
 * useful: what all entries and such a gap may take at most.
 */
static uint64_t least_bytes(const cf_stream *stream, uint64_t *useful)
{
    uint64_t largest = 0, most = 0, of_phase = 0;
    for (uint32_t i = 0; i < stream->use_count; i++) {
        const uint64_t bytes = span_of(stream->plan->ops[stream->uses[i].op].tensor);
        of_phase = i > 0 && stream->uses[i].phase == stream->uses[i - 1].phase ? of_phase + bytes : bytes;
        largest = bytes > largest ? bytes : largest;
        most = of_phase > most ? of_phase : most;
    }
    /* The file holds the largest, and a model has fewer pieces than 2^24: no overflow below 2^39 bytes of a matrix. */
    *useful = ((uint64_t)stream->capacity + 1) * largest;
    return most + largest;
}

static void find_uses(cf_stream *stream)
{
    const cf_plan *plan = stream->plan;
    for (uint32_t phase = 0; phase < plan->phase_count; phase++) {
        if (phase == plan->head_phase) {
            stream->head_first = stream->use_count;
        }
        for (uint32_t i = plan->phase_first[phase]; i < plan->phase_first[phase + 1]; i++) {
            const cf_op *op = &plan->ops[plan->order[i]];
            if (is_streamed(op)) {
                stream->uses[stream->use_count++] = (use){.op = plan->order[i], .phase = phase};
                stream->streamed[op->tensor - plan->model->tensors] = 1;
            }
        }
    }
}

/* ---- making --------------------------------------------------------------------------------------------------------- */

static int make_ring(cf_stream *stream, uint64_t bytes, uint64_t *held_bytes)
{
    const cflow_model *model = stream->plan->model;
    uint64_t useful;
    stream->capacity = cf_stream_reads(stream->plan);
    const uint64_t least = least_bytes(stream, &useful);
    if (bytes < least) {
        return cf_fail(CFLOW_ERR_MEMORY, "option stream_bytes is %llu; %s needs at least %llu with these options",
                       (unsigned long long)bytes, model->path, (unsigned long long)least);
    }
    stream->ring_bytes = (bytes < useful ? bytes : useful) / CF_READ_ALIGN * CF_READ_ALIGN;
    stream->entries = calloc(stream->capacity, sizeof *stream->entries);
    if (stream->entries == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for streaming", model->path);
    }
    const int status = cf_memory_map(&stream->ring, stream->ring_bytes, 1, "ring of streamed weights", held_bytes);
    if (status == CFLOW_OK) {
        cf_memory_keep_from_children(&stream->ring);
        memset(stream->ring.data, 0, stream->ring.bytes);
    }
    return status;
}

int cf_stream_create(const cf_plan *plan, cf_reader *reader, uint64_t bytes, int verify, cf_lane *lane,
                     uint64_t *held_bytes, cf_stream **stream_out)
{
    const cflow_model *model = plan->model;
    *stream_out = NULL;
    cf_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for streaming", model->path);
    }
    stream->plan = plan;
    stream->reader = reader;
    stream->verify = verify;
    stream->lane = lane;
    stream->uses = calloc(plan->piece_count, sizeof *stream->uses);
    stream->streamed = calloc(model->tensor_count, 1);
    stream->verified = calloc(model->tensor_count, 1);
    stream->weights = calloc(plan->op_count, sizeof *stream->weights);
    int status = CFLOW_OK;
    if (stream->uses == NULL || stream->streamed == NULL || stream->verified == NULL || stream->weights == NULL) {
        status = cf_fail(CFLOW_ERR_MEMORY, "%s: out of memory for streaming", model->path);
    } else {
        find_uses(stream);
        status = make_ring(stream, bytes, held_bytes);
    }
    if (status != CFLOW_OK) {
        cf_stream_destroy(stream);
        return status;
    }
    *stream_out = stream;
    return CFLOW_OK;
}

void cf_stream_destroy(cf_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    cf_reader_drain(stream->reader);
    cf_memory_unmap(&stream->ring);
    free(stream->uses);
    free(stream->streamed);
    free(stream->verified);
    free((void *)stream->weights);
    free(stream->entries);
    free(stream);
}

const uint8_t *cf_stream_tensors(const cf_stream *stream)
{
    return stream == NULL ? NULL : stream->streamed;
}

uint64_t cf_stream_memory(const cf_stream *stream)
{
    return stream->ring.bytes;
}

/* ---- the ring --------------------------------------------------------------------------------------------------------- */

static entry *entry_at(const cf_stream *stream, uint32_t index)
{
    return &stream->entries[(stream->first + index) % stream->capacity];
}

/* Where `bytes` behind the last entry have room; UINT64_MAX when they have none yet. */
static uint64_t room_for(cf_stream *stream, uint64_t bytes)
{
    if (stream->count == 0) {
        stream->next_at = 0;
        return 0;
    }
    const uint64_t oldest = entry_at(stream, 0)->at, end = stream->ring_bytes;
    if (stream->next_at <= oldest) {
        return oldest - stream->next_at >= bytes ? stream->next_at : UINT64_MAX;
    }
    if (end - stream->next_at >= bytes) {
        return stream->next_at;
    }
    return oldest >= bytes ? 0 : UINT64_MAX;
}

/* To the first use of the next token when the one in hand has no more. */
static void skip_to_use(cf_stream *stream)
{
    while (stream->tokens > 0 &&
           stream->next >= (stream->every_head || stream->tokens == 1 ? stream->use_count : stream->head_first)) {
        stream->tokens--;
        stream->next = 0;
    }
}

/* Reads ahead as far as the ring has room. */
static void issue(cf_stream *stream)
{
    for (skip_to_use(stream); stream->tokens > 0 && stream->count < stream->capacity; skip_to_use(stream)) {
        const cf_tensor *tensor = stream->plan->ops[stream->uses[stream->next].op].tensor;
        const uint64_t bytes = span_of(tensor), at = room_for(stream, bytes);
        if (at == UINT64_MAX) {
            return;
        }
        entry *own = entry_at(stream, stream->count);
        *own = (entry){.use = stream->next, .at = at, .bytes = bytes};
        const int status = cf_reader_issue(stream->reader, tensor->offset, tensor->bytes,
                                           (uint8_t *)stream->ring.data + at, tensor->name, &own->ticket);
        if (status != CFLOW_OK) {
            stream->failed = status;
            (void)snprintf(stream->message, sizeof stream->message, "%s", cflow_last_error());
            stream->tokens = 0;
            return;
        }
        stream->next_at = at + bytes;
        stream->count++;
        stream->next++;
    }
}

static int check_hash(cf_stream *stream, const cf_tensor *tensor, const uint8_t *data)
{
    uint8_t *verified = &stream->verified[tensor - stream->plan->model->tensors];
    if (stream->verify == CFLOW_VERIFY_NEVER || (stream->verify == CFLOW_VERIFY_FIRST && *verified)) {
        return CFLOW_OK;
    }
    if (cf_xxh64_of(data, tensor->bytes) != tensor->hash) {
        return cf_fail(CFLOW_ERR_CHECKSUM, "%s: tensor %s does not match its hash", stream->plan->model->path,
                       tensor->name);
    }
    *verified = 1;
    return CFLOW_OK;
}

static int await(cf_stream *stream, entry *own, const _Atomic int *cancel)
{
    const uint32_t op = stream->uses[own->use].op;
    const cf_tensor *tensor = stream->plan->ops[op].tensor;
    int status = cf_reader_wait(stream->reader, own->ticket, cancel);
    if (status == CFLOW_OK) {
        const cf_read_times times = cf_reader_times(stream->reader, own->ticket);
        cf_lane_add_read(stream->lane, &times, own->bytes, stream->uses[own->use].phase,
                         stream->plan->ops[op].piece_index);
        own->is_there = 1;
        stream->weights[op] = (const uint8_t *)stream->ring.data + own->at + tensor->offset % CF_READ_ALIGN;
        status = check_hash(stream, tensor, stream->weights[op]);
    }
    return status;
}

void cf_stream_begin(cf_stream *stream, size_t tokens, int every_head)
{
    stream->count = 0;
    stream->tokens = tokens;
    stream->next = 0;
    stream->every_head = every_head;
    stream->failed = CFLOW_OK;
}

int cf_stream_fetch(cf_stream *stream, uint32_t phase, const _Atomic int *cancel)
{
    /* The phase in which these were used is over. */
    while (stream->count > 0 && entry_at(stream, 0)->is_there) {
        stream->first = (stream->first + 1) % stream->capacity;
        stream->count--;
    }
    issue(stream);
    uint32_t last = 0;
    for (uint32_t i = 0; i < stream->count; i++) {
        entry *own = entry_at(stream, i);
        if (stream->uses[own->use].phase != phase || (i > 0 && own->use <= last)) {
            break; /* of a later phase, or a later token */
        }
        last = own->use;
        const int status = await(stream, own, cancel);
        if (status != CFLOW_OK) {
            return status;
        }
    }
    return stream->failed == CFLOW_OK ? CFLOW_OK : cf_fail(stream->failed, "%s", stream->message);
}

const uint8_t *cf_stream_weights(const cf_stream *stream, const cf_op *op)
{
    return stream->weights[op - stream->plan->ops];
}

void cf_stream_abandon(cf_stream *stream)
{
    cf_reader_drain(stream->reader);
    stream->count = 0;
    stream->tokens = 0;
}
