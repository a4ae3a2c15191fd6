"""A decoding session: options, decode and generate that Ctrl-C can end, accounting, schedule."""

import ctypes
import math
import re
import weakref
from collections.abc import Iterable
from contextlib import suppress
from ctypes import byref, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from engine.enums import (
    Architecture,
    ExpertAdvice,
    ExpertHints,
    ExpertReads,
    Isa,
    Layout,
    Option,
    Param,
    PieceField,
    PieceKind,
    Prefetch,
    Reader,
    ReadPath,
    Residency,
    Route,
    Status,
    Stream,
    Verify,
)
from engine.enums import Counter as CounterIndex
from engine.errors import ArgumentError
from engine.model import Model
from engine.native import OptionsHandle, SessionHandle, check, lib, pointer, text

OptionValue = int | bool | str

_WORDS: dict[Option, type[IntEnum]] = {
    Option.ISA: Isa,
    Option.LAYOUT: Layout,
    Option.RESIDENCY: Residency,
    Option.PREFETCH_HINT: Prefetch,
    Option.ROUTE: Route,
    Option.EXPERT_READS: ExpertReads,
    Option.READER: Reader,
    Option.READ_PATH: ReadPath,
    Option.VERIFY: Verify,
    Option.EXPERT_ADVICE: ExpertAdvice,
    Option.EXPERT_HINTS: ExpertHints,
}
_HEAD_LAYER = (1 << 64) - 1
_RECORD_FIELDS = 4
_UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}


def parse_options(pairs: Iterable[str]) -> dict[str, OptionValue]:
    """Options from texts such as "residency=copy"; raises ArgumentError for one that is not NAME=VALUE."""
    options: dict[str, OptionValue] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not value:
            raise ArgumentError(f"option is {pair!r}, must be NAME=VALUE")
        try:
            options[name] = int(value)
        except ValueError:
            options[name] = value
    return options


def size_bytes(name: str, text: str) -> int:
    """Bytes of "4GiB", "1.5 GB" or "2e9"; name: of the option, for the ArgumentError."""
    found = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    try:
        size = float(found[1]) * _UNITS[found[2]] if found else math.nan
    except (ValueError, KeyError):
        size = math.nan
    if not 1 <= size < 2**63:
        raise ArgumentError(f"{name} is {text!r}, must be a size such as 4GiB, 500MB or 2e9")
    return int(size)


@dataclass(frozen=True)
class Piece:
    """Matrix-level work of one token. `layer` is None for the head; `dependencies` are indices of pieces."""

    index: int
    kind: PieceKind
    layer: int | None
    slot: int
    stream: Stream
    phase: int
    weights: int
    bytes: int
    dependencies: tuple[int, ...]


