/* session.h - one stream of tokens over a model: options, memory, workers, KV cache and accounting. */
#ifndef CF_SESSION_H
#define CF_SESSION_H

#include "attention.h"
#include "error.h"
#include "events.h"
#include "experts.h"
#include "gemm.h"
#include "load.h"
#include "plan.h"
#include "pool.h"
#include "stream.h"

#include <stdatomic.h>

struct cflow_options {
    int64_t value[CFLOW_OPTION_COUNT];
};

int64_t cf_option_default(int option); /* what options.c sets at first */

/*
 * Zeroed anonymous memory; huge = 1: aligned to and, where the kernel gives them, on transparent huge pages when it fills
 * one; 0: on ordinary pages.
 */
typedef struct cf_memory {
    void *data;
    size_t bytes;
} cf_memory;

/* Of an ordinary page: 4 KiB on x86-64, up to 64 KiB elsewhere. */
size_t cf_page_bytes(void);
/* The machine's memory, or what a control group allows if that is less; UINT64_MAX where nobody can tell. */
uint64_t cf_memory_most_bytes(void);
/*
 * what: for the message. held_bytes: what a session has mapped, which counts with it and grows by it; NULL: not of a
 * session. Errors: MEMORY, also when this process may not take that much.
 */
int cf_memory_map(cf_memory *memory, size_t bytes, int huge, const char *what, uint64_t *held_bytes);
/* `bytes` rounded up to whole pages of their own, of the size (*huge_out = 1: huge) that suits so many. */
size_t cf_memory_whole_pages(size_t bytes, int *huge_out);
void cf_memory_unmap(cf_memory *memory);
/*
 * For memory that a device writes to: a child that fork() makes does not get it. A page that both have is copied for
 * whichever writes first, and on kernels before 6.5 what a read past the page cache brings may end up in the child's.
 */
void cf_memory_keep_from_children(const cf_memory *memory);

enum { CF_TRACE_FIELDS = 4 };

/* Written by one worker; a cache line of distance to the next. */
typedef struct cf_worker {
    _Alignas(64) uint8_t *arena; /* private values of the plan */
    /* Where the values of each kind lie at present: those of one token, or of a chunk. */
    uint8_t *base[CF_VALUE_KIND_COUNT];
    size_t copies; /* of each value: 1, or the largest chunk */
    uint32_t slot; /* the token in hand, counted inside its chunk */
    int32_t token;
    float *scratch;    /* gate and up rows: 2 * padded hidden */
    float *scores;     /* [CF_QUERIES][cf_scores_stride()] */
    float *queries;    /* [CF_QUERIES][head_dim], then a key and the stored key and value rows: 3 * head_dim */
    float *rotation;   /* cos, sin: head_dim / 2 each */
    uint8_t *panels;   /* chunks only: cf_gemm_bytes() of the largest product */
    float *stripe;     /* chunks only: rows of one stripe, [parts][tokens][tile_rows] */
    uint32_t *choices; /* chunks only: see exec_batch_matrix.c */
    float best_logit;
    int32_t best_token;
    int logits_finite;
    uint32_t bad_slot;  /* first token of the chunk with a non-finite vector; CF_NONE when none */
    uint32_t bad_layer; /* and its first such layer */
    uint64_t counters[CFLOW_COUNTER_COUNT];
    uint64_t *trace; /* [trace_capacity][CF_TRACE_FIELDS] */
    size_t trace_count;
    cf_lane lane;
} cf_worker;

struct cflow_session {
    const cflow_model *model;
    struct cflow_options options; /* resolved */
    cf_plan *plan;
    cf_pool *pool;
    const cf_kv_ops *kv_ops;
    uint32_t context;
    uint32_t batch; /* most tokens of a chunk; 1: no chunks */
    uint32_t position;

