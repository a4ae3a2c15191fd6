/*
 * cflow.h - decode engine for quantised transformers on CPUs: the public C interface and its manual.
 *
 * CONVENTIONS
 *   Status      Every function that can fail returns a cflow_status (0 = CFLOW_OK). cflow_last_error() then gives
 *               one sentence, valid on the calling thread until its next call into the library.
 *   Handles     Opaque. The caller of *_create / *_open owns the handle and must pass it to *_destroy / *_close once.
 *               Passing NULL to *_destroy / *_close is allowed; passing NULL elsewhere gives CFLOW_ERR_ARGUMENT.
 *   Buffers     Owned by the caller; the library keeps no pointer to them after the call returns.
 *   Threads     A model may be shared by any number of sessions and threads. A session, pool or options handle is used
 *               by one thread at a time, except cflow_session_cancel(), which is async-signal-safe.
 *   Side effects The library never prints, aborts, exits, or changes a signal handler, locale or floating-point mode.
 *               Its threads block all signals but those of a fault (SIGSEGV, SIGBUS, ...): other handlers run on the
 *               threads of the application alone.
 *   Units       Names end in their unit: _bytes, _ns (CLOCK_MONOTONIC), _rows. MiB is 2^20 bytes.
 *   Structs     No struct crosses this interface: parameters, counters and pieces are read as integers by index, and
 *               every index has a name (cflow_*_name), so that a caller never depends on a C layout.
 *
 * FILE FORMAT .cflow and .vflow, version 1 (little-endian; offsets in bytes from the start of the file)
 *   Header, 512 bytes:
 *     off size type  field
 *       0    8 char  magic "CFLOW\r\n\x1a"
 *       8    4 u32   format version = 1
 *      12    4 u32   header_bytes = 512
 *      16    8 u64   file_bytes, the length of the whole file
 *      24    8 u64   table_offset: tensor table (64-byte aligned, >= 512)
 *      32    4 u32   tensor_count (1 .. 1,048,576)
 *      36    4 u32   tensor_entry_bytes = 128
 *      40    8 u64   expert_offset: expert offset table (64-byte aligned), 0 when there are no experts
 *      48    4 u32   expert_entry_count = blocks * experts
 *      52    4 u32   expert_entry_bytes = 32
 *      56    8 u64   tokenizer_offset, 0 when there is none
 *      64    8 u64   tokenizer_bytes (0 .. 2^28; a UTF-8 tokenizer.json of the Hugging Face tokenizers library)
 *      72    8 u64   tokenizer_hash
 *      80    8 u64   tables_hash: XXH64 of the tensor table followed by the expert offset table
 *      88    8 u64   data_offset: first byte of tensor data (4,096-byte aligned)
 *      96    4 u32   order of the data (cflow_order): 0 in a .cflow file, 1 or 2 in a .vflow file; zeros up to byte 128
 *     128  4*n u32   parameters, one per cflow_param in its order, n = CFLOW_PARAM_COUNT (floats as IEEE-754 bits);
 *                    unused up to byte 440 is zero
 *     440   64 char  model name, UTF-8 without control characters, NUL-padded, at least one NUL
 *     504    8 u64   header_hash: XXH64 of bytes 0..503
 *   All hashes are XXH64 with seed 0.
 *   Tensor table entry, 128 bytes:
 *       0    4 u32   role (cflow_role)
 *       4    4 u32   block index (unique block, not layer application); 0xffffffff for model-wide tensors
 *       8    4 u32   expert index; 0xffffffff for tensors outside the expert bank
 *      12    4 u32   type (cflow_type)
 *      16    4 u32   parts: 1, 2 (gate, up) or 3 (q, k, v); matrices fused by output stripe
 *      20    4 u32   reserved = 0
 *      24    8 u64   rows of part 0
 *      32    8 u64   rows of part 1 (0 if parts < 2)
 *      40    8 u64   rows of part 2 (0 if parts < 3)
 *      48    8 u64   columns (1 for a vector of `rows` values)
 *      56    8 u64   offset of the data (64-byte aligned)
 *      64    8 u64   length of the data in bytes, padding included; must equal the size that the shape gives
 *      72    8 u64   XXH64 of the data
 *      80   48 char  name, printable ASCII, not empty, NUL-padded, at least one NUL ("blk.0.attn_qkv",
 *                    "blk.3.exp.7.gate_up", ...)
 *   Expert offset table entry, 32 bytes, in order block * experts + expert: u64 offset (4,096-byte aligned),
 *     u64 length (both matrices of the expert and alignment between), u64 XXH64 of those bytes, u64 reserved = 0.
 *     The expert's gate_up tensor lies at its offset; the down tensor follows at the next 64-byte boundary.
 *   Order of data. Writers keep to the one that the header states; readers go by the tables and accept any.
 *   0, layer-major, the order in which an undelayed token uses them: embedding (unless tied), then per block:
 *     attn_norm, attn_qkv (and biases), attn_q_norm, attn_k_norm, attn_output, register, ffn_norm, moe_norm,
 *     ffn_gate_up, router, ffn_down; then output_norm, head (or the tied embedding); then the expert bank (4,096-byte
 *     aligned blobs), block by block.
 *   1, stage-major by phase: embedding (unless tied); then phase by phase of the schedule with the file's delays, what the
 *     pieces of the phase read: first the vectors, then the matrices, both in the order of the pieces, and what several
 *     phases read where the first one does; then the bank as above, for nobody knows the routing when the file is written.
 *   2, stage-major by kind: embedding (unless tied); then role by role in the order above each role of all blocks;
 *     output_norm, head (or the tied embedding); then expert 0 of all blocks, expert 1 of all blocks, ...
 *   A reader refuses a role that it does not know: roles can be added without a new version, and older files stay valid.
 *   Regions must not overlap and must end within the file. A writer zero-fills gaps.
 *
 * MATRIX DATA ("tiles")
 *   A matrix of R rows and C columns (C a multiple of 32) is cut into stripes of tile_rows rows and, inside a stripe,
 *   slices of tile_cols columns: tile (i, j). The last of either may be smaller; rows are padded to 16 with zeros.
 *   A stripe's tiles lie in ascending j. For a fused tensor of P parts, stripe i holds for each j the tiles
 *   Part0(i,j), Part1(i,j), Part2(i,j), of those parts that have a stripe i.
 *   A tile is a sequence of groups of 16 rows. A group covers nb = columns / 32 blocks and is stored as sections,
 *   each padded with zeros to 64 bytes:
 *     q4_0: scales  f16 [nb][16]             value = scale * (code - 8)
 *           codes   u8  [nb][4][16][4]       byte (b,k,r,j): row r; low nibble column 32b + 8k + j,
 *                                            high nibble column 32b + 8k + 4 + j
 *     q4_1: scales f16 [nb][16]; minima f16 [nb][16]; codes as q4_0     value = scale * code + minimum
 *     q8_0: scales f16 [nb][16]; codes i8 [nb][8][16][4]: row r, column 32b + 4k + j    value = scale * code
 *     f16:  values f16 [columns][16]         f32: values f32 [columns][16]
 *   A 128 x 256 tile has 18,432 bytes in q4_0, 20,480 in q4_1, 34,816 in q8_0.
 *   A vector (norm gain, bias) is `rows` f32 values, zero-padded to 64 bytes; type f32, columns = 1.
 */
#ifndef CFLOW_H
#define CFLOW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CFLOW_API __attribute__((visibility("default")))
#else
#define CFLOW_API
#endif

#define CFLOW_ABI_VERSION 1

/* ---- status ------------------------------------------------------------------------------------------------- */