class Session:
    """Decodes one sequence with a model. Use as a context manager, or call `close()`.

    Options are keywords with the names of `engine.enums.Option` in lower case; the enumerated ones also take
    the word (`isa="avx2"`, `residency="copy"`, `layout="row_major"`, `prefetch_hint="none"`,
    `route="pre_dense"`, `expert_reads="sync"`). One thread at a time may use a session.
    """

    def __init__(self, model: Model, **options: OptionValue) -> None:
        self._library = lib()
        self.model = model
        handle = SessionHandle()
        option_handle = OptionsHandle()
        check(self._library.cflow_options_create(byref(option_handle)))
        try:
            for name, value in options.items():
                option = _option(name)
                check(self._library.cflow_options_set(option_handle, option, _option_value(option, value)))
            check(self._library.cflow_session_create(model.handle, option_handle, byref(handle)))
        finally:
            self._library.cflow_options_destroy(option_handle)
        self._handle = handle
        self._finalizer = weakref.finalize(self, _destroy_session, self._library, handle, model)
        self._arguments: tuple[Any, ...] = ()
        self._statuses: list[int] = []
        model.attach(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Waits for work in progress and frees everything. May be called again."""
        self._finalizer()

    @property
    def handle(self) -> SessionHandle:
        """The C handle; ArgumentError after `close()`."""
        if not self._finalizer.alive:
            raise ArgumentError("the session is closed")
        self._settle()
        return self._handle

    def option(self, option: Option) -> int:
        """One option as the session resolved it."""
        value = c_int64()
        check(self._library.cflow_session_option(self.handle, option, byref(value)))
        return value.value

    @property
    def options(self) -> dict[str, int]:
        """All options by name, as resolved."""
        return {text(self._library.cflow_option_name(option)): self.option(option) for option in Option}

    @property
    def isa(self) -> Isa:
        """The instruction set that runs."""
        return Isa(self.option(Option.ISA))

    @property
    def threads(self) -> int:
        """The number of workers."""
        return self.option(Option.THREADS)

    @property
    def context(self) -> int:
        """Positions that are reserved."""
        return self.option(Option.CONTEXT)

    @property
    def position(self) -> int:
        """Number of tokens decoded since creation or `reset()`."""
        position = c_uint32()
        check(self._library.cflow_session_position(self.handle, byref(position)))
        return position.value

    def reset(self) -> None:
        """Position 0; the KV cache is forgotten. Counters go on."""
        check(self._library.cflow_session_reset(self.handle))

    @property
    def worker_cpus(self) -> list[int]:
        """CPU that each worker is bound to; -1 for one that is not bound."""
        cpus = []
        for thread in range(self.threads):
            cpu = c_int()
            check(self._library.cflow_session_worker_cpu(self.handle, thread, byref(cpu)))
            cpus.append(cpu.value)
        return cpus

    def memory_bytes(self) -> tuple[int, int]:
        """Anonymous memory: (KV cache, everything)."""
        kv, total = c_uint64(), c_uint64()
        check(self._library.cflow_session_memory(self.handle, byref(kv), byref(total)))
        return kv.value, total.value

    def run_delays_ns(self) -> list[int] | None:
        """Nanoseconds that each worker waited for a CPU since creation; None when the kernel keeps none."""
        delays = []
        for thread in range(self.threads):
            delay = c_uint64()
            status = self._library.cflow_session_run_delay(self.handle, thread, byref(delay))
            if status == Status.ERR_UNSUPPORTED:
                return None
            check(status)
            delays.append(delay.value)
        return delays

    def decode(self, tokens: Iterable[int]) -> npt.NDArray[np.float32]:
        """Feeds tokens at the current position; logits of the last one, float32 [vocab].

        Raises ContextError before anything is computed, ArgumentError for an id that is not in the vocabulary
        or an empty list, NonFiniteError, CancelledError.
        """
        ids = _token_array(tokens)
        logits = np.zeros(self.model.vocab, dtype=np.float32)
        self._run(
            self._library.cflow_session_decode,
            self.handle,
            pointer("tokens", ids, np.int32, ids.size),
            ids.size,
            pointer("logits", logits, np.float32, logits.size),
        )
        return logits

    def decode_all(self, tokens: Iterable[int]) -> npt.NDArray[np.float32]:
        """As `decode()`, with the logits of every token, float32 [tokens, vocab]."""
        ids = _token_array(tokens)
        logits = np.zeros((ids.size, self.model.vocab), dtype=np.float32)
        self._run(
            self._library.cflow_session_decode_all,
            self.handle,
            pointer("tokens", ids, np.int32, ids.size),
            ids.size,
            pointer("logits", logits, np.float32, logits.size),
        )
        return logits

    def generate(self, token: int, n: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64]]:
        """Greedy continuation of `token` inside the pool: ids, int32 [n], and ns of each, uint64 [n]."""
        tokens = np.zeros(n, dtype=np.int32)
        elapsed = np.zeros(n, dtype=np.uint64)
        self._run(
            self._library.cflow_session_generate,
            self.handle,
            token,
            n,
            pointer("tokens", tokens, np.int32, n),
            pointer("ns", elapsed, np.uint64, n),
        )
        return tokens, elapsed

    def read_experts(self, experts: npt.NDArray[np.int32]) -> int:
        """Reads experts [tokens, layers, experts_per_token] as a token does, without computing; nanoseconds.

        Needs residency `direct`. Raises ArgumentError, FileError, ChecksumError, CancelledError.
        """
        shape = (self.model.param(Param.LAYERS), self.model.param(Param.EXPERTS_PER_TOKEN))
        if experts.ndim != 3 or experts.shape[1:] != shape:
            raise ArgumentError(
                f"experts: shape {experts.shape} found, (tokens, {shape[0]}, {shape[1]}) is needed"
            )
        elapsed = np.zeros(1, dtype=np.uint64)
        self._run(
            self._library.cflow_session_read_experts,
            self.handle,
            pointer("experts", experts, np.int32, experts.size),
            len(experts),
            pointer("ns", elapsed, np.uint64, 1),
        )
        return int(elapsed[0])

    def logits(self) -> npt.NDArray[np.float32]:
        """Logits of the last token, float32 [vocab]."""
        logits = np.zeros(self.model.vocab, dtype=np.float32)
        out = pointer("logits", logits, np.float32, logits.size)
        check(self._library.cflow_session_logits(self.handle, out))
        return logits

    def cancel(self) -> None:
        """Ends the call in progress, or the next one; any thread or signal handler may call it."""
        if self._finalizer.alive:
            self._library.cflow_session_cancel(self._handle)

    def _run(self, function: Any, *arguments: Any) -> None:
        """Calls C until the work is done, letting Python run its signal handlers in between.

        When a handler raises (KeyboardInterrupt), work is cancelled and waited for; the exception goes on.
        """
        # Kept on the session: the buffers must outlive the work even if a second signal ends the waiting.
        self._arguments = arguments
        statuses: list[int] = []
        self._statuses = statuses
        try:
            _call_into(statuses, function, *arguments)
            while statuses[-1] == Status.ERR_INTERRUPTED:
                _call_into(statuses, self._library.cflow_session_wait, self._handle)
        except BaseException:
            self._settle()
            raise
        check(statuses[-1])

    def _settle(self) -> None:
        """Cancels work that an interruption has left in progress, and waits for its end."""
        while self._statuses and self._statuses[-1] == Status.ERR_INTERRUPTED:
            with suppress(KeyboardInterrupt):  # one more Ctrl-C must not leave the work behind
                self._library.cflow_session_cancel(self._handle)
                _call_into(self._statuses, self._library.cflow_session_wait, self._handle)

    def counters(self) -> dict[str, int]:
        """Totals since creation or `reset_counters()`, by their C names ("tokens", "dense_bytes", ...)."""
        values = np.zeros(len(CounterIndex), dtype=np.uint64)
        check(
            self._library.cflow_session_counters(
                self.handle, pointer("values", values, np.uint64, len(CounterIndex))
            )
        )
        return {text(self._library.cflow_counter_name(index)): int(values[index]) for index in CounterIndex}

    def reset_counters(self) -> None:
        """Sets all counters to zero."""
        check(self._library.cflow_session_counters_reset(self.handle))

    def routing(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Experts of the last token and their weights, both [layers, experts_per_token], ascending."""
        shape = (self.model.param(Param.LAYERS), self.model.param(Param.EXPERTS_PER_TOKEN))
        experts = np.zeros(shape, dtype=np.int32)
        weights = np.zeros(shape, dtype=np.float32)
        check(
            self._library.cflow_session_routing(
                self.handle,
                pointer("experts", experts, np.int32, experts.size),
                pointer("weights", weights, np.float32, weights.size),
            )
        )
        return experts, weights

    def residual_norms(self) -> npt.NDArray[np.float32]:
        """Norm of the residual stream after each layer of the last token, float32 [layers].

        A two-stream model gives [2 * layers]: those of s, then those of t.
        """
        streams = 2 if self.model.param(Param.ARCHITECTURE) == Architecture.TWO_STREAM else 1
        norms = np.zeros(streams * self.model.param(Param.LAYERS), dtype=np.float32)
        check(
            self._library.cflow_session_residual_norms(
                self.handle, pointer("norms", norms, np.float32, norms.size), norms.size
            )
        )
        return norms

    def trace(self, capacity: int) -> None:
        """Records weight loads from now on, up to `capacity` per worker; 0 switches it off."""
        check(self._library.cflow_session_trace(self.handle, capacity))

    def trace_records(self, thread: int) -> npt.NDArray[np.uint64]:
        """Loads of one worker in order, uint64 [n, 4]: file offset, bytes, thread, phase.

        Raises ArgumentError when more were made than the capacity kept.
        """
        total = c_size_t()
        check(self._library.cflow_session_trace_read(self.handle, thread, 0, 0, None, byref(total)))
        made = total.value
        records = np.zeros((made, _RECORD_FIELDS), dtype=np.uint64)
        check(
            self._library.cflow_session_trace_read(
                self.handle,
                thread,
                0,
                made,
                pointer("records", records, np.uint64, records.size),
                byref(total),
            )
        )
        return records

    @property
    def phase_count(self) -> int:
        """Levels of the schedule; the executor has a barrier after each."""
        return int(self._library.cflow_schedule_phase_count(self.handle))

    def schedule(self) -> list[Piece]:
        """The pieces that a token runs, with their dependencies."""
        count = int(self._library.cflow_schedule_piece_count(self.handle))
        return [self._piece(index) for index in range(count)]

    def _piece(self, index: int) -> Piece:
        raw = np.zeros(len(PieceField), dtype=np.uint64)
        check(
            self._library.cflow_schedule_piece(
                self.handle, index, pointer("fields", raw, np.uint64, len(PieceField))
            )
        )
        fields = [int(value) for value in raw]
        layer = fields[PieceField.LAYER]
        return Piece(
            index=index,
            kind=PieceKind(fields[PieceField.KIND]),
            layer=None if layer == _HEAD_LAYER else layer,
            slot=fields[PieceField.SLOT],
            stream=Stream(fields[PieceField.STREAM]),
            phase=fields[PieceField.PHASE],
            weights=fields[PieceField.WEIGHTS],
            bytes=fields[PieceField.BYTES],
            dependencies=self._dependencies(index),
        )

    def _dependencies(self, index: int) -> tuple[int, ...]:
        total = c_size_t()
        check(self._library.cflow_schedule_dependencies(self.handle, index, None, 0, byref(total)))
        pieces = np.zeros(total.value, dtype=np.uint32)
        check(
            self._library.cflow_schedule_dependencies(
                self.handle,
                index,
                pointer("pieces", pieces, np.uint32, total.value),
                total.value,
                byref(total),
            )
        )
        return tuple(int(piece) for piece in pieces)


class Sampler:
    """Seeded sampling from logits; temperature 0 is the argmax. Equal seeds give equal draws."""

    def __init__(
        self, *, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0
    ) -> None:
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self._state = c_uint64(seed)
        self._library = lib()

    def sample(self, logits: npt.NDArray[np.float32]) -> int:
        """Draws one id from logits, float32 [vocab]. Raises ArgumentError for settings out of range."""
        token = c_int32()
        check(
            self._library.cflow_sample(
                pointer("logits", logits, np.float32, logits.size),
                logits.size,
                self.temperature,
                self.top_k,
                self.top_p,
                byref(self._state),
                byref(token),
            )
        )
        return token.value


def _call_into(statuses: list[int], function: Any, *arguments: Any) -> None:
    # A signal handler may raise as soon as the C call returns, before its result is stored in a variable, and
    # then nobody knows whether work goes on. list.extend(map(...)) stores the result with no bytecode in
    # between.
    statuses.extend(map(function, *((argument,) for argument in arguments)))


def _destroy_session(library: ctypes.CDLL, handle: SessionHandle, model: Model) -> None:
    # Holding `model` in the finalizer keeps the mapping alive until the session is gone. Destroying waits for
    # work in progress, which nobody wants any more.
    library.cflow_session_cancel(handle)
    library.cflow_session_destroy(handle)


def _token_array(tokens: Iterable[int]) -> npt.NDArray[np.int32]:
    values = list(tokens)
    try:
        return np.array(values, dtype=np.int32)
    except (OverflowError, TypeError, ValueError) as error:
        raise ArgumentError(f"tokens: ids must be integers below 2^31: {error}") from error


def _option(name: str) -> Option:
    try:
        return Option[name.upper()]
    except KeyError:
        allowed = ", ".join(option.name.lower() for option in Option)
        raise ArgumentError(f"unknown session option {name!r}; allowed: {allowed}") from None


def _option_value(option: Option, value: OptionValue) -> int:
    if not isinstance(value, str):
        return int(value)
    words = _WORDS.get(option)
    if words is None:
        raise ArgumentError(f"option {option.name.lower()}: an integer is needed, {value!r} found")
    try:
        return int(words[value.upper()])
    except KeyError:
        allowed = ", ".join(word.name.lower() for word in words)
        raise ArgumentError(f"option {option.name.lower()}: {value!r} found, allowed: {allowed}") from None
