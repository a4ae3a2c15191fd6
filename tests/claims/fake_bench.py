"""Workers that read nothing: a bench is tested without gigabytes and without a clock that matters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from harness.paired import Probes
from harness.rounds import Pattern, Roof


@dataclass(frozen=True)
class FakeBench:
    """A roof that is told."""

    threads: int
    bytes_per_ns: int

    def probes(self) -> Probes:
        return Probes(bandwidth=lambda: 1.0, steal=lambda: (0, 0))

    def roof(self) -> Roof:
        return Roof(self.threads, (Pattern("made up", self.bytes_per_ns, (1,)),))


def opener(bytes_per_ns: int, asked: list[tuple[int, bool]]) -> object:
    """In place of `claims.timing.open_bench`; what it was asked for goes into `asked`."""

    @contextmanager
    def open_bench(threads: int, *, huge: bool = True) -> Iterator[FakeBench]:
        asked.append((threads, huge))
        yield FakeBench(threads, bytes_per_ns)

    return open_bench