typedef enum cflow_status {
    CFLOW_OK = 0,
    CFLOW_ERR_ARGUMENT = 1,    /* an argument is NULL, out of range, or not allowed in this state */
    CFLOW_ERR_MEMORY = 2,      /* allocation failed */
    CFLOW_ERR_IO = 3,          /* a system call on a file failed; the message names path and errno */
    CFLOW_ERR_FORMAT = 4,      /* the file is not a valid model file; the message names the field */
    CFLOW_ERR_CHECKSUM = 5,    /* data do not match their hash; the message names the tensor or expert */
    CFLOW_ERR_UNSUPPORTED = 6, /* this CPU, kernel or build cannot do what was asked */
    CFLOW_ERR_CONTEXT = 7,     /* the token does not fit in the context length */
    CFLOW_ERR_NONFINITE = 8,   /* a non-finite value reached the logits; the message names the layer */
    CFLOW_ERR_CANCELLED = 9,   /* cflow_session_cancel() ended the call; the session is at the last whole token */
    CFLOW_ERR_INTERRUPTED = 10 /* a signal may have arrived while waiting (also given every 100 ms, for handlers that
                                  restart system calls); the work goes on: call cflow_session_wait() */
} cflow_status;

CFLOW_API int cflow_abi_version(void);
CFLOW_API const char *cflow_status_name(int status); /* "CFLOW_OK", ...; never NULL */
CFLOW_API const char *cflow_last_error(void);        /* never NULL; "" before the first failure on this thread */
CFLOW_API const char *cflow_build_info(void);        /* compiler, flags and mutant ("none"), one line */

/* ---- types and instruction sets ------------------------------------------------------------------------------ */

typedef enum cflow_type {
    CFLOW_TYPE_F32 = 0,
    CFLOW_TYPE_F16 = 1,
    CFLOW_TYPE_Q4_0 = 2, /* 18 bytes per 32 weights */
    CFLOW_TYPE_Q4_1 = 3, /* 20 bytes per 32 weights */
    CFLOW_TYPE_Q8_0 = 4, /* 34 bytes per 32 weights */
    CFLOW_TYPE_COUNT = 5
} cflow_type;

typedef enum cflow_isa {
    CFLOW_ISA_SCALAR = 0,
    CFLOW_ISA_AVX2 = 1,       /* AVX2, FMA, F16C */
    CFLOW_ISA_AVX512 = 2,     /* AVX-512 F, BW, VL, DQ */
    CFLOW_ISA_AVX512VNNI = 3, /* the above and AVX512_VNNI */
    CFLOW_ISA_NEONDOT = 4,    /* aarch64: NEON and its dot product instructions (FEAT_DotProd) */
    CFLOW_ISA_COUNT = 5
} cflow_isa;

CFLOW_API const char *cflow_type_name(int type); /* "f32", "q4_0", ... ; NULL when out of range */
CFLOW_API const char *cflow_isa_name(int isa);   /* "scalar", "avx2", ..., "neondot"; NULL when out of range */
CFLOW_API int cflow_isa_supported(int isa);      /* 1 when this CPU and OS run it, else 0 */
/* The default: the best supported set, lowered by the environment variable CFLOW_ISA when that names a supported one. */
CFLOW_API int cflow_isa_default(void);

/* ---- models --------------------------------------------------------------------------------------------------- */

/* Header parameters in file order. *_BITS are floats as IEEE-754 bits. */
typedef enum cflow_param {
    CFLOW_PARAM_LAYERS = 0,  /* layer applications: 1 .. 4,096 */
    CFLOW_PARAM_BLOCKS = 1,  /* unique blocks; layer l uses block l mod blocks; layers unless weights are shared */
    CFLOW_PARAM_D_MODEL = 2, /* multiple of 32 */
    CFLOW_PARAM_HEADS = 3,
    CFLOW_PARAM_KV_HEADS = 4,   /* divides heads */
    CFLOW_PARAM_HEAD_DIM = 5,   /* even; heads * head_dim a multiple of 32 */
    CFLOW_PARAM_FFN_HIDDEN = 6, /* dense hidden size, multiple of 32; 0 = no dense FFN */
    CFLOW_PARAM_EXPERTS = 7,    /* 0 = no experts */
    CFLOW_PARAM_EXPERTS_PER_TOKEN = 8,
    CFLOW_PARAM_EXPERT_HIDDEN = 9, /* multiple of 32; 0 = no experts */
    CFLOW_PARAM_VOCAB = 10,
    CFLOW_PARAM_CONTEXT = 11,      /* largest number of positions */
    CFLOW_PARAM_ARCHITECTURE = 12, /* cflow_architecture */
    CFLOW_PARAM_DENSE_DELAY = 13,  /* dd, in layers of the same token; 0 .. 64 */
    CFLOW_PARAM_EXPERT_DELAY = 14, /* de; 0 .. 64 */
    CFLOW_PARAM_ROUTE = 15,        /* cflow_route */
    CFLOW_PARAM_ACTIVATION = 16,   /* cflow_activation */
    CFLOW_PARAM_NORM_TOPK = 17,    /* 1 = the chosen router probabilities are renormalised to sum 1 */
    CFLOW_PARAM_TILE_ROWS = 18,    /* multiple of 16, 16 .. 4,096 */
    CFLOW_PARAM_TILE_COLS = 19,    /* multiple of 32, 32 .. 65,536 */
    CFLOW_PARAM_RMS_EPS_BITS = 20,
    CFLOW_PARAM_ROPE_BASE_BITS = 21, /* pairs (i, i + head_dim / 2) are rotated by position * base^(-2i / head_dim) */
    CFLOW_PARAM_TIED_HEAD = 22,      /* 1 = the embedding is the head */
    CFLOW_PARAM_BOS = 23,            /* token ids, less than vocab; 0xffffffff = none */
    CFLOW_PARAM_EOS = 24,
    CFLOW_PARAM_COUNT = 25
} cflow_param;

/* How blocks are combined. Equations: engine/reference/forward.py. */
typedef enum cflow_architecture {
    CFLOW_ARCH_DELAYED = 0,    /* DelayedSum and AsyncExperts: standard pre-norm at dd = de = 0 */
    CFLOW_ARCH_TWO_STREAM = 1, /* arch1, ParallelSqrt2 */
    CFLOW_ARCH_REGISTER = 2,   /* arch3, pipeline registers */
    CFLOW_ARCH_COUNT = 3
} cflow_architecture;

typedef enum cflow_route { CFLOW_ROUTE_CURRENT = 0, CFLOW_ROUTE_PRE_DENSE = 1 } cflow_route;
typedef enum cflow_activation { CFLOW_ACT_GEGLU = 0, CFLOW_ACT_SWIGLU = 1 } cflow_activation; /* exact erf GELU; SiLU */

typedef enum cflow_role {
    CFLOW_ROLE_EMBEDDING = 0,       /* [vocab x d_model] */
    CFLOW_ROLE_ATTN_NORM = 1,       /* vector d_model; gain of Na */
    CFLOW_ROLE_ATTN_QKV = 2,        /* 3 parts: [heads*head_dim | kv_heads*head_dim | kv_heads*head_dim] x d_model */
    CFLOW_ROLE_ATTN_QKV_BIAS = 3,   /* optional vector, q then k then v */
    CFLOW_ROLE_ATTN_OUTPUT = 4,     /* [d_model x heads*head_dim] */
    CFLOW_ROLE_FFN_NORM = 5,        /* vector d_model; gain of Nf; absent without a dense FFN */
    CFLOW_ROLE_FFN_GATE_UP = 6,     /* 2 parts: [hidden | hidden] x d_model */
    CFLOW_ROLE_FFN_DOWN = 7,        /* [d_model x hidden] */
    CFLOW_ROLE_MOE_NORM = 8,        /* vector d_model; gain of Nm; absent without experts */
    CFLOW_ROLE_ROUTER = 9,          /* [experts x d_model], f32 */
    CFLOW_ROLE_REGISTER = 10,       /* vector d_model: w of arch3, a = sigmoid(w) */
    CFLOW_ROLE_OUTPUT_NORM = 11,    /* vector d_model; gain of Nz */
    CFLOW_ROLE_HEAD = 12,           /* [vocab x d_model]; absent when tied */
    CFLOW_ROLE_EXPERT_GATE_UP = 13, /* 2 parts: [expert_hidden | expert_hidden] x d_model; one type for the experts of a
                                       block, and one for their down matrices */
    CFLOW_ROLE_EXPERT_DOWN = 14,    /* [d_model x expert_hidden] */
    CFLOW_ROLE_ATTN_Q_NORM = 15,    /* optional vector head_dim, together with the next: gain of an RMSNorm over each
                                       head of q, behind the bias and before the rotation */
    CFLOW_ROLE_ATTN_K_NORM = 16,    /* the same for k */
    CFLOW_ROLE_COUNT = 17
} cflow_role;

