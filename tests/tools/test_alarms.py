"""Replayed runs are those of the runner, every check has its rule, and too many alarms are seen."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from claims.run import REGISTRY_PATH
from harness.paired import Arm, Probes, run_pairs
from harness.registry import load_registry
from harness.rounds import Sample, Timed
from harness.statistics import summarise
from tools.alarms.command import main
from tools.alarms.outcomes import Interval, Simulated, calm, ends
from tools.alarms.replay import arm_factors, control_of, figure, most_rounds, replay, stretch
from tools.alarms.rules import Run, judged, rules
from tools.alarms.stored import Piece, Store, StoredRound, StoreError, load, save
from tools.alarms.table import BEGIN, END, most_alarms, put, row, rows, text
from tools.build_engine import ROOT

REGISTRY = load_registry(REGISTRY_PATH)
RULES = rules(REGISTRY)
STORE = ROOT / "tests/data/quiet_rounds.json"


def made(seed: int, *, rounds: int = 40, noise: float = 0.01, void: float = 0.1) -> Piece:
    """A piece of made-up rounds with five positions, some of them void, that drift together."""
    rng = random.Random(seed)
    found, level = [], 0.0
    for _ in range(rounds):
        level = 0.8 * level + rng.gauss(0, noise)
        ns = tuple(round(3e7 * (1 + level + rng.gauss(0, noise))) for _ in range(5))
        waits = tuple(ns[0] // 10 if rng.random() < void / 10 else 1000 for _ in range(5))
        steal = 2 if rng.random() < void / 2 else 0
        found.append(StoredRound(20 * (1 + rng.gauss(0, 0.03)), steal, 60, ns, waits))
    return Piece("tiles", "2026-01-01T00:00:00Z", 2, 10**9, 40.0, tuple(found))


def store(noise: float) -> Store:
    """Two pieces of every material."""
    names = dict.fromkeys(run.material for rule in RULES for run in rule.runs)
    return Store(
        {},
        tuple(
            replace(made(2 * index + part, noise=noise), material=name)
            for index, name in enumerate(names)
            for part in range(2)
        ),
    )


# ---- a replayed run is one of the runner ----


@dataclass
class Player:
    """Says to the runner, sample after sample, what the stored rounds hold."""

    rounds: Sequence[StoredRound]
    size: int
    now_ns: int = 0
    at: int = -1
    position: int = 0
    taken: tuple[int, int] = (0, 0)
    inside: bool = False

    def steal(self) -> tuple[int, int]:
        """Asked at both ends of a round."""
        if self.inside:
            one = self.rounds[self.at]
            self.taken = self.taken[0] + one.steal_ticks, self.taken[1] + one.cpu_ticks
        else:
            self.at, self.position = self.at + 1, 0
        self.inside = not self.inside
        return self.taken

    def sample(self, factor: float) -> Sample:
        """At the next position."""
        one, self.position = self.rounds[self.at], self.position + 1
        ns, delay = one.ns[self.position - 1], one.delay_ns[self.position - 1]
        assert delay is not None
        self.now_ns += round(ns * factor)
        return Sample(round(ns * factor), self.size, "same", run_delay_ns=round(delay * factor))


def through_the_runner(run: Run, piece: Piece, drawn: list[int], seed: int, factor: float) -> Timed:
    """The same rounds, by harness.paired."""
    player = Player([piece.rounds[index] for index in drawn], piece.bytes)

    def arm(name: str, times: float) -> Arm:
        return Arm(name, lambda: player.sample(times), "same")

    return run_pairs(
        [arm(name, times) for name, times in arm_factors(run, factor).items()],
        figure(run),
        Probes(
            lambda: player.rounds[player.at].probe_bytes_per_ns,
            player.steal,
            lambda: 0,
            lambda: player.now_ns,
        ),
        control_of=control_of(run),
        seed=seed,
        rounds=run.rounds,
        warmups=0,
    )


@given(
    arms=st.integers(3, 5),
    wanted=st.integers(1, 30),
    control=st.sampled_from(["subject", "reference"]),
    void=st.sampled_from([0.0, 0.3, 2.0]),
    seed=st.integers(0, 10**6),
    factor=st.sampled_from([1.0, 1.03, 0.5]),
)
@settings(deadline=None, max_examples=40, derandomize=True)
def test_a_replayed_run_is_that_of_the_runner(
    arms: int, wanted: int, control: str, void: float, seed: int, factor: float
) -> None:
    run = Run("tiles", arms, control="subject" if control == "subject" else "reference", rounds=wanted)
    piece = made(seed, void=void)
    drawn = stretch(piece, most_rounds(run), random.Random(seed))
    found = replay(run, piece, drawn, seed, factor)
    expected = through_the_runner(run, piece, drawn, seed, factor)
    assert [one.order for one in found.rounds] == [one.order for one in expected.rounds]
    assert [one.void for one in found.rounds] == [one.void for one in expected.rounds]
    assert summarise(found, 0.95, 0.03) == summarise(expected, 0.95, 0.03)


def test_a_piece_is_resampled_in_stretches() -> None:
    piece = made(1)
    drawn = stretch(piece, 95, random.Random(2))
    follows = sum(second == (first + 1) % 40 for first, second in zip(drawn, drawn[1:], strict=False))
    assert len(drawn) == 95 and follows >= 95 - 10


@given(seed=st.integers(0, 1000), factor=st.floats(0.5, 2.0))
@settings(deadline=None, max_examples=40, derandomize=True)
def test_an_injected_effect_multiplies_the_interval(seed: int, factor: float) -> None:
    run = Run("tiles", 3, rounds=20)
    piece = made(seed)
    drawn = stretch(piece, most_rounds(run), random.Random(seed))
    plain = summarise(replay(run, piece, drawn, seed), 0.95, 0.03)
    changed = summarise(replay(run, piece, drawn, seed, factor), 0.95, 0.03)
    assert plain.low is not None and plain.high is not None
    assert changed.low == pytest.approx(plain.low * factor, rel=1e-6)
    assert changed.high == pytest.approx(plain.high * factor, rel=1e-6)
    assert (not changed.reasons) == (not plain.reasons)


# ---- counting ----


def test_eighteen_of_two_hundred_is_the_quantile() -> None:
    assert most_alarms() == scipy.stats.binom.ppf(0.99, 200, 0.05) == 18
    for runs in (1, 20, 57, 1000):
        assert most_alarms(runs) == scipy.stats.binom.ppf(0.99, runs, 0.05)


def test_alarms_and_power_of_known_intervals() -> None:
    right, low, high, none = (
        Interval(0.99, 1.01, True),
        Interval(0.95, 0.98, True),
        Interval(1.02, 1.05, True),
        Interval(0.0, float("inf"), False),
    )
    found = Simulated(RULES[0], ((right, right), (low, right), (right, high), (none, none)))
    target = (2.0, float("inf"))
    assert found.alarms(target, 2.0) == 2
    assert found.wrong_if_equal(target) == 0
    assert found.missed == 2
    assert found.wrong_if_equal((1.0, float("inf"))) == 1
    # Of either cell: right at 3 % above and below the end in one run of four is lost to `none`, in another to
    # the interval that misses.
    assert found.power(target, 2.0, 0.03) == 0.5
    assert found.smallest_effect(target, 2.0, 0.75) == 0.055
    assert found.smallest_effect(target, 2.0, 0.8) is None


def test_noise_that_no_rule_holds_back_is_too_many_alarms() -> None:
    """With intervals of half the width the bound is passed: it can be."""
    narrow = replace(REGISTRY.check("3.speed"), id="3.speed", cells=(REGISTRY.check("3.speed").cells[0],))
    rule = next(rule for rule in RULES if rule.check == "3.speed")
    honest = next(rows(store(0.005), REGISTRY, only=[rule]))
    assert honest.worst <= most_alarms()
    intervals = []
    piece = made(3, noise=0.005)
    for seed in range(200):
        run = rule.runs[0]
        drawn = stretch(piece, most_rounds(run), random.Random(seed))
        found = summarise(replay(run, piece, drawn, seed), 0.5, 0.03)
        assert found.low is not None and found.high is not None
        intervals.append((Interval(found.low, found.high, not found.reasons),))
    assert row(Simulated(rule, tuple(intervals)), None, narrow).alarms > most_alarms()


def test_the_table_says_of_how_many_runs_it_is() -> None:
    rule = next(rule for rule in RULES if rule.check == "7.time")
    assert "Alarms of 20 |" in text(list(rows(store(0.01), REGISTRY, 20, [rule])))


@pytest.mark.parametrize(("command", "after"), [("collect", "--material"), ("live", "the same command")])
def test_a_stopped_command_says_how_it_goes_on(
    command: str,
    after: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for name in ("collect_one", "go_on"):
        monkeypatch.setattr(f"tools.alarms.command.{name}", stop)
    with pytest.raises(SystemExit) as ended:
        main([command, "--out", str(tmp_path / "out.json"), "--models", str(tmp_path)])
    assert ended.value.code == 130 and f"stopped; {after}" in capsys.readouterr().err


def test_power_falls_with_noise() -> None:
    rule = next(rule for rule in RULES if rule.check == "7.time")
    still, loud = (next(rows(store(noise), REGISTRY, 60, [rule])) for noise in (0.002, 0.02))
    assert still.power == 1.0 and still.smallest is not None and still.smallest < 0.02
    assert loud.power is not None and loud.power < 0.8


def test_calm_rounds_are_those_that_no_rule_voids() -> None:
    piece = made(1, rounds=30, void=0.8)
    replayed = replay(Run("tiles", 5, rounds=20), piece, range(30), 1)
    assert len(replayed.rounds) == 30  # too few are valid: it goes to the limit
    kept = calm(piece, 5).rounds
    assert kept == tuple(piece.rounds[one.seq] for one in replayed.rounds if not one.void)
    assert 5 < len(kept) < 20


# ---- the rules are those of the modules ----


def test_every_judged_check_has_a_rule_in_each_of_its_profiles() -> None:
    for check in judged(REGISTRY):
        own = [rule for rule in RULES if rule.check == check.id]
        profiles = [profile for rule in own for profile in rule.profiles]
        assert sorted(profiles) == sorted(check.budget_s), check.id
        wanted = sum(cell.target is not None for cell in check.cells)
        for rule in own:
            assert sum(run.cells for run in rule.runs) == wanted, check.id
            assert {run.positive for run in rule.runs} == {check.positive_control is not None}, check.id
    assert {rule.check for rule in RULES} == {check.id for check in judged(REGISTRY)}


def test_rounds_are_those_that_are_declared() -> None:
    walk = [(rule.profiles, rule.runs[0].rounds) for rule in RULES if rule.check == "6.expert_walk"]
    assert [profiles for profiles, _ in walk] == [("quick",), ("full",), ("paper",)]
    declared = REGISTRY.check("6.expert_walk").cells[0].rounds
    assert declared == {profiles[0]: wanted for profiles, wanted in walk}
    mapping = next(rule for rule in RULES if rule.check == "6.time_mapping")  # of the cell with the target
    assert mapping.runs[0].rounds == REGISTRY.check("6.time_mapping").rounds("full", "no readahead")


def test_the_upper_end_of_a_share_of_the_roof_is_none() -> None:
    assert ends((0.6, 1.03), Run("tiles", 2, roof=True)) == [0.6]
    assert ends((0.95, 1.05), Run("tiles", 2)) == [0.95, 1.05]
    assert ends((float("-inf"), 1.02), Run("tiles", 2)) == [1.02]


# ---- the file of rounds ----


def test_rounds_come_back_as_they_were_stored(tmp_path: Path) -> None:
    kept = Store({"cpu": "made"}, (made(1), made(2)))
    save(kept, tmp_path / "rounds.json")
    back = load(tmp_path / "rounds.json")
    assert back.machine == kept.machine
    assert [piece.rounds[3].ns for piece in back.pieces] == [piece.rounds[3].ns for piece in kept.pieces]
    save(back, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "rounds.json").read_bytes()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"form": 2, "machine": {}, "pieces": []}',
        '{"form": 1, "machine": {}, "pieces": [{}]}',
        '{"form": 1, "machine": {}, "pieces": [{"material": "x", "utc": "", "threads": 1, "bytes": 1, '
        '"roof_bytes_per_ns": 1, "rounds": [[1, 0, 1, [0, 1], [0, 0]]]}]}',
        '{"form": 1, "machine": {}, "pieces": [{"material": "x", "utc": "", "threads": 1, "bytes": 1, '
        '"roof_bytes_per_ns": 1, "rounds": [[1, 2, 1, [1, 1], [0, 0]]]}]}',
        '{"form": 1, "machine": {}, "pieces": [{"material": "x", "utc": "", "threads": 1, "bytes": 1, '
        '"roof_bytes_per_ns": 1, "rounds": [[1, 0, 1, [1], [0, 0]]]}]}',
    ],
)
def test_a_damaged_file_of_rounds_is_refused_by_name(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rounds.json"
    path.write_text(content)
    with pytest.raises(StoreError, match=str(path)):
        load(path)
    with pytest.raises(SystemExit) as ended:
        main(["false", "--store", str(path)])
    assert ended.value.code == 2 and str(path) in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["false", "--runs", "0"], ["collect", "--material", "gold"], ["live", "--out", "x", "--only", "9.x"]],
)
def test_usage_errors_name_the_option(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert arguments[-2] in said or repr(arguments[-1]) in said


def test_the_table_goes_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    put(page, "new\n")
    assert page.read_text() == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="marks"):
        put(page, "new\n")


# ---- what the checks do on the stored rounds ----


@pytest.fixture(scope="module")
def found() -> list[object]:
    """The rows of all rules on the stored rounds, as in the documents."""
    return list(rows(load(STORE), REGISTRY))


def test_no_check_raises_too_many_false_alarms(found: list) -> None:  # type: ignore[type-arg]
    assert {one.rule.check for one in found} == {check.id for check in judged(REGISTRY)}
    assert [(one.rule.check, one.worst) for one in found if one.worst > most_alarms()] == []
    # Nor would it without its controls, which leave few runs to decide where neighbours are busy.
    assert [(one.rule.check, one.missed) for one in found if one.missed > most_alarms()] == []


def test_the_documents_have_the_table_of_the_stored_rounds(found: list) -> None:  # type: ignore[type-arg]
    page = (ROOT / "docs/develop/alarms.md").read_text(encoding="utf-8")
    assert page.split(BEGIN)[1].split(END)[0].strip() == text(found).strip()


def test_the_first_run_of_every_rule_is_replayable() -> None:
    kept = load(STORE)
    for rule in RULES:
        for run in rule.runs:
            assert kept.of(run.material), (rule.check, run.material)
            assert len(kept.of(run.material)[0].rounds[0].ns) >= run.arms
