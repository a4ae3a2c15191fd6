"""An open .cflow or .vflow model: parameters, tensor table, tokenizer, verification."""

import ctypes
import struct
import threading
import weakref
from contextlib import suppress
from ctypes import POINTER, byref, c_char_p, c_int, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from engine.enums import Advice, Order, Param, Role, Status, TensorField, Type
from engine.errors import ArgumentError, error_from_status
from engine.native import ModelHandle, check, lib, path_bytes, pointer, text

_NONE = 0xFFFFFFFF
_VERIFY_POLL_S = 0.1


@dataclass(frozen=True)
class Tensor:
    """One entry of the tensor table. `rows` has one entry per fused part; offset and size are in bytes."""

    name: str
    role: Role
    block: int | None
    expert: int | None
    type: Type
    rows: tuple[int, ...]
    columns: int
    offset: int
    bytes: int
    hash: int

    @property
    def weights(self) -> int:
        """Number of weights, padding excluded."""
        return sum(self.rows) * self.columns


class _Closable(Protocol):
    def close(self) -> None: ...


class Model:
    """A .cflow or .vflow file, mapped read-only. Use as a context manager, or call `close()`.

    Opening verifies header and tables, never the tensor data: `verify()` does that. The file must not change
    while it is open. Sessions of the model that are still open when it closes are closed first.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._library = lib()
        handle = ModelHandle()
        check(self._library.cflow_model_open(path_bytes(self.path), byref(handle)))
        self._handle = handle
        self._sessions: weakref.WeakSet[_Closable] = weakref.WeakSet()
        # A verification reads the mapping on its own thread: closing cancels it and takes the guard after it.
        self._guard = threading.Lock()
        self._cancels: list[c_int] = []
        self._finalizer = weakref.finalize(self, self._library.cflow_model_close, handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the sessions of this model that are still open, then the file. May be called again."""
        for session in list(self._sessions):
            session.close()
        for cancel in self._cancels:
            cancel.value = 1
        with self._guard:
            self._finalizer()

    @property
    def handle(self) -> ModelHandle:
        """The C handle; ArgumentError after `close()`."""
        if not self._finalizer.alive:
            raise ArgumentError(f"{self.path}: the model is closed")
        return self._handle

    def attach(self, session: _Closable) -> None:
        """Has `session` closed before the model is; called by the session itself."""
        self._sessions.add(session)

    @property
    def name(self) -> str:
        """The model's name as the file gives it."""
        return text(self._library.cflow_model_name(self.handle))

    @property
    def file_bytes(self) -> int:
        """Length of the file."""
        return int(self._library.cflow_model_file_bytes(self.handle))

    @property
    def order(self) -> Order:
        """How the data of the file are ordered."""
        return Order(self._library.cflow_model_order(self.handle))

    def param(self, param: Param) -> int:
        """One header parameter as the unsigned integer that the file holds."""
        value = c_uint32()
        check(self._library.cflow_model_param(self.handle, param, byref(value)))
        return value.value

    @property
    def params(self) -> dict[str, int]:
        """All header parameters by C name ("layers", "d_model", ...), in file order; floats as bits."""
        return {text(self._library.cflow_model_param_name(param)): self.param(param) for param in Param}

    @property
    def rms_eps(self) -> float:
        """Epsilon of the RMSNorms."""
        return _float_from_bits(self.param(Param.RMS_EPS_BITS))

    @property
    def rope_base(self) -> float:
        """Base of the rotary embedding."""
        return _float_from_bits(self.param(Param.ROPE_BASE_BITS))

    @property
    def vocab(self) -> int:
        """Number of token ids."""
        return self.param(Param.VOCAB)

    @property
    def context(self) -> int:
        """Largest number of positions."""
        return self.param(Param.CONTEXT)

    @property
    def bos(self) -> int | None:
        """Begin-of-text id, if there is one."""
        return _id_or_none(self.param(Param.BOS))

    @property
    def eos(self) -> int | None:
        """End-of-text id, if there is one."""
        return _id_or_none(self.param(Param.EOS))

    @property
    def tensors(self) -> list[Tensor]:
        """The tensor table, in file order."""
        count = int(self._library.cflow_model_tensor_count(self.handle))
        return [self._tensor(index) for index in range(count)]

    def _tensor(self, index: int) -> Tensor:
        raw = np.zeros(len(TensorField), dtype=np.uint64)
        check(
            self._library.cflow_model_tensor(
                self.handle, index, pointer("fields", raw, np.uint64, len(TensorField))
            )
        )
        fields = [int(value) for value in raw]
        parts = fields[TensorField.PARTS]
        return Tensor(
            name=text(self._library.cflow_model_tensor_name(self.handle, index)),
            role=Role(fields[TensorField.ROLE]),
            block=_id_or_none(fields[TensorField.BLOCK]),
            expert=_id_or_none(fields[TensorField.EXPERT]),
            type=Type(fields[TensorField.TYPE]),
            rows=tuple(fields[TensorField.ROWS0 : TensorField.ROWS0 + parts]),
            columns=fields[TensorField.COLUMNS],
            offset=fields[TensorField.OFFSET],
            bytes=fields[TensorField.BYTES],
            hash=fields[TensorField.HASH],
        )

    def tensor_data(self, index: int) -> npt.NDArray[np.uint8]:
        """A copy of the stored bytes of the tensor at `index`, uint8 [bytes]."""
        data, size = c_void_p(), c_uint64()
        check(self._library.cflow_model_tensor_data(self.handle, index, byref(data), byref(size)))
        stored = ctypes.cast(data, POINTER(ctypes.c_uint8 * size.value)).contents
        return np.ctypeslib.as_array(stored).copy()

    @property
    def tokenizer_json(self) -> str | None:
        """The tokenizer.json that the file carries, its hash verified; None when it carries none."""
        json, size = c_char_p(), c_uint64()
        check(self._library.cflow_model_tokenizer(self.handle, byref(json), byref(size)))
        if size.value == 0:
            return None
        return ctypes.string_at(ctypes.cast(json, c_void_p), size.value).decode()

    def advise(self, advice: Advice) -> None:
        """Tells the kernel how the mapping will be read; `Advice.RANDOM` alone ends readahead on faults.

        Raises ArgumentError for a value that is no advice, FileError when the kernel refuses.
        """
        check(self._library.cflow_model_advise(self.handle, advice))

    def verify(self) -> None:
        """Reads all data: every hash, and every scale and float for finiteness.

        Raises ChecksumError or NonFiniteError naming the first fault. It runs on a helper thread, so that
        Ctrl-C is heard: what the signal handler raises is raised here after the C call has ended.
        """
        cancel = c_int(0)
        outcome: list[tuple[int, str]] = []

        def run() -> None:
            with self._guard:
                if self._finalizer.alive and not cancel.value:
                    status = self._library.cflow_model_verify(self._handle, byref(cancel))
                    outcome.append((status, text(self._library.cflow_last_error())))

        _ = self.handle
        self._cancels.append(cancel)
        thread = threading.Thread(target=run, name="cflow-verify")
        try:
            thread.start()
            while thread.is_alive():
                thread.join(_VERIFY_POLL_S)
        except BaseException:
            cancel.value = 1
            with suppress(RuntimeError):  # not started yet: close() waits for it
                thread.join()
            raise
        self._cancels.remove(cancel)
        if not outcome:
            raise ArgumentError(f"{self.path}: the model was closed during verification")
        status, message = outcome[0]
        if status != Status.OK:
            raise error_from_status(status, message)


def _float_from_bits(bits: int) -> float:
    (value,) = struct.unpack("<f", struct.pack("<I", bits))
    return float(value)


def _id_or_none(value: int) -> int | None:
    return None if value == _NONE else value