/* How the data of a file are ordered; see FILE FORMAT. */
typedef enum cflow_order {
    CFLOW_ORDER_LAYER = 0, /* layer by layer: .cflow */
    CFLOW_ORDER_PHASE = 1, /* stage-major: phase by phase of the schedule with the file's delays */
    CFLOW_ORDER_KIND = 2,  /* stage-major: every matrix of one kind side by side, over all layers */
    CFLOW_ORDER_COUNT = 3
} cflow_order;

/* Fields of cflow_model_tensor, in order. */
typedef enum cflow_tensor_field {
    CFLOW_TENSOR_ROLE = 0,
    CFLOW_TENSOR_BLOCK = 1,  /* UINT32_MAX when model-wide */
    CFLOW_TENSOR_EXPERT = 2, /* UINT32_MAX outside the bank */
    CFLOW_TENSOR_TYPE = 3,
    CFLOW_TENSOR_PARTS = 4,
    CFLOW_TENSOR_ROWS0 = 5,
    CFLOW_TENSOR_ROWS1 = 6,
    CFLOW_TENSOR_ROWS2 = 7,
    CFLOW_TENSOR_COLUMNS = 8,
    CFLOW_TENSOR_OFFSET = 9,
    CFLOW_TENSOR_BYTES = 10,
    CFLOW_TENSOR_HASH = 11,
    CFLOW_TENSOR_FIELD_COUNT = 12
} cflow_tensor_field;

typedef struct cflow_model cflow_model;

/*
 * Opens and maps a file read-only. Header and tables are verified (hashes, ranges, overlaps, overflow); tensor data
 * are not touched, whatever their size. The file must not be changed or truncated while it is open.
 */
CFLOW_API int cflow_model_open(const char *path, cflow_model **model_out);
CFLOW_API void cflow_model_close(cflow_model *model); /* after all its sessions are destroyed */
CFLOW_API int cflow_model_param(const cflow_model *model, int param, uint32_t *value_out);
CFLOW_API const char *cflow_model_param_name(int param); /* "layers", "d_model", ...; NULL when out of range */
CFLOW_API const char *cflow_model_name(const cflow_model *model);
CFLOW_API uint64_t cflow_model_file_bytes(const cflow_model *model);
CFLOW_API int cflow_model_order(const cflow_model *model); /* cflow_order */
CFLOW_API const char *cflow_order_name(int order);         /* "layer", "phase", "kind"; NULL when out of range */
CFLOW_API uint32_t cflow_model_tensor_count(const cflow_model *model);
CFLOW_API int cflow_model_tensor(const cflow_model *model, uint32_t index,
                                 uint64_t fields_out[/* CFLOW_TENSOR_FIELD_COUNT */]);
CFLOW_API const char *cflow_model_tensor_name(const cflow_model *model, uint32_t index); /* owned by the model */
/* The raw stored bytes of a tensor, owned by the model. */
CFLOW_API int cflow_model_tensor_data(const cflow_model *model, uint32_t index, const void **data_out,
                                      uint64_t *bytes_out);
/* The tokenizer, owned by the model; *bytes_out = 0 when the file carries none. Its hash is verified here. */
CFLOW_API int cflow_model_tokenizer(const cflow_model *model, const char **json_out, uint64_t *bytes_out);

typedef enum cflow_advice {
    CFLOW_ADVICE_NORMAL = 0,    /* the kernel's default: a fault reads ahead, up to the device's read_ahead_kb */
    CFLOW_ADVICE_RANDOM = 1,    /* a fault reads its own page alone */
    CFLOW_ADVICE_SEQUENTIAL = 2 /* reads ahead more eagerly; pages behind may go early */
} cflow_advice;

/*
 * Tells the kernel how the mapping will be read (madvise on all of it), for all sessions of the model from now on. Only
 * this switches readahead off for faults: POSIX_FADV_RANDOM on the file does not. Errors: ARGUMENT, IO.
 */
CFLOW_API int cflow_model_advise(cflow_model *model, int advice);
/*
 * Reads all data: every tensor and expert hash, and every scale and float for finiteness. Reports the first fault with
 * tensor and block. cancel may be NULL; when *cancel becomes non-zero the call ends with CFLOW_ERR_CANCELLED.
 */
CFLOW_API int cflow_model_verify(const cflow_model *model, const volatile int *cancel);

/* ---- sessions ------------------------------------------------------------------------------------------------- */

typedef enum cflow_residency {
    CFLOW_RESIDENCY_MMAP = 0,  /* weights are read from the page cache through the mapping */
    CFLOW_RESIDENCY_COPY = 1,  /* weights are copied to anonymous memory (transparent huge pages), first touched by the
                                  NUMA node that will read them, and verified against their hashes */
    CFLOW_RESIDENCY_DIRECT = 2 /* so are all but the experts; those that the router chooses are read from the file, into
                                  memory of the session, and their matrices come in the last phases that the sums which
                                  add them allow (cflow_schedule_*). The mapping of the experts is never touched: a model
                                  may be larger than memory */
} cflow_residency;

/* Residency direct: when the read of a chosen expert is issued. Nothing else differs, the schedule neither. */
typedef enum cflow_expert_reads {
    CFLOW_EXPERT_READS_STAGED = 0, /* when the router has decided */
    CFLOW_EXPERT_READS_SYNC = 1    /* when the expert is needed */
} cflow_expert_reads;

/* Residency direct: when an expert that was read is compared with the hash of its blob. */
typedef enum cflow_verify {
    CFLOW_VERIFY_FIRST = 0, /* after its first read in this session */
    CFLOW_VERIFY_ALWAYS = 1,
    CFLOW_VERIFY_NEVER = 2
} cflow_verify;

/* Residency mmap: what the kernel is told of the experts that the router has chosen. */
typedef enum cflow_expert_advice {
    CFLOW_EXPERT_ADVICE_NONE = 0,
    CFLOW_EXPERT_ADVICE_WILLNEED = 1 /* MADV_WILLNEED, in calls of at most the device's read_ahead_kb */
} cflow_expert_advice;

/* Control arms: PREFETCHT0 over experts in every layer, when its router has decided; each worker hints at a share. */
typedef enum cflow_expert_hints {
    CFLOW_EXPERT_HINTS_NONE = 0,
    CFLOW_EXPERT_HINTS_LINEAR = 1,     /* all experts of the layer */
    CFLOW_EXPERT_HINTS_CONDITIONAL = 2 /* those that the router has chosen */
} cflow_expert_hints;

typedef enum cflow_layout {
    CFLOW_LAYOUT_TILED = 0,
    CFLOW_LAYOUT_ROW_MAJOR = 1 /* control arm: q4_0 matrices are rearranged row-major (GGUF blocks) at creation;
                                  needs CFLOW_RESIDENCY_COPY and a model whose matrices (router apart) are all q4_0 */
} cflow_layout;

