/* residency.c - weights in anonymous memory: copied as tiles, or rearranged row-major for the control arm. */
#define _GNU_SOURCE
#include "error.h"
#include "hash.h"
#include "session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* State of a copy that the workers share; the first failure wins. */
typedef struct copy_job {
    cflow_session *session;
    uint8_t *target; /* data_offset of the file at its start */
    _Atomic uint32_t next_tensor;
    _Atomic int failed;
    int status;
    char message[CF_ERROR_BYTES];
} copy_job;

static void fail_once(copy_job *job, int status)
{
    int expected = 0;
    if (atomic_compare_exchange_strong(&job->failed, &expected, 1)) {
        job->status = status;
        strncpy(job->message, cflow_last_error(), sizeof job->message - 1);
    }
}

static int read_range(const cflow_model *model, uint8_t *to, uint64_t offset, uint64_t bytes)
{
    while (bytes > 0) {
        const ssize_t got = pread(model->fd, to, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return cf_fail(CFLOW_ERR_IO, "%s: read of %llu bytes at offset %llu: %s", model->path,
                           (unsigned long long)bytes, (unsigned long long)offset,
                           got == 0 ? "the file ended" : strerror(errno));
        }
        to += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return CFLOW_OK;
}

/*
 * The stripes of a piece's matrix that begin with a unit of this worker, so that it is the first to touch their pages.
 * An expert may be read in any slot, with any worker's share of the phase: its stripes are dealt out evenly.
 */
static int copy_stripes(copy_job *job, const cf_op *op, const cf_tensor *tensor, int thread)
{
    const cflow_model *model = job->session->model;
    const uint64_t threads = (uint64_t)cf_pool_threads(job->session->pool), worker = (uint64_t)thread;
    const uint64_t stripe_groups = op->tiles.tile_rows / CF_GROUP_ROWS;
    const uint64_t stripes = (op->units + stripe_groups - 1) / stripe_groups;
    const int even = op->stream == CFLOW_STREAM_EXPERT;
    const uint64_t first = even ? stripes * worker / threads : (op->split[thread] + stripe_groups - 1) / stripe_groups;
    const uint64_t last =
        even ? stripes * (worker + 1) / threads : (op->split[thread + 1] + stripe_groups - 1) / stripe_groups;
    const uint64_t begin = cf_tiles_stripe_offset(&op->tiles, first);
    const uint64_t end = last >= stripes ? tensor->bytes : cf_tiles_stripe_offset(&op->tiles, last);
    if (first >= last || begin >= end) {
        return CFLOW_OK;
    }
    return read_range(model, job->target + (tensor->offset - model->data_offset) + begin, tensor->offset + begin,
                      end - begin);
}

static int copy_pieces(copy_job *job, int thread)
{
    const cf_plan *plan = job->session->plan;
    const cflow_model *model = job->session->model;
    const uint32_t experts = model->param[CFLOW_PARAM_EXPERTS];
    int status = CFLOW_OK;
    for (uint32_t i = 0; i < plan->piece_count && status == CFLOW_OK; i++) {
        const cf_op *op = &plan->ops[plan->pieces[i]];
        /* Shared blocks: the first application copies; experts: the first slot. */
        if (op->tensor == NULL || op->slot > 0 || (op->layer != CF_NONE && op->layer != op->block)) {
            continue;
        }
        if (op->stream != CFLOW_STREAM_EXPERT) {
            status = copy_stripes(job, op, op->tensor, thread);
            continue;
        }
        const cf_tensor *const *bank = (const cf_tensor *const *)model->bank + (size_t)op->block * experts * 2;
        for (uint32_t expert = 0; expert < experts && status == CFLOW_OK; expert++) {
            status = copy_stripes(job, op, bank[expert * 2 + (op->piece == CFLOW_PIECE_EXPERT_DOWN)], thread);
        }
    }
    return status;
}

/* Vectors, and an embedding that is not the head as well: no piece owns them. */
static int copy_rest(copy_job *job)
{
    const cflow_model *model = job->session->model;
    int status = CFLOW_OK;
    for (uint32_t i = 0; i < model->tensor_count && status == CFLOW_OK; i++) {
        const cf_tensor *tensor = &model->tensors[i];
        if (cf_tensor_is_vector(tensor) ||
            (tensor->role == CFLOW_ROLE_EMBEDDING && model->param[CFLOW_PARAM_TIED_HEAD] == 0)) {
            status =
                read_range(model, job->target + (tensor->offset - model->data_offset), tensor->offset, tensor->bytes);
        }
    }
    return status;
}

static void copy_worker(void *argument, int thread)
{
    copy_job *job = argument;
    const cflow_model *model = job->session->model;
    int status = copy_pieces(job, thread);
    if (status == CFLOW_OK && thread == 0) {
        status = copy_rest(job);
    }
    if (status != CFLOW_OK) {
        fail_once(job, status);
    }
    cf_pool_barrier(job->session->pool, thread, NULL, NULL);
    while (!atomic_load(&job->failed)) {
        const uint32_t i = atomic_fetch_add(&job->next_tensor, 1);
        if (i >= model->tensor_count) {
            return;
        }
        const cf_tensor *tensor = &model->tensors[i];
        if (cf_xxh64_of(job->target + (tensor->offset - model->data_offset), tensor->bytes) != tensor->hash) {
            fail_once(job,
                      cf_fail(CFLOW_ERR_CHECKSUM, "%s: tensor %s does not match its hash", model->path, tensor->name));
        }
    }
}

int cf_residency_copy(cflow_session *session)
{
    const cflow_model *model = session->model;
    int status = cf_memory_map(&session->copied, model->file_bytes - model->data_offset, 1, "copy of the weights");
    if (status != CFLOW_OK) {
        return status;
    }
    copy_job job = {.session = session, .target = session->copied.data};
    cf_pool_run(session->pool, copy_worker, &job);
    if (job.status != CFLOW_OK) {
        return cf_fail(job.status, "%s", job.message);
    }
    session->data = session->copied.data;
    return CFLOW_OK;
}

/* ---- row-major ------------------------------------------------------------------------------------------------- */

static int rearranged(const cf_tensor *tensor)
{
    return !cf_tensor_is_vector(tensor) && tensor->role != CFLOW_ROLE_ROUTER;
}

static void rearrange_worker(void *argument, int thread)
{
    (void)thread;
    copy_job *job = argument;
    cflow_session *session = job->session;
    const cflow_model *model = session->model;
    while (!atomic_load(&job->failed)) {
        const uint32_t i = atomic_fetch_add(&job->next_tensor, 1);
        if (i >= model->tensor_count) {
            return;
        }
        const cf_tensor *tensor = &model->tensors[i];
        if (!rearranged(tensor)) {
            continue;
        }
        void *parts[3] = {NULL};
        uint8_t *at = (uint8_t *)session->row_major.data + session->row_major_offset[i];
        for (uint32_t part = 0; part < tensor->parts; part++) {
            parts[part] = at;
            at += tensor->rows[part] * (tensor->columns / CF_BLOCK) * cf_row_block_bytes((int)tensor->type);
        }
        const int status = cflow_tiles_unpack((int)tensor->type, (int)tensor->parts, tensor->rows, tensor->columns,
                                              model->param[CFLOW_PARAM_TILE_ROWS], model->param[CFLOW_PARAM_TILE_COLS],
                                              cf_tensor_data(session, tensor), tensor->bytes, parts);
        if (status != CFLOW_OK) {
            fail_once(job, status);
        }
    }
}

int cf_residency_row_major(cflow_session *session)
{
    const cflow_model *model = session->model;
    session->row_major_offset = calloc(model->tensor_count, sizeof *session->row_major_offset);
    if (session->row_major_offset == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "out of memory for the row-major layout");
    }
    size_t bytes = 0;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const cf_tensor *tensor = &model->tensors[i];
        if (!rearranged(tensor)) {
            continue;
        }
        if (tensor->type != CFLOW_TYPE_Q4_0) {
            return cf_fail(CFLOW_ERR_UNSUPPORTED, "option layout: row-major kernels exist for q4_0; tensor %s is %s",
                           tensor->name, cflow_type_name((int)tensor->type));
        }
        session->row_major_offset[i] = bytes;
        /* The tiles of a matrix are never smaller than its rows, and their sizes fit in the file. */
        bytes += cf_pad64(tensor->bytes);
    }
    int status = cf_memory_map(&session->row_major, bytes, 1, "row-major copy of the weights");
    if (status != CFLOW_OK) {
        return status;
    }
    copy_job job = {.session = session};
    cf_pool_run(session->pool, rearrange_worker, &job);
    return job.status == CFLOW_OK ? CFLOW_OK : cf_fail(job.status, "%s", job.message);
}
