"""What a run shows on a terminal while it measures, on a screen and a machine that are made up."""

from __future__ import annotations

import pytest

from claims.display import Display, LiveDisplay, figure_line
from claims.forecast import Forecast
from claims.run import REGISTRY_PATH
from claims.terminal import Block
from harness.kinds import SUPPORTED
from harness.paired import run_pairs
from harness.registry import load_registry
from harness.rounds import Figure, Paths, Side
from harness.statistics import summarise
from tests.claims.screen import Screen
from tests.harness.fake import FakeMachine

FIGURE = Figure(Side("new", "speed"), Side("old", "speed"))
REGISTRY = load_registry(REGISTRY_PATH)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "30")
    return Screen(120)


def live(screen: Screen, clock: FakeMachine) -> LiveDisplay:
    block = Block(lambda: screen, lambda: 0)  # type: ignore[arg-type, return-value]
    budgets = {"3.speed": 10.0, "2.time": 60.0}
    seconds = lambda: clock.now_ns / 1e9  # noqa: E731
    return LiveDisplay(block, REGISTRY, Forecast(budgets, seconds), seconds)


def test_what_is_shown_from_the_first_check_to_its_end(screen: Screen) -> None:
    machine = FakeMachine(1, {0: "steal"})
    display = live(screen, machine)
    display.begin(REGISTRY.check("3.speed"))
    head, what, _ = screen.lines[1:]
    assert head.startswith("claim 3, Vector kernels for 4-bit weights: 3.speed (1 of 2), about ")
    assert "1 min left" in head
    assert what.strip() == REGISTRY.check("3.speed").statement
    shown: list[list[str]] = []
    progress = display.rounds("1 thread")

    def note(timed: object, planned: int) -> None:
        progress(timed, planned)  # type: ignore[arg-type]
        shown.append(screen.lines[1:])

    run_pairs(
        [machine.arm("old", 50e6), machine.arm("new", 40e6)],
        FIGURE,
        machine.probes(),
        control_of="old",
        seed=1,
        rounds=12,
        progress=note,
    )
    assert shown[0][1:] == ["  1 thread: warming up", "  old | new | old (A/A)"]
    assert shown[1][1] == "  1 thread: round 1 of 12, 0 valid (void: steal 1); old | new | old (A/A)"
    assert shown[1][2] == "  no valid round yet"
    assert shown[12][1].startswith("  1 thread: round 12 of 18, 11 valid")
    assert shown[-1][1].startswith("  1 thread: round 18 of 18, 17 valid")
    assert shown[12][2].startswith("  speed of new over speed of old: 1.2")
    assert "] so far; A/A [" in shown[12][2]
    display.end(SUPPORTED)
    assert screen.shown == []
    display.begin(REGISTRY.check("2.time"))
    assert "(2 of 2)" in screen.lines[1]


def test_a_check_that_is_cut_short_leaves_nothing_on_the_terminal(screen: Screen) -> None:
    display = live(screen, FakeMachine(1))
    display.begin(REGISTRY.check("2.time"))
    display.end(None)
    assert screen.shown == []


def test_nothing_is_shown_where_there_is_no_terminal() -> None:
    display = Display()
    display.begin(REGISTRY.check("2.time"))
    assert display.rounds("x") is None
    display.end(None)


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        (FIGURE, "speed of new over speed of old: "),
        (Figure(Side("new", "time"), None), "time of new: 5"),
        (Figure(Side("new", "time"), None, 1e-6), "time of new: 5"),
        (Figure(Side("new", "bandwidth"), None), "bandwidth of new: 7.5"),
        (Figure(Side("new", "speed"), None, 1e9), "speed of new: 200"),
        (
            Figure(Side("new", "time"), Paths(Side("old", "time"), Side("old", "time"), ((1.0, 0.0),))),
            "time of new over the model's: ",
        ),
    ],
)
def test_figures_have_units_that_people_read(figure: Figure, words: str) -> None:
    machine = FakeMachine(1, noise=0.0)
    arms = [machine.arm("old", 50e6), machine.arm("new", 40e6)]
    timed = run_pairs(arms, figure, machine.probes(), control_of="old", seed=1, rounds=12)
    assert figure_line(figure, summarise(timed, 0.95, 0.03)).startswith(words)