typedef enum cflow_prefetch {
    CFLOW_PREFETCH_NONE = 0,
    CFLOW_PREFETCH_T0 = 1, /* x86: PREFETCHT0; aarch64: PRFM PLDL1KEEP */
    CFLOW_PREFETCH_T1 = 2, /* PREFETCHT1, PLDL2KEEP */
    CFLOW_PREFETCH_T2 = 3, /* PREFETCHT2, PLDL3KEEP */
    CFLOW_PREFETCH_NTA = 4 /* PREFETCHNTA, PLDL1STRM */
} cflow_prefetch;

/* What reads a file beside the computation. */
typedef enum cflow_reader {
    CFLOW_READER_AUTO = 0,     /* io_uring, or threads where it is refused */
    CFLOW_READER_IO_URING = 1, /* UNSUPPORTED where it is refused */
    CFLOW_READER_THREADS = 2,
    CFLOW_READER_COUNT = 3
} cflow_reader;

typedef enum cflow_read_path {
    CFLOW_READ_PATH_DIRECT = 0,   /* past the page cache (O_DIRECT); resolves to buffered where that is refused or means
                                     nothing: tmpfs, FUSE */
    CFLOW_READ_PATH_BUFFERED = 1, /* through the page cache */
    CFLOW_READ_PATH_COUNT = 2
} cflow_read_path;

typedef enum cflow_option {
    CFLOW_OPTION_ISA = 0,     /* cflow_isa; default cflow_isa_default() */
    CFLOW_OPTION_THREADS = 1, /* 1 .. 256; default cflow_threads_default() */
    CFLOW_OPTION_PIN = 2,     /* 1 (default) = pin each worker to a CPU of its own, physical cores first; resolves to
                                        0 when there are more workers than allowed CPUs */
    CFLOW_OPTION_Q8_ACTIVATIONS = 3, /* 1 (default) = activations quantised to 8 bits in blocks of 32; 0 = f32 */
    CFLOW_OPTION_FUSED = 4,  /* tiled only: 1 (default) = q/k/v and gate/up share each activation load; 0 = one after
                                another */
    CFLOW_OPTION_LAYOUT = 5, /* cflow_layout */
    CFLOW_OPTION_ROWS_PER_PASS = 6,  /* row-major only: 1 (default), 2, 4 or 8 */
    CFLOW_OPTION_RESIDENCY = 7,      /* cflow_residency; default mmap */
    CFLOW_OPTION_PREFETCH_HINT = 8,  /* cflow_prefetch; default none */
    CFLOW_OPTION_PREFETCH_BYTES = 9, /* distance ahead of the load, 64 .. 1 MiB; default 4,096 */
    CFLOW_OPTION_KV_F32 = 10,        /* 1 = KV cache in f32; 0 (default) = f16 */
    CFLOW_OPTION_CONTEXT = 11,       /* positions to reserve, 1 .. the model's context; -1 (default) = the model's */
    CFLOW_OPTION_DENSE_DELAY =
        12, /* overrides the file: the same weights under another schedule; -1 (default) = file */
    CFLOW_OPTION_EXPERT_DELAY = 13,     /* likewise */
    CFLOW_OPTION_ROUTE = 14,            /* cflow_route; -1 (default) = file */
    CFLOW_OPTION_READ_ALL_EXPERTS = 15, /* control arm: 1 = every expert is computed, the unrouted with weight 0 */
    CFLOW_OPTION_READ_STREAMS =
        16, /* tiled only: runs of rows that a worker reads side by side from a matrix, 1 to 4 (default): from memory
               faster than one; 1 = strictly in file order, and fused parts share each activation load instead */
    CFLOW_OPTION_PROMPT_BATCH = 17, /* tokens of a prompt that share each weight load, 1 .. 32; default 32. Same
                                           results for any value. Row-major, residency direct: 1 */
    /* 18 .. 24: residency direct; otherwise reported as their defaults. */
    CFLOW_OPTION_EXPERT_READS = 18, /* cflow_expert_reads; default staged */
    CFLOW_OPTION_READER = 19,       /* cflow_reader; default auto, reported as what runs */
    CFLOW_OPTION_READ_PATH = 20,    /* cflow_read_path; default direct, reported as what runs */
    CFLOW_OPTION_READ_BYTES = 21,   /* of one request, 4,096 .. 16 MiB, a multiple of 4,096; default 1 MiB */
    CFLOW_OPTION_READ_RATE =
        22,                   /* bytes per second of an emulated device, by waiting; 0 (default) = as fast as it is */
    CFLOW_OPTION_VERIFY = 23, /* cflow_verify; default first */
    CFLOW_OPTION_RAM_BUDGET =
        24, /* most bytes of anonymous memory (cflow_session_memory) of the session: what is left of them keeps experts,
               those used last. 0 (default) = room for the experts in flight alone, each use a read of its own. Too few:
               CFLOW_ERR_MEMORY, which says how many are needed */
    CFLOW_OPTION_EXPERT_ADVICE = 25, /* cflow_expert_advice; default none. Residency mmap only */
    CFLOW_OPTION_STREAM_BYTES =
        26, /* residency direct: 0 (default) = weights outside the expert bank are copied to memory; else they are read
               in order of use through a ring of so many bytes, or as many as are of use */
    CFLOW_OPTION_EXPERT_HINTS =
        27, /* cflow_expert_hints; default none. Prompts are then fed one by one. Not with residency direct or row-major
               layout: none */
    CFLOW_OPTION_EXPERT_HINT_STRIDE = 28, /* bytes between two of those hints: 64 (default) or 4,096 */
    CFLOW_OPTION_COUNT = 29
} cflow_option;

typedef struct cflow_options cflow_options;
typedef struct cflow_session cflow_session;

CFLOW_API int cflow_options_create(cflow_options **options_out); /* all defaults */
CFLOW_API void cflow_options_destroy(cflow_options *options);
CFLOW_API int cflow_options_set(cflow_options *options, int option, int64_t value); /* checks the range */
CFLOW_API int cflow_options_get(const cflow_options *options, int option, int64_t *value_out);
CFLOW_API const char *cflow_option_name(int option);
/* min(affinity mask, cgroup CPU quota rounded up, physical cores, 256), at least 1. */
CFLOW_API int cflow_threads_default(void);

typedef enum cflow_topology_field {
    CFLOW_TOPOLOGY_ONLINE = 0,          /* CPUs of the machine that are online */
    CFLOW_TOPOLOGY_ALLOWED = 1,         /* those in the affinity mask */
    CFLOW_TOPOLOGY_CORES = 2,           /* physical cores among the allowed CPUs; the rest are SMT siblings */
    CFLOW_TOPOLOGY_NODES = 3,           /* NUMA nodes among the allowed CPUs */
    CFLOW_TOPOLOGY_QUOTA_MILLICPUS = 4, /* tightest cgroup quota in thousandths of a CPU; 0 = none */
    CFLOW_TOPOLOGY_THREADS = 5,         /* cflow_threads_default() */
    CFLOW_TOPOLOGY_FIELD_COUNT = 6
} cflow_topology_field;

CFLOW_API const char *cflow_topology_field_name(int field); /* "online", ...; NULL when out of range */
/*
 * What the defaults were decided from. root: NULL for this machine, or a folder that holds copies of parts of /sys and
 * /proc of another one; what is missing there counts as one core per CPU, one node, no quota.
 */
CFLOW_API int cflow_topology(const char *root, uint64_t fields_out[/* CFLOW_TOPOLOGY_FIELD_COUNT */]);
/*
 * CPU and NUMA node of each of `threads` workers (1 .. allowed CPUs) of a pinned pool: physical cores first, spread
 * over the nodes, listed node by node. cpus_out, nodes_out: [threads].
 */
