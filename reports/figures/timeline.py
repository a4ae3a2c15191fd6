"""Claim 7: one token on a time axis, lane by lane: reads when they are needed above reads ahead of need."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.results import Results
from reports import format as fmt
from reports.figures import found, scales
from reports.figures.canvas import Canvas, Entry, shortened
from reports.figures.found import Json
from reports.figures.palette import colour
from reports.figures.svg import draw
from reports.model import Column, Figure, Row, Table

_CHECK: Final = "7.timeline"
_WAIT, _BARRIER, _READ = "read_wait", "barrier", "read"


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
    _BARRIER: _Look("waits for other workers", "faint", 0.07),
    _WAIT: _Look("waits for a read", "mark", 0.84),
    _READ: _Look("a read under way", "s2", 0.84),
}
"""In the order of the key. Kinds differ in height as well as in colour; the wait for a read is a frame."""
_COMPUTING: Final = ("attention", "dense", "expert", "router", "head", "vector")
_MOST_LANES, _MOST_ROWS = 8, 4
_LANE_PX: Final = 26
_LEAST_PX: Final = 0.35
"""Narrower bars are not seen; neighbours closer than that are one."""
_MOST_BARS: Final = 900
"""Of a drawing: with more of them, more are too narrow."""


@dataclass(frozen=True)
class _Bar:
    start: float
    end: float

    @property
    def ms(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class _Lane:
    """bars: by kind of time, in order, none of one kind over another of it unless they are reads."""

    name: str
    bars: Mapping[str, tuple[_Bar, ...]]

    def ms(self, *kinds: str) -> float:
        """Time in those kinds."""
        return sum(bar.ms for kind in kinds for bar in self.bars.get(kind, ()))


@dataclass(frozen=True)
class _Token:
    """A token of an arm, in ms. rows: of reads, those under way at one time below each other."""

    arm: str
    total: float
    workers: tuple[_Lane, ...]
    reads: tuple[_Bar, ...]
    rows: tuple[tuple[_Bar, ...], ...]
    inputs: Mapping[str, str]

    @property
    def hidden(self) -> float:
        """Time with a read under way in which the first worker did not wait for one."""
        waits = self.workers[0].bars.get(_WAIT, ())
        return _covered(self.reads) - sum(one.ms for one in _shared(_joined(self.reads, 0.0), waits))


def _joined(bars: Iterable[_Bar], gap: float) -> list[_Bar]:
    """Bars with no more than `gap` between them as one."""
    made: list[_Bar] = []
    for bar in sorted(bars, key=lambda one: one.start):
        if made and bar.start - made[-1].end <= gap:
            made[-1] = _Bar(made[-1].start, max(made[-1].end, bar.end))
        else:
            made.append(bar)
    return made


def _covered(bars: Iterable[_Bar]) -> float:
    return sum(bar.ms for bar in _joined(bars, 0.0))


def _shared(bars: Sequence[_Bar], others: Sequence[_Bar]) -> Iterator[_Bar]:
    """Where both are."""
    for one in bars:
        for other in others:
            start, end = max(one.start, other.start), min(one.end, other.end)
            if start < end:
                yield _Bar(start, end)


def _without(bar: _Bar, others: Sequence[_Bar]) -> Iterator[_Bar]:
    """What others, which are in order, leave of a bar."""
    at = bar.start
    for other in others:
        if other.end > at and other.start < bar.end:
            if other.start > at:
                yield _Bar(at, other.start)
            at = other.end
    if at < bar.end:
        yield _Bar(at, bar.end)


def _rows(reads: Sequence[_Bar]) -> tuple[tuple[_Bar, ...], ...]:
    """Reads in the first row in which they overlap none; those that find none are in the last."""
    rows: list[list[_Bar]] = []
    for read in sorted(reads, key=lambda one: (one.start, one.end)):
        free = next((row for row in rows if row[-1].end <= read.start), None)
        if free is None and len(rows) < _MOST_ROWS:
            rows.append(free := [])
        (rows[-1] if free is None else free).append(read)
    return tuple(map(tuple, rows))


def _recorded(cell: Json) -> Iterator[tuple[str, str, _Bar]]:
    """Lane, kind and place of each bar that can be drawn."""
    observations = cell["evidence"].get("observations", {})
    columns = [observations.get(name) for name in ("lane", "what", "start_ms", "end_ms")]
    if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        return
    for lane, what, start, end in zip(*columns, strict=True):
        known = isinstance(what, str) and what in _LOOKS and isinstance(lane, str)
        if known and scales.drawable(start) and scales.drawable(end) and 0 <= start <= end:
            yield lane, what, _Bar(float(start), float(end))


def _token(cell: Json) -> _Token | None:
    lanes: dict[str, dict[str, list[_Bar]]] = {}
    reads: list[_Bar] = []
    waits: list[_Bar] = []
    for lane, what, bar in _recorded(cell):
        if what in (_READ, _WAIT):
            (reads if what == _READ else waits).append(bar)
        else:
            lanes.setdefault(lane, {}).setdefault(what, []).append(bar)
    if not lanes:
        return None
    waits = _joined(waits, 0.0)
    workers = []
    for name, kinds in list(lanes.items())[:_MOST_LANES]:
        met = kinds.pop(_BARRIER, [])
        split = {
            _WAIT: tuple(_shared(_joined(met, 0.0), waits)),
            _BARRIER: tuple(rest for bar in met for rest in _without(bar, waits)),
        }
        workers.append(_Lane(name, {what: tuple(bars) for what, bars in kinds.items()} | split))
    total = max(bar.end for one in workers for bars in one.bars.values() for bar in bars)
    given = {name: found.given(cell, name) for name in ("model", "token", "tier", "expert_delay", "isa")}
    label = str(cell["label"]) or "token"
    return _Token(label, total, tuple(workers), tuple(reads), _rows(reads), given) if total > 0 else None


def _alt(tokens: Sequence[_Token]) -> str:
    parts = []
    for one in tokens:
        first = one.workers[0]
        said = (
            f"{one.arm}: the token takes {_ms(one.total)}; {first.name} computes for "
            f"{_ms(first.ms(*_COMPUTING))}, waits {_ms(first.ms(_WAIT))} for reads and "
            f"{_ms(first.ms(_BARRIER))} for other workers"
        )
        if one.reads:
            said += (
                f"; {len(one.reads)} reads are under way for {_ms(_covered(one.reads))}, of which "
                f"{_ms(one.hidden)} beside other work"
            )
        parts.append(said)
    return ". ".join(fmt.capital(part) for part in parts) + "."


def _ms(value: float) -> str:
    return fmt.figure(round(value, 2), "ms")


def _table(tokens: Sequence[_Token]) -> Table:
    rows = []
    for one in tokens:
        for lane in one.workers:
            computing = (lane.ms(kind) for kind in _COMPUTING)
            waiting = (lane.ms(_BARRIER), lane.ms(_WAIT))
            rows.append(Row((one.arm, lane.name, *(fmt.fixed(v, 2) for v in (*computing, *waiting)), "")))
        if one.reads:
            blank = ("",) * (len(_COMPUTING) + 2)
            rows.append(Row((one.arm, "reads", *blank, fmt.fixed(_covered(one.reads), 2))))
    names = [_LOOKS[kind].name for kind in (*_COMPUTING, _BARRIER, _WAIT)]
    columns = [Column(fmt.capital(name), numeric=True) for name in (*names, "reads under way")]
    return Table("Milliseconds of the token", (Column("Arm"), Column("Lane"), *columns), tuple(rows))


def timeline(results: Results) -> Figure | None:
    """The recorded token of each arm; None when none was."""
    tokens = [one for one in map(_token, found.cells(results, _CHECK)) if one is not None]
    if not tokens:
        return None
    used = {kind for one in tokens for lane in one.workers for kind, bars in lane.bars.items() if bars}
    used |= {_READ} if any(one.reads for one in tokens) else set()

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
                _fill(axes, _READ, row, index + 0.5, least)
            canvas.label(axes, "ms from the beginning of the token", "")

    title = "One token, read by read"
    alt = _alt(tokens)
    wide, narrow = draw("figure-timeline", title, alt, paint)
    return Figure("figure-timeline", title, _caption(tokens), alt, _table(tokens), wide, narrow)


def _caption(tokens: Sequence[_Token]) -> str:
    given = tokens[0].inputs
    which = " and ".join(f"{one.inputs['token']} ({one.arm})" for one in tokens if one.inputs["token"])
    what = [f"tokens {which}" if which else "", *(given[name] for name in ("model", "tier", "isa"))]
    delay = f"expert delay {given['expert_delay']}" if given["expert_delay"] else ""
    hidden = f" Of more than {_MOST_ROWS} the last row hides some." if any(map(_crowded, tokens)) else ""
    return (
        f"Of the median time: {', '.join(one for one in (*what, delay) if one)}. Bars of a worker differ in "
        "height by kind; thin lines are waits at barriers, frames are waits for a read. Reads that are under "
        f"way at one time stand below each other.{hidden}"
    )


def _crowded(token: _Token) -> bool:
    """Whether reads of one row lie upon each other."""
    last = token.rows[-1] if token.rows else ()
    return any(later.start < one.end for one, later in itertools.pairwise(last))


def _entry(kind: str) -> Entry:
    look = _LOOKS[kind]
    if kind == _WAIT:
        return Entry(look.name, look.colour, "s", hollow=True)
    return (
        Entry(look.name, look.colour, line="-")
        if kind == _BARRIER
        else Entry(look.name, look.colour, bar=True)
    )


def _seen(kind: str, bars: Sequence[_Bar], least: float) -> list[_Bar]:
    """The bars of a lane that are drawn when narrower ones are not. Reads are never joined."""
    return [bar for bar in (bars if kind == _READ else _joined(bars, least)) if bar.ms >= least]


def _least(tokens: Sequence[_Token], least: float) -> float:
    """The shortest time that is drawn: `least`, or as much more as keeps the bars few enough."""

    def count() -> int:
        lanes = (kind for one in tokens for lane in one.workers for kind in lane.bars.items())
        rows = ((_READ, row) for one in tokens for row in one.rows)
        return sum(len(_seen(kind, bars, least)) for kind, bars in (*lanes, *rows))

    while count() > _MOST_BARS:
        least *= 1.5
    return least


def _fill(axes: Any, kind: str, bars: Sequence[_Bar], middle: float, least: float) -> None:
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
        corners += outline if kind in (_READ, _WAIT) else [(bar.start, middle), (bar.end, middle)]
    if not shown:
        return
    if kind in (_READ, _WAIT):
        codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * len(shown)
        face, edge = ("none", ink) if kind == _WAIT else (ink, colour("paper"))
        patch = PathPatch(Path(corners, codes), facecolor=face, edgecolor=edge, linewidth=1)
    else:
        strokes = Path(corners, [Path.MOVETO, Path.LINETO] * len(shown))
        patch = PathPatch(
            strokes, fill=False, edgecolor=ink, linewidth=look.height * _LANE_PX, capstyle="butt"
        )
    axes.add_patch(patch)
