"""What the kernel and the processor count, each with the reason when it cannot be read.

perf_event_open(2) is called through libc's syscall(): hardware events first with exclude_kernel=1, which
needs no privilege at perf_event_paranoid <= 2; ENOENT then means that there is no such counter here, EACCES
that it is not permitted.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from harness.errors import HarnessError

_PERF_TYPE_HARDWARE: Final = 0
_PERF_TYPE_HW_CACHE: Final = 3
_L1D, _LL, _DTLB = 0, 2, 3
_READ, _ACCESS, _MISS = 0, 0, 1
_EXCLUDE_KERNEL: Final = 1 << 5
_EXCLUDE_HV: Final = 1 << 6
_DISABLED: Final = 1 << 0
_ATTR_BYTES: Final = 112
_FORMAT_TIMES: Final = 0b11
_IOC_ENABLE, _IOC_DISABLE, _IOC_RESET = 0x2400, 0x2401, 0x2403
_SYSCALL: Final = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}


def _cache(cache: int, result: int) -> tuple[int, int]:
    return _PERF_TYPE_HW_CACHE, cache | _READ << 8 | result << 16


EVENTS: Final[dict[str, tuple[int, int]]] = {
    "cycles": (_PERF_TYPE_HARDWARE, 0),
    "instructions": (_PERF_TYPE_HARDWARE, 1),
    "cache_references": (_PERF_TYPE_HARDWARE, 2),
    "cache_misses": (_PERF_TYPE_HARDWARE, 3),
    "branch_misses": (_PERF_TYPE_HARDWARE, 5),
    "l1d_read_accesses": _cache(_L1D, _ACCESS),
    "l1d_read_misses": _cache(_L1D, _MISS),
    "llc_read_misses": _cache(_LL, _MISS),
    "dtlb_read_misses": _cache(_DTLB, _MISS),
}
"""Hardware counters by name: (perf type, config)."""

_REASONS: Final = {
    errno.ENOENT: "this machine has no such hardware counter (virtual machines rarely do)",
    errno.EACCES: "not permitted; lower kernel.perf_event_paranoid to 2 or grant CAP_PERFMON",
    errno.EPERM: "not permitted, probably by a container's seccomp filter",
    errno.ENOSYS: "the kernel has no perf_event_open",
    errno.EOPNOTSUPP: "the processor does not support this counter",
    errno.ENODEV: "the processor does not support this counter",
    errno.EINVAL: "the kernel does not know this counter",
    errno.EBUSY: "another tool holds the counter",
    errno.EMFILE: "too many open files",
}


@dataclass(frozen=True)
class CounterStatus:
    """Whether a counter can be read, and why not."""

    name: str
    available: bool
    reason: str


class CounterError(HarnessError):
    """A hardware counter cannot be opened or read."""


def _open_event(name: str) -> int:
    kind, config = EVENTS[name]
    number = _SYSCALL.get(platform.machine())
    if number is None or platform.system() != "Linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    flags = _DISABLED | _EXCLUDE_KERNEL | _EXCLUDE_HV
    attr = struct.pack("=IIQQQQQ", kind, _ATTR_BYTES, config, 0, 0, _FORMAT_TIMES, flags).ljust(
        _ATTR_BYTES, b"\0"
    )
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(
        libc.syscall(
            ctypes.c_long(number),
            ctypes.c_char_p(attr),
            ctypes.c_int(0),
            ctypes.c_int(-1),
            ctypes.c_int(-1),
            ctypes.c_ulong(0),
        )
    )
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return descriptor


def explain(code: int) -> str:
    """An errno of perf_event_open in words."""
    return _REASONS.get(code, f"{errno.errorcode.get(code, str(code))}: {os.strerror(code)}")


def probe_counters(names: Sequence[str] = tuple(EVENTS)) -> tuple[CounterStatus, ...]:
    """Tries each hardware counter once. Never raises."""
    found = []
    for name in names:
        try:
            os.close(_open_event(name))
        except OSError as error:
            found.append(CounterStatus(name, False, explain(error.errno or 0)))
        else:
            found.append(CounterStatus(name, True, ""))
    return tuple(found)


class HardwareCounters:
    """Counts the calling thread in user space, between `with` and its end. Values are scaled when
    multiplexed.

    Raises CounterError on entry, naming the first counter that cannot be opened and why; and at the end of
    the block, naming the first counter that the kernel never let run: that is no count of 0.
    """

    def __init__(self, names: Sequence[str]) -> None:
        unknown = [name for name in names if name not in EVENTS]
        if unknown:
            raise CounterError(f"no counter {unknown[0]!r}; counters are {', '.join(EVENTS)}")
        self._names = tuple(names)
        self._descriptors: list[int] = []
        self.values: dict[str, int] = {}
        """Counts by name, after the `with` block."""

    def __enter__(self) -> HardwareCounters:
        for name in self._names:
            try:
                self._descriptors.append(_open_event(name))
            except OSError as error:
                self._close()
                raise CounterError(f"{name}: {explain(error.errno or 0)}") from error
        self._ioctl(_IOC_RESET)
        self._ioctl(_IOC_ENABLE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ioctl(_IOC_DISABLE)
        try:
            for name, descriptor in zip(self._names, self._descriptors, strict=True):
                value, enabled, running = struct.unpack("=QQQ", os.read(descriptor, 24))
                if running:
                    self.values[name] = round(value * enabled / running)
                elif error is None:
                    raise CounterError(
                        f"{name}: not counted: it ran 0 of {enabled} ns; other counters held its place"
                    )
        finally:
            self._close()

    def _ioctl(self, request: int) -> None:
        import fcntl

        for descriptor in self._descriptors:
            fcntl.ioctl(descriptor, request, 0)

    def _close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []


@dataclass(frozen=True)
class ProcessIo:
    """/proc/self/io. device_read_bytes: fetched from storage (0 on tmpfs and FUSE); call_read_bytes: by read
    calls.
    """

    device_read_bytes: int
    device_write_bytes: int
    call_read_bytes: int

    def since(self, before: ProcessIo) -> ProcessIo:
        """The difference to an earlier reading."""
        return ProcessIo(
            self.device_read_bytes - before.device_read_bytes,
            self.device_write_bytes - before.device_write_bytes,
            self.call_read_bytes - before.call_read_bytes,
        )


def process_io(path: Path = Path("/proc/self/io")) -> ProcessIo | None:
    """Bytes that this process moved; None when the kernel does not account for them."""
    try:
        fields = dict(line.split(": ") for line in path.read_text().splitlines())
        return ProcessIo(int(fields["read_bytes"]), int(fields["write_bytes"]), int(fields["rchar"]))
    except (OSError, KeyError, ValueError):
        return None


@dataclass(frozen=True)
class Faults:
    """Page faults and context switches of this process (getrusage). Major faults do not count I/O."""

    minor: int
    major: int
    voluntary_switches: int
    involuntary_switches: int


def faults() -> Faults:
    """Totals since the process began."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Faults(usage.ru_minflt, usage.ru_majflt, usage.ru_nvcsw, usage.ru_nivcsw)


