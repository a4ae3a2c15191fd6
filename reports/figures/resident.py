"""Claim 1: the share of the experts' bytes that is in memory after n tokens, in both engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.results import Results
from reports import format as fmt
from reports.figures import found, scales
from reports.figures.canvas import Canvas, entry, mark
from reports.figures.found import Json
from reports.figures.palette import Style, colour
from reports.figures.svg import draw
from reports.model import Column, Figure, Row, Table

_OURS, _THEIRS = "1.resident", "1.llamacpp"
_ENGINES: Final = {"cflow": Style("s1", "o"), "llama.cpp": Style("s2", "s")}
_MOST_PANELS: Final = 6


@dataclass(frozen=True)
class _Growth:
    """(tokens, resident share, routed share) of one engine on one model, over the bytes of all experts."""

    model: str
    engine: str
    points: tuple[tuple[float, float, float], ...]


def _growth(cell: Json, model: str, engine: str, bank: float, suffix: str) -> _Growth | None:
    names = ("tokens", "resident_bytes", "routed_bytes")
    items = found.series(cell, *(f"{name}{suffix}" for name in names))
    points = tuple(
        (tokens, resident / bank, routed / bank)
        for tokens, resident, routed in sorted(items)
        if scales.on_log(tokens) and 0 <= resident <= bank and 0 <= routed <= bank
    )
    return _Growth(model, engine, points) if points else None


def _bank(cell: Json) -> float | None:
    """Bytes of all experts, from those that one token routes to: E / k times as many."""
    inputs = cell["evidence"].get("inputs", {})
    experts, chosen = inputs.get("experts"), inputs.get("experts per token")
    first = next((pair for pair in found.series(cell, "tokens", "routed_bytes") if pair[0] == 1), None)
    if first is None or not scales.on_log(experts) or not scales.on_log(chosen):
        return None
    bank = first[1] * experts / chosen
    return bank if scales.on_log(bank) else None


def _measured(results: Results) -> list[_Growth]:
    made: list[_Growth | None] = []
    for cell in found.cells(results, _OURS):
        bank = _bank(cell)
        made.append(_growth(cell, cell["label"], "cflow", bank, "") if bank else None)
    for cell in found.cells(results, _THEIRS)[:1]:
        bank = found.number(cell, "bank_bytes")
        model = found.given(cell, "experts").partition(",")[0]
        if scales.on_log(bank) and bank:
            made.append(_growth(cell, model, "llama.cpp", bank, " by token"))
    return [one for one in made if one is not None]


def _started(results: Results) -> float | None:
    """Share in memory after the other engine has started, when nothing was evicted."""
    for cell in found.cells(results, _THEIRS):
        if "after start-up" in cell["label"] and scales.drawable(cell["value"]) and 0 <= cell["value"] <= 1:
            return float(cell["value"])
    return None


def _share(value: float) -> str:
    return f"{fmt.fixed(100 * value, 1)}{fmt.NBSP}%"


def _alt(growths: list[_Growth], started: float | None) -> str:
    parts = []
    for one in growths:
        steps = ", ".join(f"{_share(share)} after {fmt.plain(n)}" for n, share, _ in one.points)
        parts.append(f"{one.model}, {one.engine}: {steps} tokens")
    if started is not None:
        parts.append(f"llama.cpp as it starts, before anything is evicted: {_share(started)}")
    return found.sentences(parts)


def _table(growths: list[_Growth]) -> Table:
    rows = tuple(
        Row((one.model, one.engine, fmt.plain(tokens), _share(resident), _share(routed)))
        for one in growths
        for tokens, resident, routed in one.points
    )
    names = ("Tokens", "Resident", "Routed to")
    columns = (Column("Experts"), Column("Engine"), *(Column(name, numeric=True) for name in names))
    return Table("Share of the experts\u2019 bytes", columns, rows)


def resident(results: Results) -> Figure | None:
    """Resident share by tokens, a panel a model; None when no engine's pages were looked at."""
    growths = _measured(results)
    if not growths:
        return None
    started = _started(results)
    models = list(dict.fromkeys(one.model for one in growths))

    def paint(canvas: Canvas) -> None:
        drawn_models = models[:_MOST_PANELS]
        key = [entry(name, style) for name, style in _ENGINES.items()]
        key = [one for one in key if any(growth.engine == one.label for growth in growths)]
        panels = canvas.panels(
            key, titles=drawn_models, columns=1 if canvas.narrow else 3, height=150 if canvas.narrow else 190
        )
        for axes, model in zip(panels, drawn_models, strict=True):
            drawn = [one for one in growths if one.model == model]
            tokens = [n for one in drawn for n, _, _ in one.points]
            scales.logarithmic(axes, "x", tokens)
            scales.ticks_at(axes, tokens, fmt.plain)
            scales.linear(axes, "y", [100.0])
            # The later one is smaller, so that two that coincide are both seen.
            for one in sorted(drawn, key=lambda growth: growth.engine, reverse=True):
                points = [(n, 100 * share) for n, share, _ in one.points]
                look = mark(_ENGINES[one.engine]) | {"markersize": 6 if one.engine == "cflow" else 11}
                axes.plot([n for n, _ in points], [share for _, share in points], **look)
            if started is not None and any(one.engine == "llama.cpp" for one in drawn):
                axes.axhline(100 * started, color=colour("s2"), linestyle=(0, (4, 3)), linewidth=1.5)
                place = (0.02, 100 * started - 7)
                axes.annotate(
                    "llama.cpp as it starts",
                    place,
                    xycoords=("axes fraction", "data"),
                    va="center",
                    color=colour("soft"),
                )
            canvas.label(axes, "tokens decoded", "% of the experts in memory")

    title = "Resident experts after n tokens"
    alt = _alt(growths, started)
    wide, narrow = draw("figure-resident", title, alt, paint)
    caption = (
        "Pages of the experts that the kernel holds in memory, over all of them, with the file evicted "
        "before the first token and readahead off. What the router asked for is in the table."
    )
    caption += found.left_out(len(models), _MOST_PANELS)
    return Figure("figure-resident", title, caption, alt, _table(growths), wide, narrow)
