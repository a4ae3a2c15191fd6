"""Models of the overlap against a walk through the phases, and the shapes that aim at a ratio."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims.models import synthetic
from claims.overlap_model import BESIDE, SERIAL, longest, pipeline, scheduled, windows
from claims.overlap_shapes import LAYERS, SHAPES, SMALL, SMALL_WIDTH, WIDTHS, named, nearest
from engine.enums import PieceKind, Stream
from engine.model import Model
from engine.session import Piece, Session

TIMES = st.floats(0.01, 100.0)


def walked(schedule: Sequence[Piece], compute: float, read: float, staged: bool) -> float:
    """Time of a token, event by event, with numbers instead of paths."""
    total = sum(piece.bytes for piece in schedule)
    layers = sum(piece.kind is PieceKind.ROUTER for piece in schedule)
    clock = device = 0.0
    arrives: dict[int | None, float] = {}
    for phase in range(1 + max(piece.phase for piece in schedule)):
        pieces = [piece for piece in schedule if piece.phase == phase]
        late = [piece for piece in pieces if piece.stream is Stream.EXPERT]
        clock += compute * sum(piece.bytes for piece in pieces if piece not in late) / total
        for piece in late:
            if piece.kind is PieceKind.EXPERT_GATE_UP and piece.slot == 0:
                if not staged:
                    device = arrives[piece.layer] = max(clock, device) + read / layers
                clock = max(clock, arrives[piece.layer])
        clock += compute * sum(piece.bytes for piece in late) / total
        for piece in pieces:
            if piece.kind is PieceKind.ROUTER and staged:
                device = arrives[piece.layer] = max(clock, device) + read / layers
    return clock


@pytest.fixture(scope="module")
def schedules(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Piece]]:
    """Of the small shape with its experts in the file, by expert_delay."""
    path = synthetic(tmp_path_factory.mktemp("overlap"), SMALL.name, SMALL.geometry(SMALL_WIDTH))
    found = {}
    with Model(path) as model:
        for delay in range(4):
            with Session(model, threads=1, context=1, residency="direct", expert_delay=delay) as session:
                found[delay] = session.schedule()
    return found


@given(compute=TIMES, read=TIMES, delay=st.integers(0, 3), staged=st.booleans())
def test_paths_take_as_long_as_a_walk(
    schedules: dict[int, list[Piece]], compute: float, read: float, delay: int, staged: bool
) -> None:
    found = longest(scheduled(schedules[delay], staged=staged), compute, read)
    assert found == pytest.approx(walked(schedules[delay], compute, read, staged), rel=1e-9)


@given(compute=TIMES, read=TIMES, steps=st.integers(1, 64))
def test_the_pipeline_is_that_of_the_issue(compute: float, read: float, steps: int) -> None:
    c, io = compute / steps, read / steps
    assert longest(pipeline(steps), compute, read) == pytest.approx(io + (steps - 1) * max(c, io) + c)
    assert longest(SERIAL, compute, read) == compute + read
    assert longest(BESIDE, compute, read) == max(compute, read)


@given(compute=TIMES, read=TIMES)
def test_nothing_is_faster_than_the_longer_of_the_two(
    schedules: dict[int, list[Piece]], compute: float, read: float
) -> None:
    staged = [longest(scheduled(schedules[delay], staged=True), compute, read) for delay in range(4)]
    for found in staged:
        assert max(compute, read) <= found * (1 + 1e-9)
        assert found <= (compute + read) * (1 + 1e-9)
    assert longest(scheduled(schedules[2], staged=False), compute, read) == pytest.approx(compute + read)


def test_windows_of_the_last_layers_are_shorter(schedules: dict[int, list[Piece]]) -> None:
    for delay, schedule in schedules.items():
        found = windows(schedule)
        assert [window.layer for window in found] == list(range(LAYERS))
        sizes = [window.bytes for window in found]
        assert sizes[: LAYERS - delay] == sizes[:1] * (LAYERS - delay)
        assert all(size < sizes[0] for size in sizes[LAYERS - delay :])
        assert all(window.routed < window.needed for window in found)
    assert windows(schedules[0])[0].bytes < windows(schedules[2])[0].bytes < windows(schedules[3])[0].bytes


@pytest.mark.parametrize("width", WIDTHS.values())
def test_shapes_go_from_much_reading_to_little(width: int) -> None:
    ratios = [shape.computed_over_read(width) for shape in SHAPES]
    assert ratios == sorted(ratios)
    assert all(1.4 < after / before < 5 for before, after in zip(ratios, ratios[1:], strict=False))
    for shape in SHAPES:
        assert shape.geometry(width).layers >= 16


@pytest.mark.parametrize("profile", WIDTHS)
def test_the_nearest_shape_is_taken(profile: str) -> None:
    width = WIDTHS[profile]
    wanted = named("overlap-d").computed_over_read(width) / 0.75
    assert nearest(profile, 1.0, wanted * 5e8, 5e8).name == "overlap-d"
    assert nearest(profile, 1e-3, 1e9, 1e9).name == ("overlap-b" if profile == "quick" else "overlap-a")