def run_delay_ns(path: Path = Path("/proc/thread-self/schedstat")) -> int | None:
    """Nanoseconds that the calling thread was ready and waited for a core, since it began; None when not
    accounted for.
    """
    try:
        return int(path.read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None


def process_cpu_ns(pid: int, proc: Path = Path("/proc")) -> int:
    """Nanoseconds of processor time of a process, over its threads that live; 0 when not accounted for."""
    total = 0
    for path in (proc / str(pid) / "task").glob("*/schedstat"):
        try:
            total += int(path.read_text().split()[0])
        except (OSError, IndexError, ValueError):
            continue  # the thread has just ended
    return total


def waited_ns(before: int | None, after: int | None) -> int | None:
    """The difference of two readings of `run_delay_ns`; None when either is missing."""
    return None if before is None or after is None else after - before


def steal_ticks(path: Path = Path("/proc/stat"), cpus: Collection[int] = ()) -> tuple[int, int]:
    """Ticks stolen by the host, and all ticks, of these CPUs since boot; (0, 0) when not accounted for.

    cpus: those of the workers: what the host takes from the others disturbs nobody. Empty, or with a negative
    number for a worker that is not bound, = all CPUs.
    """
    named = {f"cpu{cpu}" for cpu in cpus} if cpus and min(cpus) >= 0 else {"cpu"}
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
        # Guest time is part of user time; it and what later kernels add comes after the eight.
        chosen = [[int(field) for field in line[1:9]] for line in lines if line and line[0] in named]
        return sum(fields[7] for fields in chosen), sum(sum(fields) for fields in chosen)
    except (OSError, IndexError, ValueError):
        return 0, 0
