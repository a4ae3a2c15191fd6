"""Forbids this process system calls, as a container's filter does: `forbid(numbers, errno)`."""

from __future__ import annotations

import ctypes
import os
import struct

IO_URING_SETUP = 425
IO_URING_ENTER = 426

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_LOAD_NUMBER = 0x20  # BPF_LD | BPF_W | BPF_ABS of seccomp_data.nr, at offset 0
_JUMP_IF_EQUAL = 0x15
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def forbid(numbers: list[int], errno: int) -> None:
    """From now on these system calls fail with `errno` in this process and its children; it cannot be undone.

    The numbers are the same on every architecture that has io_uring.
    """
    code = [(_LOAD_NUMBER, 0, 0, 0)]
    for index, number in enumerate(numbers):
        # Past the other comparisons and the return that allows.
        code.append((_JUMP_IF_EQUAL, len(numbers) - index, 0, number))
    code += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | errno)]
    packed = b"".join(struct.pack("HBBI", *one) for one in code)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    program = _Program(len(code), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