CFLOW_API int cflow_topology_place(const char *root, int threads, int32_t *cpus_out, int32_t *nodes_out);

/* options may be NULL (defaults). The session keeps a reference to the model: close the model after it. */
CFLOW_API int cflow_session_create(const cflow_model *model, const cflow_options *options, cflow_session **session_out);
CFLOW_API void cflow_session_destroy(cflow_session *session); /* waits for work in progress */
CFLOW_API int cflow_session_option(const cflow_session *session, int option, int64_t *value_out); /* as resolved */
CFLOW_API int cflow_session_reset(cflow_session *session); /* position 0, KV cache forgotten */
CFLOW_API int cflow_session_position(const cflow_session *session, uint32_t *position_out);
/* CPU that worker `thread` is bound to, as read back from the kernel; -1 when it is not bound to one. */
CFLOW_API int cflow_session_worker_cpu(const cflow_session *session, int thread, int *cpu_out);
/* Bytes of anonymous memory that the session holds: KV cache, buffers, copied weights, experts. */
CFLOW_API int cflow_session_memory(const cflow_session *session, uint64_t *kv_bytes_out, uint64_t *total_bytes_out);

/*
 * Feeds n tokens (each < vocab) at the current position. logits_out: NULL, or vocab floats for the last token. Up to
 * CFLOW_OPTION_PROMPT_BATCH tokens at once (a chunk) share each load of a weight; results do not depend on it.
 * Errors: CONTEXT before anything is computed when position + n exceeds the context; NONFINITE; CANCELLED; INTERRUPTED.
 * After CANCELLED the position counts the tokens of whole chunks, after NONFINITE those before the one that is named.
 * With residency direct also IO and CHECKSUM, which name the expert: the position counts the tokens before, and the next
 * call reads again.
 */
CFLOW_API int cflow_session_decode(cflow_session *session, const int32_t *tokens, size_t n, float *logits_out);
/*
 * As cflow_session_decode, with the logits of every token: logits_out takes n * vocab floats, token after token, the same
 * bits as of one token at a time. After an error those of the tokens that the position counts are right.
 */
CFLOW_API int cflow_session_decode_all(cflow_session *session, const int32_t *tokens, size_t n, float *logits_out);
/*
 * Greedy continuation inside the pool: feeds `token`, takes the argmax (ties: the lower id), feeds it, ... n times.
 * tokens_out: n ids. ns_out: NULL, or n durations in nanoseconds, one per token. Errors as cflow_session_decode.
 */
CFLOW_API int cflow_session_generate(cflow_session *session, int32_t token, size_t n, int32_t *tokens_out,
                                     uint64_t *ns_out);
/*
 * Residency direct: reads experts without computing, as a token does, in order, those of the next layer issued before the
 * last ones are waited for. experts: [tokens][layers][experts_per_token]. ns_out: time of it all. Counts in IO_WAIT_NS and
 * the counters after it. Errors: ARGUMENT; IO, CHECKSUM, CANCELLED, INTERRUPTED as cflow_session_decode.
 */
CFLOW_API int cflow_session_read_experts(cflow_session *session, const int32_t *experts, size_t tokens,
                                         uint64_t *ns_out);
/* Goes on waiting after CFLOW_ERR_INTERRUPTED; the buffers of the interrupted call must still be valid. */
CFLOW_API int cflow_session_wait(cflow_session *session);
/*
 * Async-signal-safe. Ends the call in progress, or the next one when none is, at the next phase boundary. A request that
 * arrives after the last phase of a call ends with that call, which succeeds.
 */
CFLOW_API void cflow_session_cancel(cflow_session *session);
/*
 * Logits of the last token, vocab floats. Like routing and residual norms: ARGUMENT before the first token, after a reset,
 * after a call that did not end well, and while a call is in progress.
 */
CFLOW_API int cflow_session_logits(const cflow_session *session, float *logits_out);

/*
 * Draws from softmax(logits / temperature) cut to the top_k largest (0 = all) and then to the smallest set whose
 * probability reaches top_p (1 = all). temperature 0 = argmax. rng_state: 64 bits, advanced by one draw (none at temperature 0); any value.
 */
CFLOW_API int cflow_sample(const float *logits, uint32_t vocab, float temperature, uint32_t top_k, float top_p,
                           uint64_t *rng_state, int32_t *token_out);

/* ---- accounting ----------------------------------------------------------------------------------------------- */

/*
 * Totals since creation or cflow_session_counters_reset(). Bytes are added by the workers where they call a kernel,
 * padding included; a chunk of a prompt loads its weights once. Nanoseconds of a stream are summed over the workers
 * ("thread-nanoseconds"). A token or chunk that ends in an error counts its bytes, stream times and phases so far, but
 * neither TOKENS nor WALL_NS. Not while a call is in progress.
 */
typedef enum cflow_counter {
    CFLOW_COUNTER_TOKENS = 0,
    CFLOW_COUNTER_WALL_NS = 1, /* first worker in to last worker out, summed over tokens and chunks */
    CFLOW_COUNTER_ATTENTION_BYTES = 2,
    CFLOW_COUNTER_DENSE_BYTES = 3,
    CFLOW_COUNTER_EXPERT_BYTES = 4,
    CFLOW_COUNTER_ROUTER_BYTES = 5,
    CFLOW_COUNTER_HEAD_BYTES = 6,
    CFLOW_COUNTER_EMBEDDING_BYTES = 7, /* the one row that is read, padding of its group not counted */
    CFLOW_COUNTER_KV_BYTES = 8,        /* keys and values, for each head that takes them in; not weights */
    CFLOW_COUNTER_ATTENTION_NS = 9,
    CFLOW_COUNTER_DENSE_NS = 10,
    CFLOW_COUNTER_EXPERT_NS = 11,
    CFLOW_COUNTER_ROUTER_NS = 12,
    CFLOW_COUNTER_HEAD_NS = 13,
    CFLOW_COUNTER_VECTOR_NS = 14,    /* norms, residuals, activation quantisation: replicated on every worker, or
                                      split over them in a chunk */
    CFLOW_COUNTER_BARRIER_NS = 15,   /* waiting for other workers at the end of a phase, or in front of its experts */
    CFLOW_COUNTER_PHASES = 16,       /* of tokens and of chunks */
    CFLOW_COUNTER_IO_WAIT_NS = 17,   /* computation stood still until a read of the session was there; once, not per
                                        worker. Residency direct, like 19 .. 21 */
    CFLOW_COUNTER_DEVICE_BYTES = 18, /* read from storage by this process during the calls (read_bytes of /proc/self/io;
                                        0 where nobody counts): all reads of a call are over when it ends. Not for
                                        residency copy */
    CFLOW_COUNTER_ASKED_BYTES = 19,  /* asked of the reader, rounding to 4,096 included */
    CFLOW_COUNTER_READ_NS = 20,      /* in which a read was under way, from its issue until it was found complete */
    CFLOW_COUNTER_EXPERT_HITS = 21,  /* uses of experts that needed no read of their own */
    CFLOW_COUNTER_HINTS = 22,        /* given by CFLOW_OPTION_EXPERT_HINTS */
    CFLOW_COUNTER_COUNT = 23
} cflow_counter;

CFLOW_API const char *cflow_counter_name(int counter);
CFLOW_API int cflow_session_counters(const cflow_session *session, uint64_t values_out[/* CFLOW_COUNTER_COUNT */]);
CFLOW_API int cflow_session_counters_reset(cflow_session *session);

/* Chosen experts of the last token: layers * experts_per_token indices, ascending per layer, and their weights. */
CFLOW_API int cflow_session_routing(const cflow_session *session, int32_t *experts_out, float *weights_out);
/* Euclidean norm of the residual stream after each layer of the last token: layers floats (arch1: of s, then of t). */
CFLOW_API int cflow_session_residual_norms(const cflow_session *session, float *norms_out, size_t count);

