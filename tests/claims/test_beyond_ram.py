"""Our engine beside llama.cpp inside a memory limit, with a limit and a llama.cpp that are made up."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from baselines.errors import BaselineError
from baselines.llamacpp import LlamaCpp
from claims.models import as_gguf, synthetic
from engine.enums import Activation
from engine.errors import ArgumentError
from engine.geometry import Geometry
from harness.cachestate import CacheStateError
from harness.memory_limit import MemoryLimitError
from tests.claims.fake_llamacpp import FakeLlamaCpp
from tools import beyond_ram, beyond_ram_turns
from tools.beyond_ram import Outcome, table
from tools.beyond_ram_turns import OURS, THEIRS, Setup, Turn

GEOMETRY = Geometry(
    layers=2,
    blocks=2,
    d_model=64,
    heads=2,
    kv_heads=2,
    head_dim=32,
    ffn_hidden=0,
    vocab=97,
    context=64,
    experts=8,
    experts_per_token=2,
    expert_hidden=64,
    activation=Activation.SWIGLU,
    norm_topk=True,
)
LIMIT = "150kB"
OPTIONS = ["-o", "ram_budget=100000000", "-o", "read_path=buffered"]
"""A budget of its own: no session fits into a limit below the size of so small a model."""


@dataclass
class FakeGroup:
    folder: Path
    swaps: bool = False
    members: Path = field(init=False)

    def __post_init__(self) -> None:
        self.members = self.folder / "members"

    def add(self, process: int) -> None:
        with self.members.open("a") as file:
            file.write(f"{process}\n")

    def held_bytes(self) -> int:
        return 1234

    def may_swap(self) -> bool:
        return self.swaps


class LimitedLlamaCpp(FakeLlamaCpp):
    """In this process, which it puts into the group as the real one puts its own."""

    let_go_with: list[bool] = []

    def __init__(self, *, enter: Callable[[], None]) -> None:
        super().__init__()
        self.pid = os.getpid()
        enter()

    def load(self, gguf: Path, threads: int, **settings: Any) -> None:
        assert settings.keys() == {"repack", "context"} and not settings["repack"]
        defaults = {"cpus": [0], "poll": 50, "mmap": True, "flash_attention": True}
        super().load(gguf, threads, **defaults, **settings)

    def let_go(self, *, readahead: bool) -> int:
        type(self).let_go_with.append(readahead)
        return 0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    model = synthetic(tmp_path_factory.mktemp("beyond"), "beyond", GEOMETRY)
    return model, as_gguf(model)


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGroup:
    made = FakeGroup(tmp_path)

    @contextmanager
    def limit(limit_bytes: int) -> Iterator[FakeGroup]:
        assert limit_bytes == 150_000
        yield made

    monkeypatch.setattr(beyond_ram_turns, "memory_limit", limit)
    monkeypatch.setattr(beyond_ram_turns, "evict", lambda path: None)  # the model may lie on tmpfs here
    monkeypatch.setattr(beyond_ram_turns, "LlamaCpp", LimitedLlamaCpp)
    monkeypatch.setattr(LimitedLlamaCpp, "let_go_with", [])
    return made


def run(files: tuple[Path, Path], *more: str) -> None:
    sizes = ["--limit", LIMIT, "--threads", "1", "--tokens", "3", "--prompt", "2", "--rounds", "2"]
    beyond_ram.main([*map(str, files), *sizes, *OPTIONS, *more])


def test_both_engines_decode_the_same_tokens_in_the_group(
    files: tuple[Path, Path], group: FakeGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    run(files, "--json")
    found = json.loads(capsys.readouterr().out)
    assert [[turn["engine"] for turn in pair] for pair in found["rounds"]] == [[OURS, THEIRS]] * 2
    assert found["equal_tokens"] == [6, 6]
    for ours, theirs in found["rounds"]:
        assert len(ours["ns"]) == len(theirs["ns"]) == 3
        assert ours["facts"]["held_before_bytes"] == 1234
        assert ours["facts"]["options"]["residency"] == 2
        assert ours["facts"]["counters"]["tokens"] == 3
    members = group.members.read_text().split()
    # A B B A: ours, theirs, theirs, ours.
    assert [member == str(os.getpid()) for member in members] == [False, True, True, False]
    assert LimitedLlamaCpp.let_go_with == []


def test_readahead_can_be_forbidden(
    files: tuple[Path, Path], group: FakeGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    run(files, "--no-readahead")
    lines = capsys.readouterr().out.splitlines()
    assert LimitedLlamaCpp.let_go_with == [False, False]
    assert lines[2] == "llama.cpp: flash attention True, a fault reads one page"
    assert lines[-1].startswith("cflow over llama.cpp: ")
    assert lines[-1].endswith("6 of 6 greedy tokens equal")


def test_the_budget_is_what_the_process_leaves(files: tuple[Path, Path], group: FakeGroup) -> None:
    setup = Setup(*files, 150_000, 1, (1, 2), 3, True, None, {"read_path": "buffered"})
    # 150,000 - 1,234 held - 4,687, a 32nd.
    with pytest.raises(BaselineError, match="option ram_budget is 144079 bytes; .* needs at least"):
        beyond_ram_turns.our_turn(setup)


def test_the_readahead_asked_for_holds_during_llama_cpps_turns(
    files: tuple[Path, Path],
    group: FakeGroup,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    course: list[str] = []

    @contextmanager
    def read_ahead(folder: Path, kib: int) -> Iterator[int]:
        assert folder == files[1].parent
        course.append(f"{kib} KiB")
        yield kib
        course.append("back")

    monkeypatch.setattr(beyond_ram_turns, "read_ahead", read_ahead)
    run(files, "--read-ahead", "64")
    assert course == ["64 KiB", "back"] * 2
    assert "a fault reads up to 64 KiB ahead" in capsys.readouterr().out


def test_pages_that_reads_still_hold_are_evicted_later(
    files: tuple[Path, Path], group: FakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [CacheStateError("1.9% still resident")] * 2

    def evict(path: Path) -> None:
        if faults:
            raise faults.pop()

    monkeypatch.setattr(beyond_ram_turns, "evict", evict)
    monkeypatch.setattr(beyond_ram_turns, "SETTLE_S", 0.0)
    setup = Setup(*files, 150_000, 1, (1, 2), 3, True, None, {})
    with beyond_ram_turns.limited(setup):
        assert not faults
    faults += [CacheStateError("1.9% still resident")] * 1000
    with pytest.raises(CacheStateError), beyond_ram_turns.limited(setup):
        pass
    assert len(faults) == 1000 - beyond_ram_turns.EVICTIONS


def turn(engine: str, ns: Sequence[int], chosen: Sequence[int], read: int = 0) -> Turn:
    facts: dict[str, Any] = {"options": {"ram_budget": 900_000_000}, "held_before_bytes": 20_000_000}
    facts |= {"flash_attention": True, "read_ahead_kib": 128}
    return Turn(engine, tuple(chosen), tuple(ns), read, facts)


def test_the_table_gives_speeds_reads_and_ratios(tmp_path: Path) -> None:
    gguf = tmp_path / "m.gguf"
    gguf.write_bytes(bytes(3_000_000))
    setup = Setup(tmp_path / "m.cflow", gguf, 1_000_000_000, 2, (1, 2, 3), 2, True, None, {})
    rounds = (
        (turn(OURS, [10**8, 10**8], [5, 6], 8_000_000), turn(THEIRS, [10**8, 3 * 10**8], [5, 6], 80_000_000)),
        (turn(OURS, [10**8, 10**8], [5, 6], 8_000_000), turn(THEIRS, [10**9, 10**9], [5, 7], 90_000_000)),
    )
    assert table(Outcome(setup, rounds)) == [
        "m.gguf, 3 MB, in 1000 MB, 2 threads, 2 tokens after 3, 2 rounds",
        "budget of our session: 900 MB; its process held 20 MB before",
        "llama.cpp: flash attention True, a fault reads up to 128 KiB ahead",
        "cflow        10.00 tok/s (10.00 to 10.00)      4.0 MB from the device per token",
        "llama.cpp     3.00 tok/s (1.00 to 5.00)     42.5 MB from the device per token",
        "round 1: 2.00",
        "round 2: 10.00",
        "cflow over llama.cpp: 6.00 (2.00 to 10.00); 3 of 4 greedy tokens equal",
    ]


def test_tokens_that_change_are_refused(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = iter([(1, 2), (1, 3)])
    monkeypatch.setattr(beyond_ram_turns, "our_turn", lambda setup: turn(OURS, [1, 1], next(chosen)))
    monkeypatch.setattr(beyond_ram_turns, "their_turn", lambda setup, course: turn(THEIRS, [1, 1], course))
    setup = Setup(*files, 1, 1, (1,), 2, True, None, {})
    with pytest.raises(ArgumentError, match="round 2 chose other tokens than the first"):
        list(beyond_ram_turns.turns(setup, 2))


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--tokens", "0"], "--tokens is 0, must be at least 1"),
        (["--rounds", "0"], "--rounds is 0, must be at least 1"),
        (["--threads", "x"], "--threads is 'x'"),
        (["--threads", "1,1"], "--threads is '1,1', must be one number"),
        (["--read-ahead", "0"], "--read-ahead is 0, must be at least 1"),
        (["--limit", "much"], "--limit is 'much', must be a size such as"),
        (["--limit", "1GB"], "the model would fit"),
        (["--prompt", "1000"], "do not fit"),
        (["-o", "fast"], "must be NAME=VALUE"),
        (["-o", "speed=2"], "speed"),
        (["-o", "ram_budget=1000"], "needs at least"),
    ],
)
def test_usage(
    more: list[str],
    text: str,
    files: tuple[Path, Path],
    group: FakeGroup,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(files, *more)
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


def ends_with(files: tuple[Path, Path], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(files)
    assert ended.value.code == 2
    assert text in capsys.readouterr().err.splitlines()[-1]


def test_where_nothing_can_be_limited_it_says_so(
    files: tuple[Path, Path],
    group: FakeGroup,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    group.swaps = True
    ends_with(files, "could swap and so hold more than the limit", capsys)

    def refuse(limit_bytes: int) -> None:
        raise MemoryLimitError("no memory cgroups are mounted here")

    monkeypatch.setattr(beyond_ram_turns, "memory_limit", refuse)
    ends_with(files, "no memory cgroups are mounted here", capsys)


def test_a_llama_cpp_that_is_not_installed_is_named(
    files: tuple[Path, Path],
    group: FakeGroup,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(beyond_ram_turns, "LlamaCpp", LlamaCpp)
    monkeypatch.setenv("CFLOW_BASELINES", str(tmp_path / "none"))
    ends_with(files, "cflow baseline install llama.cpp", capsys)


def test_files_that_are_missing_or_have_no_experts(
    files: tuple[Path, Path], tmp_path: Path, group: FakeGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_with((files[0], tmp_path / "missing.gguf"), "missing.gguf: no such file", capsys)
    ends_with((tmp_path / "missing.cflow", files[1]), "missing.cflow", capsys)
    dense = replace(GEOMETRY, experts=0, experts_per_token=0, expert_hidden=0, ffn_hidden=64)
    model = synthetic(tmp_path, "dense", dense)
    ends_with((model, files[1]), "has no experts that could stay on disk", capsys)