    const uint8_t *data;      /* tensor i at data + place[i]: the mapping, or the copy */
    uint64_t *place;          /* [tensor_count]; UINT64_MAX for one that lies in `experts` or `stream` */
    cf_memory copied;         /* residency copy; direct: what is not in the expert bank, nor streamed */
    cf_reader *reader;        /* residency direct, of `experts` and `stream`; NULL without both */
    cf_experts *experts;      /* residency direct, of a model that has any; else NULL */
    cf_stream *stream;        /* with option stream_bytes; else NULL */
    uint64_t readahead_bytes; /* of one MADV_WILLNEED; with option expert_advice */
    cf_memory row_major;      /* layout row-major */
    size_t *row_major_offset; /* [tensor_count], into row_major */
    cf_memory kv;             /* keys then values: [layer][kv_head][context][head_dim] */
    size_t kv_half_bytes;
    uint64_t held_bytes; /* of all its memory, as mapped */
    cf_memory private_arenas;
    size_t worker_bytes;    /* of private_arenas, for each worker */
    cf_memory shared_arena; /* shared values, then the logits */
    cf_memory batch_arena;  /* every value `batch` times: private, then shared ones; then rotations */
    cf_memory batch_scratch;
    float *batch_rotation; /* [batch][head_dim]: cos and sin per token of the chunk */
    cf_worker *workers;
    size_t trace_capacity;
    cf_lane lane;           /* of tokens and reads */
    int32_t *routing;       /* [layers * experts_per_token] */
    float *routing_weights; /* likewise */
    float *residual_norms;  /* [layers], arch1: [2 * layers] */
    size_t residual_count;

    /* the call in progress */
    int busy;
    int has_logits; /* the last call ended with a whole token; logits, routing and norms are its */
    const int32_t *feed;
    size_t feed_count;
    int generate;
    float *logits_out;
    float *all_logits; /* [feed_count][vocab]: of every token; NULL when those of the last are enough */
    int32_t *tokens_out;
    uint64_t *ns_out;
    size_t done;
    uint32_t chunk; /* tokens that are worked on together, from feed[done] on */
    int32_t token;  /* the one token when chunk = 1 */
    int want_logits;
    uint64_t token_start_ns;
    _Atomic uint64_t first_in_ns;
    uint32_t phase;              /* of the one token */
    uint64_t storage_wait_ns;    /* in the last barrier */
    const int32_t *read_experts; /* a pure read: [read_rows][experts_per_token] */
    size_t read_rows;
    uint64_t *read_ns_out;
    uint64_t device_start_bytes; /* cf_storage_read_bytes() at the start */
    int job_status;
    char job_message[CF_ERROR_BYTES]; /* of all but CFLOW_ERR_CANCELLED and CFLOW_ERR_NONFINITE */
    uint32_t job_bad_layer;
    _Atomic int abort;
    _Atomic int cancel;
    uint64_t tokens;
    uint64_t wall_ns;
    uint64_t phases;
    uint64_t device_bytes;
    cf_reader_totals reader_start; /* of the reader and of the store of experts when the counters were last reset */
    uint64_t hits_start;
};

static inline const uint8_t *cf_tensor_data(const cflow_session *session, const cf_tensor *tensor)
{
    return session->data + session->place[tensor - session->model->tensors];
}

/* residency.c */
int cf_residency_map(cflow_session *session);  /* weights are read from the mapping; the others come after it */
int cf_residency_copy(cflow_session *session); /* from a copy */
/* A copy of all but the experts, which are read from the file within the budget of the options. */
int cf_residency_direct(cflow_session *session);
/* Anonymous memory that the session holds. */
uint64_t cf_residency_memory(const cflow_session *session);
int cf_residency_row_major(cflow_session *session);
/*
 * NUMA node, as `nodes` numbers them, on which each chunk of the copy (load.h) should lie: that of the workers that read
 * most of it. chunk_node: [cf_load_chunks()].
 */
int cf_residency_chunk_nodes(const cf_plan *plan, const cf_spans *spans, const cf_worker_nodes *nodes,
                             uint32_t *chunk_node);
/* Has every worker be the first to touch its working memory, which then lies on its node. */
void cf_residency_touch(cflow_session *session);

/* exec_batch_memory.c: what chunks of a prompt need beside the memory of single tokens; nothing when batch is 1. */
int cf_batch_memory(cflow_session *session);

/* events.c: nothing is recorded any more. */
void cf_events_close(cflow_session *session);

/* exec.c: the job that runs the tokens of a call on every worker. */
void cf_exec_job(void *session, int thread);
/* Likewise for a call that only reads experts. */
void cf_exec_read_job(void *session, int thread);

#endif