enum { CFLOW_TRACE_HINT = 1 << 30 }; /* added to the phase of a range that was hinted at, not loaded */
/*
 * Trace of weight loads, recorded where a worker calls the kernel: for each call (file offset, bytes, thread, phase);
 * in a chunk for each tile once, whatever the number of its tokens. Ranges of CFLOW_OPTION_EXPERT_HINTS stand in it too.
 * capacity: records kept per thread, 0 = off (default). Only for tiled layout.
 */
CFLOW_API int cflow_session_trace(cflow_session *session, size_t capacity);
/* Copies up to `count` records of worker `thread` from `first` on, 4 uint64 each; *total_out = records made. */
CFLOW_API int cflow_session_trace_read(const cflow_session *session, int thread, size_t first, size_t count,
                                       uint64_t *records_out, size_t *total_out);

/*
 * Events of a token: what each worker did when, and the session's reads. They are timed by the clock readings that the
 * counters are made of, and recorded for tokens that are worked on one by one: not for chunks of a prompt, nor by
 * cflow_session_read_experts(), and not for a read that failed or was dropped. Events lie in lanes: one for each worker,
 * in which they follow each other without overlapping, and behind those the lane of the session.
 *
 * A barrier lies in front of the piece that it names, else at the end of its phase, and lasts from the worker's arrival
 * until it goes on: the last one of a token ends a little after the token. A read lasts from its issue until all of it
 * was there: by the clock of the thread that read it; with io_uring until that was noticed, at the end of a phase or by
 * whoever waits for it; and not less than an emulated device takes. Its token, phase and piece are those that use it
 * first. In the wait for a read computation stands still: all workers are at a barrier, or, for the first weights of a
 * call that streams them, have not begun.
 */
typedef enum cflow_event_kind {
    CFLOW_EVENT_TOKEN = 0,     /* session: a token, as cflow_session_generate() times it */
    CFLOW_EVENT_VECTOR = 1,    /* worker: the vector operations at the beginning of a phase */
    CFLOW_EVENT_PIECE = 2,     /* worker: its share of a piece */
    CFLOW_EVENT_BARRIER = 3,   /* worker */
    CFLOW_EVENT_READ = 4,      /* session: of weights */
    CFLOW_EVENT_READ_WAIT = 5, /* session: for that read */
    CFLOW_EVENT_KIND_COUNT = 6
} cflow_event_kind;

typedef enum cflow_event_field {
    CFLOW_EVENT_FIELD_KIND = 0,
    CFLOW_EVENT_FIELD_START_NS = 1,
    CFLOW_EVENT_FIELD_END_NS = 2,
    CFLOW_EVENT_FIELD_TOKEN = 3, /* its position */
    CFLOW_EVENT_FIELD_PHASE = 4, /* UINT64_MAX of a token */
    CFLOW_EVENT_FIELD_PIECE = 5, /* as cflow_schedule_piece() counts; UINT64_MAX: none */
    CFLOW_EVENT_FIELD_BYTES = 6, /* of a read, as asked of the reader; else 0 */
    CFLOW_EVENT_FIELD_COUNT = 7
} cflow_event_field;

CFLOW_API const char *cflow_event_kind_name(int kind); /* "token", "vector", ...; NULL when out of range */
/*
 * Starts recording afresh. capacity: events kept per lane, the first ones; 0 = off (default). Over whole tokens the waits
 * for reads add up to IO_WAIT_NS, and the barriers of a worker, less the waits in the meantime, to its part of BARRIER_NS.
 */
CFLOW_API int cflow_session_events(cflow_session *session, size_t capacity);
/*
 * Copies up to `count` events of a lane from `first` on, CFLOW_EVENT_FIELD_COUNT values each. *total_out = events made: what
 * exceeds the capacity was not kept.
 */
CFLOW_API int cflow_session_events_read(const cflow_session *session, int lane, size_t first, size_t count,
                                        uint64_t *records_out, size_t *total_out);

/* ---- the schedule --------------------------------------------------------------------------------------------- */

typedef enum cflow_piece_kind {
    CFLOW_PIECE_QKV = 0,
    CFLOW_PIECE_ATTENTION = 1, /* scores, softmax, weighted values: no weights */
    CFLOW_PIECE_OUTPUT = 2,
    CFLOW_PIECE_GATE_UP = 3,
    CFLOW_PIECE_DOWN = 4,
    CFLOW_PIECE_ROUTER = 5,
    CFLOW_PIECE_EXPERT_GATE_UP = 6,
    CFLOW_PIECE_EXPERT_DOWN = 7,
    CFLOW_PIECE_HEAD = 8,
    CFLOW_PIECE_KIND_COUNT = 9
} cflow_piece_kind;

typedef enum cflow_piece_field {
    CFLOW_PIECE_KIND = 0,
    CFLOW_PIECE_LAYER = 1,   /* layer application; UINT64_MAX for the head */
    CFLOW_PIECE_SLOT = 2,    /* expert slot 0 .. k-1 (all experts: 0 .. E-1), else 0 */
    CFLOW_PIECE_STREAM = 3,  /* cflow_stream */
    CFLOW_PIECE_PHASE = 4,   /* level of the graph; the executor runs phases in order with a barrier after each */
    CFLOW_PIECE_WEIGHTS = 5, /* number of weights, padding excluded */
    CFLOW_PIECE_BYTES = 6,   /* stored bytes that a token reads, padding included */
    CFLOW_PIECE_FIELD_COUNT = 7
} cflow_piece_field;

typedef enum cflow_stream {
    CFLOW_STREAM_ATTENTION = 0,
    CFLOW_STREAM_DENSE = 1,
    CFLOW_STREAM_EXPERT = 2,
    CFLOW_STREAM_ROUTER = 3,
    CFLOW_STREAM_HEAD = 4,
    CFLOW_STREAM_COUNT = 5
} cflow_stream;

CFLOW_API const char *cflow_piece_kind_name(int kind);
CFLOW_API const char *cflow_stream_name(int stream);
CFLOW_API uint32_t cflow_schedule_phase_count(const cflow_session *session);
CFLOW_API uint32_t cflow_schedule_piece_count(const cflow_session *session);
CFLOW_API int cflow_schedule_piece(const cflow_session *session, uint32_t piece,
                                   uint64_t fields_out[/* CFLOW_PIECE_FIELD_COUNT */]);
/* Pieces whose results `piece` needs. Copies up to `count` of them; *total_out = how many there are. */
CFLOW_API int cflow_schedule_dependencies(const cflow_session *session, uint32_t piece, uint32_t *pieces_out,
                                          size_t count, size_t *total_out);

/* ---- kernels, for tests and measurement ------------------------------------------------------------------------- */

/*
 * Kernels are named type_operation_tile_isa: "q4_0q8_gemv_t16_avx2" (tiles; 16-row groups of any tile shape),
 * "q4_0f32_gemv_r4_scalar" (row-major, 4 rows per pass), "q4_0q8_gemm_t16x4_avx2" (tiles; 4 vectors at once).
 */
CFLOW_API uint32_t cflow_kernel_count(void);
CFLOW_API const char *cflow_kernel_name(uint32_t kernel); /* NULL when out of range */

