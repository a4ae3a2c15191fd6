"""Exceptions of the engine, and the one place where a C status becomes one.

::

    CflowError                   everything below; str() is one sentence for a user
    +-- LibraryError             the C library is missing or has another ABI version
    +-- ArgumentError            an argument is out of range or not allowed in this state (also a ValueError)
    |   +-- ContextError         a token does not fit in the context length
    +-- MemoryExhaustedError     an allocation failed in C (also a MemoryError)
    +-- FileError                a system call on a file failed
    +-- FormatError              a file is not what it says it is: a .cflow, a GGUF or a tokenizer
    |   +-- ChecksumError        data do not match their hash
    +-- UnsupportedError         valid, but this CPU, build or converter cannot do it
    +-- NonFiniteError           a NaN or infinity reached the logits, or lies in the weights
    +-- CancelledError           the call was cancelled; the session is at the last whole token
"""

from engine.enums import Status


class CflowError(Exception):
    """Base of all errors of the engine."""


class LibraryError(CflowError):
    """The C library cannot be found or has another ABI version."""


class ArgumentError(CflowError, ValueError):
    """An argument is out of range or not allowed in this state."""


class ContextError(ArgumentError):
    """A token does not fit in the context length."""


class MemoryExhaustedError(CflowError, MemoryError):
    """An allocation failed in C."""


class FileError(CflowError):
    """A system call on a file failed; the message names the path and the reason."""


class FormatError(CflowError):
    """A file is not valid; the message names the field."""


class ChecksumError(FormatError):
    """Data do not match their hash; the message names the tensor or expert."""


class UnsupportedError(CflowError):
    """This CPU, build or converter cannot do what was asked."""


class NonFiniteError(CflowError):
    """A non-finite value was met; the message names the layer, or the tensor and block."""


class CancelledError(CflowError):
    """The call was cancelled."""


_BY_STATUS: dict[Status, type[CflowError]] = {
    Status.ERR_ARGUMENT: ArgumentError,
    Status.ERR_MEMORY: MemoryExhaustedError,
    Status.ERR_IO: FileError,
    Status.ERR_FORMAT: FormatError,
    Status.ERR_CHECKSUM: ChecksumError,
    Status.ERR_UNSUPPORTED: UnsupportedError,
    Status.ERR_CONTEXT: ContextError,
    Status.ERR_NONFINITE: NonFiniteError,
    Status.ERR_CANCELLED: CancelledError,
}


def error_from_status(status: int, message: str) -> CflowError:
    """The exception for a failed status; an unknown status gives a plain CflowError that names it."""
    try:
        cls = _BY_STATUS[Status(status)]
    except (ValueError, KeyError):
        return CflowError(f"unexpected status {status} from the C library: {message}")
    return cls(message or Status(status).name)
