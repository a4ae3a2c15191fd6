"""Enumerations of the C interface, one class per enum of `include/cflow.h`, with the values of the header.

The header is the source; `tests/engine/test_native.py` parses it and compares names and values. Importing
this module needs no C library.
"""

from enum import IntEnum


class Status(IntEnum):
    """Result of every function that can fail."""

    OK = 0
    ERR_ARGUMENT = 1
    ERR_MEMORY = 2
    ERR_IO = 3
    ERR_FORMAT = 4
    ERR_CHECKSUM = 5
    ERR_UNSUPPORTED = 6
    ERR_CONTEXT = 7
    ERR_NONFINITE = 8
    ERR_CANCELLED = 9
    ERR_INTERRUPTED = 10


class Type(IntEnum):
    """Weight types."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q8_0 = 4


class Isa(IntEnum):
    """Instruction sets; those of one processor from the least to the most capable."""

    SCALAR = 0
    AVX2 = 1
    AVX512 = 2
    AVX512VNNI = 3
    NEONDOT = 4


class Param(IntEnum):
    """Header parameters in file order."""

    LAYERS = 0
    BLOCKS = 1
    D_MODEL = 2
    HEADS = 3
    KV_HEADS = 4
    HEAD_DIM = 5
    FFN_HIDDEN = 6
    EXPERTS = 7
    EXPERTS_PER_TOKEN = 8
    EXPERT_HIDDEN = 9
    VOCAB = 10
    CONTEXT = 11
    ARCHITECTURE = 12
    DENSE_DELAY = 13
    EXPERT_DELAY = 14
    ROUTE = 15
    ACTIVATION = 16
    NORM_TOPK = 17
    TILE_ROWS = 18
    TILE_COLS = 19
    RMS_EPS_BITS = 20
    ROPE_BASE_BITS = 21
    TIED_HEAD = 22
    BOS = 23
    EOS = 24


class Architecture(IntEnum):
    """How blocks are combined."""

    DELAYED = 0
    TWO_STREAM = 1
    REGISTER = 2


class Route(IntEnum):
    """What the router and the experts read."""

    CURRENT = 0
    PRE_DENSE = 1


class Activation(IntEnum):
    """Gate of the feed-forward network: exact (erf) GELU or SiLU."""

    GEGLU = 0
    SWIGLU = 1


class Role(IntEnum):
    """What a tensor is for."""

    EMBEDDING = 0
    ATTN_NORM = 1
    ATTN_QKV = 2
    ATTN_QKV_BIAS = 3
    ATTN_OUTPUT = 4
    FFN_NORM = 5
    FFN_GATE_UP = 6
    FFN_DOWN = 7
    MOE_NORM = 8
    ROUTER = 9
    REGISTER = 10
    OUTPUT_NORM = 11
    HEAD = 12
    EXPERT_GATE_UP = 13
    EXPERT_DOWN = 14
    ATTN_Q_NORM = 15
    ATTN_K_NORM = 16


class Order(IntEnum):
    """How the data of a file are ordered: layer-major, or stage-major by phase or by kind."""

    LAYER = 0
    PHASE = 1
    KIND = 2


class TensorField(IntEnum):
    """Fields of `cflow_model_tensor`."""

    ROLE = 0
    BLOCK = 1
    EXPERT = 2
    TYPE = 3
    PARTS = 4
    ROWS0 = 5
    ROWS1 = 6
    ROWS2 = 7
    COLUMNS = 8
    OFFSET = 9
    BYTES = 10
    HASH = 11


class Advice(IntEnum):
    """How the mapping of a model will be read."""

    NORMAL = 0
    RANDOM = 1
    SEQUENTIAL = 2


class Residency(IntEnum):
    """Where a session keeps its weights."""

    MMAP = 0
    COPY = 1
    DIRECT = 2


class ExpertReads(IntEnum):
    """When the read of a chosen expert is issued."""

    STAGED = 0
    SYNC = 1


class Verify(IntEnum):
    """When an expert that was read is compared with its hash."""

    FIRST = 0
    ALWAYS = 1
    NEVER = 2


class ExpertAdvice(IntEnum):
    """What the kernel is told of the chosen experts."""

    NONE = 0
    WILLNEED = 1


class ExpertHints(IntEnum):
    """Over which experts of a layer prefetch hints are given."""

    NONE = 0
    LINEAR = 1
    CONDITIONAL = 2


class Layout(IntEnum):
    """Order of the weights in memory."""

    TILED = 0
    ROW_MAJOR = 1


class Prefetch(IntEnum):
    """Prefetch instruction of the kernels."""

    NONE = 0
    T0 = 1
    T1 = 2
    T2 = 3
    NTA = 4


class Reader(IntEnum):
    """What reads a file beside the computation."""

    AUTO = 0
    IO_URING = 1
    THREADS = 2


class ReadPath(IntEnum):
    """Past the page cache or through it."""

    DIRECT = 0
    BUFFERED = 1


class Option(IntEnum):
    """Session options; the keyword names of `engine.Session` are these in lower case."""

    ISA = 0
    THREADS = 1
    PIN = 2
    Q8_ACTIVATIONS = 3
    FUSED = 4
    LAYOUT = 5
    ROWS_PER_PASS = 6
    RESIDENCY = 7
    PREFETCH_HINT = 8
    PREFETCH_BYTES = 9
    KV_F32 = 10
    CONTEXT = 11
    DENSE_DELAY = 12
    EXPERT_DELAY = 13
    ROUTE = 14
    READ_ALL_EXPERTS = 15
    READ_STREAMS = 16
    PROMPT_BATCH = 17
    EXPERT_READS = 18
    READER = 19
    READ_PATH = 20
    READ_BYTES = 21
    READ_RATE = 22
    VERIFY = 23
    RAM_BUDGET = 24
    EXPERT_ADVICE = 25
    STREAM_BYTES = 26
    EXPERT_HINTS = 27
    EXPERT_HINT_STRIDE = 28


class Counter(IntEnum):
    """Totals of a session, in bytes, nanoseconds or counts as the name says."""

    TOKENS = 0
    WALL_NS = 1
    ATTENTION_BYTES = 2
    DENSE_BYTES = 3
    EXPERT_BYTES = 4
    ROUTER_BYTES = 5
    HEAD_BYTES = 6
    EMBEDDING_BYTES = 7
    KV_BYTES = 8
    ATTENTION_NS = 9
    DENSE_NS = 10
    EXPERT_NS = 11
    ROUTER_NS = 12
    HEAD_NS = 13
    VECTOR_NS = 14
    BARRIER_NS = 15
    PHASES = 16
    IO_WAIT_NS = 17
    DEVICE_BYTES = 18
    ASKED_BYTES = 19
    READ_NS = 20
    EXPERT_HITS = 21
    HINTS = 22


class EventKind(IntEnum):
    """What an event of a token is."""

    TOKEN = 0
    VECTOR = 1
    PIECE = 2
    BARRIER = 3
    READ = 4
    READ_WAIT = 5


class EventField(IntEnum):
    """Fields of the records of `cflow_session_events_read`."""

    KIND = 0
    START_NS = 1
    END_NS = 2
    TOKEN = 3
    PHASE = 4
    PIECE = 5
    BYTES = 6


class PieceKind(IntEnum):
    """Matrix-level work of a token."""

    QKV = 0
    ATTENTION = 1
    OUTPUT = 2
    GATE_UP = 3
    DOWN = 4
    ROUTER = 5
    EXPERT_GATE_UP = 6
    EXPERT_DOWN = 7
    HEAD = 8


class PieceField(IntEnum):
    """Fields of `cflow_schedule_piece`."""

    KIND = 0
    LAYER = 1
    SLOT = 2
    STREAM = 3
    PHASE = 4
    WEIGHTS = 5
    BYTES = 6


class Stream(IntEnum):
    """Accounting streams."""

    ATTENTION = 0
    DENSE = 1
    EXPERT = 2
    ROUTER = 3
    HEAD = 4


class KernelField(IntEnum):
    """Fields of `cflow_kernel_info`."""

    TYPE = 0
    Q8 = 1
    ISA = 2
    ROWS_PER_PASS = 3
    SUPPORTED = 4
    VECTORS = 5


class Ahead(IntEnum):
    """What a walk over a mapping does about the next block: a kind of hint, or MADV_WILLNEED."""

    NONE = 0
    T0 = 1
    T1 = 2
    T2 = 3
    NTA = 4
    WILLNEED = 5


class ReadsField(IntEnum):
    """Fields of `cflow_probe_reads`."""

    READER = 0
    PATH = 1
    NS = 2
    ASKED_BYTES = 3
    WAIT_NS = 4
    READ_NS = 5
    ISSUE_NS = 6


class AccessKind(IntEnum):
    """What a kernel loads or stores."""

    WEIGHT = 0
    SCALE = 1
    ACTIVATION = 2
    OUTPUT_LOAD = 3
    OUTPUT_STORE = 4


class AccessField(IntEnum):
    """Counts of `cflow_cache_counts` per kind of access."""

    ACCESSES = 0
    BYTES = 1
    MISSES = 2


class Fault(IntEnum):
    """What goes wrong with a read of `libcflow_fault`."""

    NONE = 0
    SHORT = 1
    ERROR = 2
    AGAIN = 3
    INTERRUPTED = 4
    DELAY = 5
    END = 6


class TopologyField(IntEnum):
    """Fields of `cflow_topology`."""

    ONLINE = 0
    ALLOWED = 1
    CORES = 2
    NODES = 3
    QUOTA_MILLICPUS = 4
    THREADS = 5


#: C enum -> (prefix of its enumerators, class). Every enum of the header is here.
class WalkWay(IntEnum):
    """How a walk reads a file."""

    MMAP = 0
    BUFFERED = 1
    DIRECT = 2


ENUMS: dict[str, tuple[str, type[IntEnum]]] = {
    "cflow_status": ("CFLOW_", Status),
    "cflow_type": ("CFLOW_TYPE_", Type),
    "cflow_isa": ("CFLOW_ISA_", Isa),
    "cflow_param": ("CFLOW_PARAM_", Param),
    "cflow_architecture": ("CFLOW_ARCH_", Architecture),
    "cflow_route": ("CFLOW_ROUTE_", Route),
    "cflow_activation": ("CFLOW_ACT_", Activation),
    "cflow_role": ("CFLOW_ROLE_", Role),
    "cflow_order": ("CFLOW_ORDER_", Order),
    "cflow_tensor_field": ("CFLOW_TENSOR_", TensorField),
    "cflow_advice": ("CFLOW_ADVICE_", Advice),
    "cflow_residency": ("CFLOW_RESIDENCY_", Residency),
    "cflow_expert_reads": ("CFLOW_EXPERT_READS_", ExpertReads),
    "cflow_verify": ("CFLOW_VERIFY_", Verify),
    "cflow_expert_advice": ("CFLOW_EXPERT_ADVICE_", ExpertAdvice),
    "cflow_expert_hints": ("CFLOW_EXPERT_HINTS_", ExpertHints),
    "cflow_layout": ("CFLOW_LAYOUT_", Layout),
    "cflow_prefetch": ("CFLOW_PREFETCH_", Prefetch),
    "cflow_reader": ("CFLOW_READER_", Reader),
    "cflow_read_path": ("CFLOW_READ_PATH_", ReadPath),
    "cflow_option": ("CFLOW_OPTION_", Option),
    "cflow_topology_field": ("CFLOW_TOPOLOGY_", TopologyField),
    "cflow_counter": ("CFLOW_COUNTER_", Counter),
    "cflow_event_kind": ("CFLOW_EVENT_", EventKind),
    "cflow_event_field": ("CFLOW_EVENT_FIELD_", EventField),
    "cflow_piece_kind": ("CFLOW_PIECE_", PieceKind),
    "cflow_piece_field": ("CFLOW_PIECE_", PieceField),
    "cflow_stream": ("CFLOW_STREAM_", Stream),
    "cflow_kernel_field": ("CFLOW_KERNEL_", KernelField),
    "cflow_reads_field": ("CFLOW_READS_", ReadsField),
    "cflow_walk_way": ("CFLOW_WALK_", WalkWay),
    "cflow_ahead": ("CFLOW_AHEAD_", Ahead),
    "cflow_access_kind": ("CFLOW_ACCESS_", AccessKind),
    "cflow_access_field": ("CFLOW_ACCESS_FIELD_", AccessField),
    "cflow_fault": ("CFLOW_FAULT_", Fault),
}