typedef enum cflow_kernel_field {
    CFLOW_KERNEL_TYPE = 0, /* cflow_type of the weights */
    CFLOW_KERNEL_Q8 = 1,   /* 1 = q8 activations, 0 = f32 */
    CFLOW_KERNEL_ISA = 2,
    CFLOW_KERNEL_ROWS_PER_PASS = 3, /* 0 = tiled, else the row-major twin */
    CFLOW_KERNEL_SUPPORTED = 4,     /* 1 when this CPU runs it */
    CFLOW_KERNEL_VECTORS = 5,       /* vectors that it multiplies at once: 1, or 4 ("gemm") */
    CFLOW_KERNEL_FIELD_COUNT = 6
} cflow_kernel_field;
CFLOW_API int cflow_kernel_info(uint32_t kernel, uint64_t fields_out[/* CFLOW_KERNEL_FIELD_COUNT */]);

/* Stored bytes of a matrix of one part, in tiles. Errors: ARGUMENT (zero or odd sizes), FORMAT (overflow). */
CFLOW_API int cflow_tiles_bytes(int type, uint64_t rows, uint64_t columns, uint32_t tile_rows, uint32_t tile_cols,
                                uint64_t *bytes_out);
/*
 * Between rows of GGUF blocks (q4_0, q4_1, q8_0) or plain values (f16, f32), row-major, and tiles. Lossless both ways.
 * `parts` (1..3) matrices with rows[p] rows each and the same columns; row_major[p]: rows[p] * row bytes.
 */
CFLOW_API int cflow_tiles_pack(int type, int parts, const uint64_t *rows, uint64_t columns, uint32_t tile_rows,
                               uint32_t tile_cols, const void *const *row_major, void *tiles_out, uint64_t tiles_bytes);
CFLOW_API int cflow_tiles_unpack(int type, int parts, const uint64_t *rows, uint64_t columns, uint32_t tile_rows,
                                 uint32_t tile_cols, const void *tiles, uint64_t tiles_bytes,
                                 void *const *row_major_out);
/*
 * y_out[rows] = W x for one matrix on the calling thread. weights: tiles for a tiled kernel (64-byte aligned), GGUF
 * blocks for a row-major one. x: `columns` floats; quantised inside when the kernel takes q8.
 */
CFLOW_API int cflow_gemv(uint32_t kernel, const void *weights, uint64_t weights_bytes, uint64_t rows, uint64_t columns,
                         uint32_t tile_rows, uint32_t tile_cols, const float *x, float *y_out);
/*
 * y_out[n][rows] = W x[n], n < vectors (1 .. 32), for a matrix-matrix kernel; x: [vectors][columns]. The rest as above.
 * Vector by vector the bits are those of the matrix-vector kernel of the same type, activations and instruction set,
 * which also multiplies what does not fill a group of 4 vectors.
 */
CFLOW_API int cflow_gemm(uint32_t kernel, const void *weights, uint64_t weights_bytes, uint64_t rows, uint64_t columns,
                         uint32_t tile_rows, uint32_t tile_cols, const float *x, uint32_t vectors, float *y_out);
/* The q8 form of x: `columns` codes, columns / 32 scales, and columns / 32 sums of codes. */
CFLOW_API int cflow_quantize_q8(const float *x, uint64_t columns, int8_t *codes_out, float *scales_out,
                                int32_t *sums_out);

/* ---- measurement in C ------------------------------------------------------------------------------------------- */

typedef struct cflow_pool cflow_pool;
CFLOW_API int cflow_pool_create(int threads, int pin, cflow_pool **pool_out);
CFLOW_API void cflow_pool_destroy(cflow_pool *pool);
CFLOW_API int cflow_pool_worker_cpu(const cflow_pool *pool, int thread, int *cpu_out);
/* Run-queue delay of one worker since creation: second field of its schedstat. UNSUPPORTED when the kernel keeps none. */
CFLOW_API int cflow_pool_run_delay(const cflow_pool *pool, int thread, uint64_t *delay_ns_out);
CFLOW_API int cflow_session_run_delay(const cflow_session *session, int thread, uint64_t *delay_ns_out);

/* Memory for the probes below: `bytes` on transparent huge pages (huge = 1) or 4 KiB pages, first touched by the workers. */
typedef struct cflow_arena cflow_arena;
CFLOW_API int cflow_arena_create(cflow_pool *pool, uint64_t bytes, int huge, cflow_arena **arena_out);
CFLOW_API void cflow_arena_destroy(cflow_arena *arena);
CFLOW_API void *cflow_arena_data(cflow_arena *arena);
/*
 * One pass of a read-only sum over the arena by all workers. pattern: 0 .. cflow_read_pattern_count() - 1 (streams per
 * thread, prefetch distance). ns_out: first worker in to last worker out. sum_out: so that nothing is optimised away.
 */
CFLOW_API int cflow_read_pattern_count(void);
CFLOW_API const char *cflow_read_pattern_name(int pattern);
CFLOW_API int cflow_probe_read(cflow_pool *pool, const cflow_arena *arena, int pattern, uint64_t *ns_out,
                               uint64_t *sum_out);
/* First touch of `bytes` of new memory on transparent huge pages by all workers; the memory is given back. */
CFLOW_API int cflow_probe_touch(cflow_pool *pool, uint64_t bytes, uint64_t *ns_out);
/*
 * The data of a model read as CFLOW_RESIDENCY_COPY reads them, but into memory that was touched before (not counted in
 * ns_out), and not verified. direct_bytes_out: read past the page cache, since they were not in it.
 */
CFLOW_API int cflow_probe_load(cflow_pool *pool, const cflow_model *model, uint64_t *ns_out,
                               uint64_t *direct_bytes_out);
/*
 * Ranges of a file, {offset, bytes} each (count: at least 1), read in order by the reader of sessions, with up to `depth`
 * (1 .. 4,096) outstanding, into buffers on huge pages that were touched before. request_bytes: as one read of the device,
 * 4 KiB .. 16 MiB in multiples of 4 KiB; bytes_per_s: of an emulated device, 0 = as fast as it is. out: NULL, or room for
 * the bytes of all ranges one after the other, copied as they come. Errors: ARGUMENT, MEMORY, IO, UNSUPPORTED.
 */
typedef enum cflow_reads_field {
    CFLOW_READS_READER = 0,      /* cflow_reader, as resolved */
    CFLOW_READS_PATH = 1,        /* cflow_read_path, likewise */
    CFLOW_READS_NS = 2,          /* from the first issue until the last byte is there */
    CFLOW_READS_ASKED_BYTES = 3, /* rounded outwards to 4 KiB */
    CFLOW_READS_WAIT_NS = 4,
    CFLOW_READS_READ_NS = 5, /* in which at least one read was under way, as far as seen */
    CFLOW_READS_ISSUE_NS = 6,
    CFLOW_READS_FIELD_COUNT = 7
} cflow_reads_field;
CFLOW_API int cflow_probe_reads(const char *path, int reader, int read_path, uint64_t request_bytes,
                                uint64_t bytes_per_s, uint32_t depth, const uint64_t *ranges, size_t count, void *out,
                                uint64_t fields_out[/* CFLOW_READS_FIELD_COUNT */]);
typedef enum cflow_walk_way {
    CFLOW_WALK_MMAP = 0,     /* through a mapping, one load per page: the kernel reads ahead as it does for faults */
    CFLOW_WALK_BUFFERED = 1, /* read calls through the page cache */
    CFLOW_WALK_DIRECT = 2,   /* read calls past it (O_DIRECT), rounded outwards to 4,096 bytes */
    CFLOW_WALK_COUNT = 3
} cflow_walk_way;

CFLOW_API const char *cflow_walk_way_name(int way); /* "mmap", "buffered", "direct"; NULL when out of range */
/*
 * Reads ranges of a file on the calling thread in the order given, `count` pairs (offset, bytes), multiples of 8. A read
 * call takes up to request_bytes (4,096 .. 64 MiB, a multiple of 4,096) of ranges that follow each other in the file with
 * less than 4,096 bytes between them. ns_out: from the first access to the last; opening and mapping are not in it.
 * digest_out: XXH64 of the 8 bytes at every 4,096th byte of each range and of its last 8, in the order of the ranges.
 * Errors: ARGUMENT, IO, UNSUPPORTED (the file system refuses O_DIRECT).
 */
