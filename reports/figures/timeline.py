"""Claim 7: one token on a time axis, lane by lane: reads when they are needed above reads ahead of need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.results import Results
from reports import format as fmt
from reports.figures import found, scales
from reports.figures.canvas import Canvas, Entry, shortened
from reports.figures.palette import colour
from reports.figures.svg import draw
from reports.figures.tokens import (
    BARRIER,
    COMPUTING,
    MOST_ROWS,
    READ,
    WAIT,
    Bar,
    Token,
    covered,
    joined,
    token_of,
)
from reports.model import Column, Figure, Row, Table

_CHECK: Final = "7.timeline"


@dataclass(frozen=True)
class _Look:
    """How a kind of time is drawn: name in the key, colour, and height of its bars in parts of a lane."""

    name: str
    colour: str
    height: float


_LOOKS: Final[Mapping[str, _Look]] = {
    "attention": _Look("attention", "s1", 0.84),
    "dense": _Look("dense", "s3", 0.64),
    "expert": _Look("experts", "s4", 0.44),
    "router": _Look("router", "s5", 0.3),
    "head": _Look("head", "s6", 0.84),
    "vector": _Look("norms, sums", "soft", 0.18),
    BARRIER: _Look("waits for other workers", "faint", 0.07),
    WAIT: _Look("waits for a read", "mark", 0.84),
    READ: _Look("a read under way", "s2", 0.84),
}
"""In the order of the key. Kinds differ in height as well as in colour; the wait for a read is a frame."""
_LANE_PX: Final = 26
_LEAST_PX: Final = 0.35
"""Narrower bars are not seen; neighbours closer than that are one."""
_MOST_BARS: Final = 900
"""Of a drawing: with more of them, more are too narrow."""


def _alt(tokens: Sequence[Token]) -> str:
    parts = []
    for one in tokens:
        first = one.workers[0]
        said = (
            f"{one.arm}: the token takes {_ms(one.total)}; {first.name} computes for "
            f"{_ms(first.ms(*COMPUTING))}, waits {_ms(first.ms(WAIT))} for reads and "
            f"{_ms(first.ms(BARRIER))} for other workers"
        )
        if one.reads:
            said += (
                f"; reads ({len(one.reads)}) are under way for {_ms(covered(one.reads))}, of which "
                f"{_ms(one.hidden)} beside other work"
            )
        parts.append(said)
    return ". ".join(fmt.capital(part) for part in parts) + "."


def _ms(value: float) -> str:
    return fmt.figure(round(value, 2), "ms")


def _table(tokens: Sequence[Token]) -> Table:
    rows = []
    for one in tokens:
        for lane in one.workers:
            computing = (lane.ms(kind) for kind in COMPUTING)
            waiting = (lane.ms(BARRIER), lane.ms(WAIT))
            rows.append(Row((one.arm, lane.name, *(fmt.fixed(v, 2) for v in (*computing, *waiting)), "")))
        if one.reads:
            blank = ("",) * (len(COMPUTING) + 2)
            rows.append(Row((one.arm, "reads", *blank, fmt.fixed(covered(one.reads), 2))))
    names = [_LOOKS[kind].name for kind in (*COMPUTING, BARRIER, WAIT)]
    columns = [Column(fmt.capital(name), numeric=True) for name in (*names, "reads under way")]
    return Table("Milliseconds of the token", (Column("Arm"), Column("Lane"), *columns), tuple(rows))


def timeline(results: Results) -> Figure | None:
    """The recorded token of each arm; None when none was."""
    tokens = [one for one in map(token_of, found.cells(results, _CHECK)) if one is not None]
    if not tokens:
        return None
    used = {kind for one in tokens for lane in one.workers for kind, bars in lane.bars.items() if bars}
    used |= {READ} if any(one.reads for one in tokens) else set()

    def paint(canvas: Canvas) -> None:
        lanes = max(len(one.workers) + len(one.rows) for one in tokens)
        names = [lane.name for one in tokens for lane in one.workers]
        left = min(16 + max(map(len, names)) * 6, 90)
        panels = canvas.panels(
            [_entry(kind) for kind in _LOOKS if kind in used],
            titles=[f"{one.arm}: {_ms(one.total)}" for one in tokens],
            height=_LANE_PX * lanes,
            left=left,
        )
        longest = max(one.total for one in tokens)
        least = _least(tokens, longest * _LEAST_PX / (canvas.width - left))
        for axes, one in zip(panels, tokens, strict=True):
            scales.between(axes, "x", 0.0, longest, most=4 if canvas.narrow else 8)
            axes.set_ylim(lanes, 0)
            marks = [(i + 0.5, shortened(lane.name, left)) for i, lane in enumerate(one.workers)]
            marks += [(len(one.workers) + len(one.rows) / 2, "reads")] if one.rows else []
            axes.set_yticks([at for at, _ in marks], labels=[name for _, name in marks])
            axes.grid(False, axis="y")
            for index, lane in enumerate(one.workers):
                for kind in reversed(tuple(_LOOKS)):
                    _fill(axes, kind, lane.bars.get(kind, ()), index + 0.5, least)
            for index, row in enumerate(one.rows, len(one.workers)):
                _fill(axes, READ, row, index + 0.5, least)
            canvas.label(axes, "ms from the beginning of the token", "")

    title = "One token, read by read"
    alt = _alt(tokens)
    wide, narrow = draw("figure-timeline", title, alt, paint)
    return Figure("figure-timeline", title, _caption(tokens), alt, _table(tokens), wide, narrow)


def _caption(tokens: Sequence[Token]) -> str:
    given = tokens[0].inputs
    which = " and ".join(f"{one.inputs['token']} ({one.arm})" for one in tokens if one.inputs["token"])
    what = [f"tokens {which}" if which else "", *(given[name] for name in ("model", "tier", "isa"))]
    delay = f"expert delay {given['expert_delay']}" if given["expert_delay"] else ""
    hidden = (
        f" Of more than {MOST_ROWS} the last row hides some." if any(one.crowded for one in tokens) else ""
    )
    return (
        f"Of the median time: {', '.join(one for one in (*what, delay) if one)}. Bars of a worker differ in "
        "height by kind; thin lines are waits at barriers, frames are waits for a read. Reads that are under "
        f"way at one time stand below each other.{hidden}"
    )


def _entry(kind: str) -> Entry:
    look = _LOOKS[kind]
    if kind == WAIT:
        return Entry(look.name, look.colour, "s", hollow=True)
    return (
        Entry(look.name, look.colour, line="-")
        if kind == BARRIER
        else Entry(look.name, look.colour, bar=True)
    )


def _seen(kind: str, bars: Sequence[Bar], least: float) -> list[Bar]:
    """The bars of a lane that are drawn when narrower ones are not. Reads are never joined."""
    return [bar for bar in (bars if kind == READ else joined(bars, least)) if bar.ms >= least]


def _least(tokens: Sequence[Token], least: float) -> float:
    """The shortest time that is drawn: `least`, or as much more as keeps the bars few enough."""

    def count() -> int:
        lanes = (kind for one in tokens for lane in one.workers for kind in lane.bars.items())
        rows = ((READ, row) for one in tokens for row in one.rows)
        return sum(len(_seen(kind, bars, least)) for kind, bars in (*lanes, *rows))

    while count() > _MOST_BARS:
        least *= 1.5
    return least


def _fill(axes: Any, kind: str, bars: Sequence[Bar], middle: float, least: float) -> None:
    """All bars of a kind in a lane as one path: strokes as wide as the bars are high, which is half the text
    of outlines; frames, and reads, which a gap sets apart, are outlines.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    look = _LOOKS[kind]
    ink, half = colour(look.colour), look.height / 2
    shown = _seen(kind, bars, least)
    corners: list[tuple[float, float]] = []
    for bar in shown:
        begin, end = (bar.start, middle - half), (bar.end, middle + half)
        outline = [begin, (begin[0], end[1]), end, (end[0], begin[1]), begin]
        corners += outline if kind in (READ, WAIT) else [(bar.start, middle), (bar.end, middle)]
    if not shown:
        return
    if kind in (READ, WAIT):
        codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * len(shown)
        face, edge = ("none", ink) if kind == WAIT else (ink, colour("paper"))
        patch = PathPatch(Path(corners, codes), facecolor=face, edgecolor=edge, linewidth=1)
    else:
        strokes = Path(corners, [Path.MOVETO, Path.LINETO] * len(shown))
        patch = PathPatch(
            strokes, fill=False, edgecolor=ink, linewidth=look.height * _LANE_PX, capstyle="butt"
        )
    axes.add_patch(patch)
