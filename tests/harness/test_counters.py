"""Counters of kernel and processor, and the reason when one cannot be read."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from pathlib import Path

import pytest

from harness import counters
from harness.counters import (
    EVENTS,
    CounterError,
    HardwareCounters,
    ProcessIo,
    explain,
    faults,
    probe_counters,
    process_cpu_ns,
    process_io,
    run_delay_ns,
    steal_ticks,
    waited_ns,
)


def test_probe_tells_of_every_counter_whether_or_why_not() -> None:
    found = probe_counters()
    assert [status.name for status in found] == list(EVENTS)
    for status in found:
        assert status.available is (status.reason == "")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOENT, "no such hardware counter"),
        (errno.EACCES, "perf_event_paranoid"),
        (errno.EPERM, "seccomp"),
        (errno.ENOSYS, "no perf_event_open"),
        (errno.EXDEV, "EXDEV"),
    ],
)
def test_refusals_are_explained(monkeypatch: pytest.MonkeyPatch, code: int, words: str) -> None:
    assert words in explain(code)

    def refuse(name: str) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(counters, "_open_event", refuse)
    (status,) = probe_counters(["cycles"])
    assert not status.available and words in status.reason
    with pytest.raises(CounterError, match=f"cycles: .*{words}"), HardwareCounters(["cycles"]):
        pass


def test_other_systems_have_no_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "vax")
    assert {status.reason for status in probe_counters()} == {"the kernel has no perf_event_open"}


def test_unknown_counter_names_those_that_exist() -> None:
    with pytest.raises(CounterError, match="no counter 'cycels'; counters are cycles"):
        HardwareCounters(["cycels"])


def pipes(monkeypatch: pytest.MonkeyPatch, count: int, ran_ns: int) -> list[int]:
    """Descriptors of pipes that stand for counters, enabled for 100 ns, that ran for `ran_ns`."""
    opened: list[int] = []

    def pipe(name: str) -> int:
        reader, writer = os.pipe()
        os.write(writer, b"".join(value.to_bytes(8, "little") for value in (count, 100, ran_ns)))
        os.close(writer)
        opened.append(reader)
        return reader

    monkeypatch.setattr(counters, "_open_event", pipe)
    monkeypatch.setattr(HardwareCounters, "_ioctl", lambda self, request: None)
    return opened


def test_counts_scale_with_multiplexing_and_descriptors_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = pipes(monkeypatch, 500, ran_ns=50)
    with HardwareCounters(["cycles", "instructions"]) as counted:
        pass
    assert counted.values == {"cycles": 1000, "instructions": 1000}
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_a_counter_that_never_ran_is_no_count_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = pipes(monkeypatch, 0, ran_ns=0)
    counted = HardwareCounters(["cycles", "instructions"])
    with pytest.raises(CounterError, match="cycles: not counted: it ran 0 of 100 ns"), counted:
        pass
    assert counted.values == {}
    assert len(opened) == 2
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_a_counter_that_never_ran_hides_no_error_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    pipes(monkeypatch, 0, ran_ns=0)
    with pytest.raises(ValueError, match="own fault"), HardwareCounters(["cycles"]):
        raise ValueError("own fault")


def test_real_counters_where_there_are_some() -> None:
    (status,) = probe_counters(["instructions"])
    if not status.available:
        pytest.skip(status.reason)
    with HardwareCounters(["instructions"]) as counted:
        sum(range(10_000))
    assert counted.values["instructions"] > 10_000


def test_process_io(tmp_path: Path) -> None:
    file = tmp_path / "io"
    file.write_text("rchar: 100\nwchar: 5\nsyscr: 1\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 512\n")
    assert process_io(file) == ProcessIo(4096, 512, 100)
    assert ProcessIo(4096, 512, 100).since(ProcessIo(96, 12, 50)) == ProcessIo(4000, 500, 50)
    file.write_text("rchar: 100\n")
    assert process_io(file) is None
    assert process_io(tmp_path / "missing") is None


def test_process_io_counts_reads(tmp_path: Path) -> None:
    before = process_io()
    if before is None:
        pytest.skip("the kernel does not account for I/O")
    (tmp_path / "data").write_bytes(b"x" * 100_000)
    (tmp_path / "data").read_bytes()
    after = process_io()
    assert after is not None and after.since(before).call_read_bytes >= 100_000


def test_faults_count_first_touches() -> None:
    # Fresh from the kernel: the allocator may hand out memory that was touched before.
    with mmap.mmap(-1, 16 * 2**20) as block:
        before = faults()
        for page in range(0, len(block), 4096):
            block[page] = 1
        assert faults().minor > before.minor


def test_run_delay_belongs_to_the_calling_thread(tmp_path: Path) -> None:
    file = tmp_path / "schedstat"
    file.write_text("1000 250 3\n")
    assert run_delay_ns(file) == 250
    assert run_delay_ns(tmp_path / "missing") is None
    file.write_text("1000\n")
    assert run_delay_ns(file) is None
    fresh: list[int | None] = []
    thread = threading.Thread(target=lambda: fresh.append(run_delay_ns()))
    before = run_delay_ns()
    thread.start()
    thread.join()
    # None on kernels that keep no such account.
    assert fresh[0] is None or fresh[0] >= 0
    waited = waited_ns(before, run_delay_ns())
    assert waited is None or waited >= 0


def test_a_missing_reading_gives_no_difference() -> None:
    assert waited_ns(100, 250) == 150
    assert waited_ns(None, 250) is None
    assert waited_ns(100, None) is None


def test_steal_ticks(tmp_path: Path) -> None:
    file = tmp_path / "stat"
    file.write_text("cpu  10 1 10 60 4 0 5 10 99 99\ncpu0 1 1\n")
    assert steal_ticks(file) == (10, 100)  # Guest time is part of user time: not added again.
    file.write_text("cpu  10 1\n")
    assert steal_ticks(file) == (0, 0)
    assert steal_ticks(tmp_path / "missing") == (0, 0)


def test_processor_time_of_a_process(tmp_path: Path) -> None:
    for task, text in (("7", "1000 5 1\n"), ("8", "200 5 1\n"), ("9", "")):
        folder = tmp_path / "7" / "task" / task
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(text)
    assert process_cpu_ns(7, tmp_path) == 1200
    assert process_cpu_ns(8, tmp_path) == 0


def test_steal_ticks_of_the_cpus_that_work(tmp_path: Path) -> None:
    file = tmp_path / "stat"
    file.write_text(
        "cpu  30 0 0 50 0 0 0 20\ncpu0 9 0 0 1 0 0 0 0\ncpu1 10 0 0 5 0 0 0 15\n"
        "cpu10 11 0 0 44 0 0 0 5\nintr 1 2 3 4 5 6 7 8 9\n"
    )
    assert steal_ticks(file, [0]) == (0, 10)
    assert steal_ticks(file, [1]) == (15, 30)
    assert steal_ticks(file, [0, 10]) == (5, 70)
    assert steal_ticks(file, [0, -1]) == (20, 100)  # A worker that is not bound may be anywhere.
    assert steal_ticks(file, [7]) == (0, 0)