CFLOW_API int cflow_probe_walk(const char *path, int way, const uint64_t *ranges, size_t count, uint64_t request_bytes,
                               uint64_t *ns_out, uint64_t *digest_out);
/* Multiply-add throughput of all workers in f32: total operations (a multiply-add counts 2) and wall time. */
CFLOW_API int cflow_probe_flops(cflow_pool *pool, int isa, uint64_t iterations, uint64_t *flops_out, uint64_t *ns_out);
/*
 * Pass over a matrix in the arena (filled by the caller) by all workers, rows split as in a session. y_out: rows floats.
 * hint, distance (0 .. 1 MiB), streams: as CFLOW_OPTION_PREFETCH_* and CFLOW_OPTION_READ_STREAMS; row-major kernels take
 * none of them.
 */
CFLOW_API int cflow_probe_gemv(cflow_pool *pool, const cflow_arena *arena, uint32_t kernel, uint64_t rows,
                               uint64_t columns, uint32_t tile_rows, uint32_t tile_cols, int hint, int64_t distance,
                               int streams, const float *x, float *y_out, uint64_t *ns_out);

/*
 * Prefetch hints over `bytes` of the model's mapping from `offset` of the file on, every `stride` bytes, on the calling
 * thread; nothing is loaded. hint: cflow_prefetch. hints_out: hints given; faults_out: page faults of the thread
 * meanwhile, minor and major.
 */
CFLOW_API int cflow_probe_hints(const cflow_model *model, uint64_t offset, uint64_t bytes, uint32_t stride, int hint,
                                uint64_t *hints_out, uint64_t *faults_out, uint64_t *ns_out);

/* What is done about the next block before this one is worked on. */
typedef enum cflow_ahead {
    CFLOW_AHEAD_NONE = 0,
    CFLOW_AHEAD_T0 = 1, /* a hint for each of its lines of 64 bytes; 1 .. 4 as cflow_prefetch */
    CFLOW_AHEAD_T1 = 2,
    CFLOW_AHEAD_T2 = 3,
    CFLOW_AHEAD_NTA = 4,
    CFLOW_AHEAD_WILLNEED = 5 /* MADV_WILLNEED, in calls of 128 KiB */
} cflow_ahead;

/*
 * Reads `bytes` of the model's mapping from `offset` on, block by block, each `passes` times, on the calling thread.
 * block_bytes: a multiple of 4,096; bytes: whole blocks. sum_out: depends on every word, and on nothing else.
 */
CFLOW_API int cflow_probe_blocks(const cflow_model *model, uint64_t offset, uint64_t bytes, uint64_t block_bytes,
                                 uint32_t passes, int ahead, uint64_t *ns_out, uint64_t *sum_out);

/* ---- recorded accesses and a cache model ------------------------------------------------------------------------ */

/*
 * A set-associative cache with LRU replacement. Loads and stores allocate alike. An access that touches several lines
 * looks all of them up, and counts as one miss when any was absent.
 */
typedef enum cflow_access_kind {
    CFLOW_ACCESS_WEIGHT = 0, /* load of codes or values */
    CFLOW_ACCESS_SCALE = 1,  /* load of scales or minima */
    CFLOW_ACCESS_ACTIVATION = 2,
    CFLOW_ACCESS_OUTPUT_LOAD = 3, /* tiled kernels add to what is there */
    CFLOW_ACCESS_OUTPUT_STORE = 4,
    CFLOW_ACCESS_KIND_COUNT = 5
} cflow_access_kind;

typedef enum cflow_access_field {
    CFLOW_ACCESS_FIELD_ACCESSES = 0,
    CFLOW_ACCESS_FIELD_BYTES = 1,
    CFLOW_ACCESS_FIELD_MISSES = 2,
    CFLOW_ACCESS_FIELD_COUNT = 3
} cflow_access_field;

typedef struct cflow_cache cflow_cache;
/* line_bytes: a power of two, 2 .. 4,096; ways: 1 .. 1,024; size_bytes: whole sets, at most 2^32. Empty at first. */
CFLOW_API int cflow_cache_create(uint64_t size_bytes, uint32_t ways, uint32_t line_bytes, cflow_cache **cache_out);
CFLOW_API void cflow_cache_destroy(cflow_cache *cache); /* not while it is recorded to */
/* Accesses in order, 3 uint64 each: address, bytes (1 .. 4,096), cflow_access_kind. Counted outside any piece. */
CFLOW_API int cflow_cache_run(cflow_cache *cache, const uint64_t *accesses, size_t count);
/* Counts since creation of one cflow_piece_kind, or of all that was outside any piece (CFLOW_PIECE_KIND_COUNT). */
CFLOW_API int cflow_cache_counts(const cflow_cache *cache, int piece,
                                 uint64_t *counts_out /* [CFLOW_ACCESS_KIND_COUNT][CFLOW_ACCESS_FIELD_COUNT] */);
/*
 * From now on every load and store of weights, prepared activations and results by the matrix kernels of this library,
 * in every session and call, also goes to `cache`; NULL ends it. What prepares activations, and attention, norms and
 * sums, is not recorded. Workers take turns at random: for a repeatable count of misses use one thread.
 * Only in libcflow_record, whose kernels are the same source compiled with recording loads: else CFLOW_ERR_UNSUPPORTED.
 */
CFLOW_API int cflow_record_to(cflow_cache *cache);

/* ---- faults of the device ---------------------------------------------------------------------------------------- */

typedef enum cflow_fault {
    CFLOW_FAULT_NONE = 0,
    CFLOW_FAULT_SHORT = 1,       /* half of the bytes */
    CFLOW_FAULT_ERROR = 2,       /* EIO */
    CFLOW_FAULT_AGAIN = 3,       /* EAGAIN */
    CFLOW_FAULT_INTERRUPTED = 4, /* EINTR */
    CFLOW_FAULT_DELAY = 5,       /* held back for 50 ms before the device hears of it */
    CFLOW_FAULT_END = 6,         /* the file ends here */
    CFLOW_FAULT_COUNT = 7
} cflow_fault;

/*
 * From now on, of the reads of all readers in this process: `after` go well, then `count` (UINT64_MAX: all) fail, the
 * rest goes well. A read is one request of the device; the second try of one counts again.
 * Only in libcflow_fault, which is the same source with this in the reader: else CFLOW_ERR_UNSUPPORTED.
 */
CFLOW_API int cflow_fault_set(int kind, uint64_t after, uint64_t count);

/* ---- data for synthetic models ---------------------------------------------------------------------------------- */

typedef struct cflow_hash cflow_hash; /* streaming XXH64, seed 0 */
CFLOW_API int cflow_hash_create(cflow_hash **hash_out);
CFLOW_API void cflow_hash_destroy(cflow_hash *hash);
CFLOW_API int cflow_hash_update(cflow_hash *hash, const void *data, uint64_t bytes);
CFLOW_API int cflow_hash_digest(const cflow_hash *hash, uint64_t *digest_out);
/*
 * Fills whole row groups of a tiled tensor with seeded random weights: quantised codes symmetric about their centre, scales
 * such that the weights have standard deviation `sigma`; f16/f32: uniform with that deviation. The bytes depend on (seed,
 * group index) alone. `nb` = column blocks of the groups; first_group counts groups of this tensor.
 */
CFLOW_API int cflow_fill_groups(int type, uint64_t seed, uint64_t first_group, uint64_t group_count, uint32_t blocks,
                                float sigma, void *out, uint64_t out_bytes);

#ifdef __cplusplus
}
#endif
#endif
