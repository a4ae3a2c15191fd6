"""Roofline of the run: every kernel and engine that was timed, under the bandwidths measured beside it.

Operations per byte are 2 for each weight over its stored bytes, so that q4_0 lies at 3.56 whatever ran it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from harness.results import Results
from reports import format as fmt
from reports.figures import arms, found, scales
from reports.figures.arms import Measured
from reports.figures.canvas import Canvas, Entry, mark
from reports.figures.found import Json
from reports.figures.palette import Style, colour
from reports.figures.svg import draw
from reports.model import Column, Figure, Row, Table

_KERNELS: Final = ("2.time", "3.speed", "3.roof")
_ENGINES: Final = ("e2e.ranking", "e2e.same_moe", "1.time", "4.time", "7.time")
_ACTIVE, _REGIME = "e2e.active", "0.regime"
_STORED_BYTES: Final = {"q4_0": 18 / 32, "q4_1": 20 / 32, "q8_0": 34 / 32, "f16": 2.0, "f32": 4.0}
"""Of a weight, with its share of the block's scales (cflow.h)."""
_NAME: Final = re.compile(r"(q4_0|q4_1|q8_0|f16|f32)(?:f32|q8)_gemv_(r|t)\d+_(\w+)")
_LOOKS: Final = {
    "kernels on tiles": Style("s1", "o"),
    "kernels on rows": Style("s2", "s"),
    "scalar kernels": Style("s5", "v"),
    "cflow": Style("s3", "^"),
    "llama.cpp": Style("s4", "D"),
    "vLLM": Style("s6", "P"),
}
_DODGE: Final = 1.07
_LINES: Final = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class _Dot:
    """One kernel or engine. intensity: operations per weight byte; speed: GB/s of weight bytes."""

    kind: str
    label: str
    check: str
    threads: str
    intensity: float
    speed: Measured

    @property
    def gflops(self) -> float:
        return self.intensity * self.speed.value


@dataclass(frozen=True)
class _Roof:
    """The best read-only bandwidth that the run measured with so many threads."""

    threads: int
    gb_per_s: float


def _kernels(results: Results) -> Iterator[_Dot]:
    for check in _KERNELS:
        for cell in found.cells(results, check):
            for name in arms.names(cell):
                kernel = _NAME.search(arms.description(cell, name))
                speed = _speed(cell, name)
                if kernel and speed:
                    tiled = "kernels on tiles" if kernel[2] == "t" else "kernels on rows"
                    kind = "scalar kernels" if kernel[3] == "scalar" else tiled
                    label = ", ".join(part for part in (kernel[0], cell["label"]) if part)
                    intensity = 2 / _STORED_BYTES[kernel[1]]
                    yield _Dot(kind, label, check, found.given(cell, "threads"), intensity, speed)


def _active(results: Results) -> dict[str, float]:
    """Weights that a token uses, by model: as recorded, else from the bytes that our engine counts."""
    models: dict[str, float] = {}
    for check in _ENGINES:
        for cell in found.cells(results, check):
            for name in arms.names(cell):
                model, weights = found.given(cell, f"model of {name}"), _weights(cell, name)
                if model and weights:
                    models[model] = weights
    for cell in found.cells(results, _ACTIVE):
        for name in ("dense", "MoE"):
            weights = cell["evidence"].get("inputs", {}).get(f"active weights, {name}")
            if scales.on_log(weights):
                models[found.given(cell, name)] = float(weights)
    return models


def _weights(cell: Json, arm: str) -> float:
    """Weights behind the bytes of the streams: q4_0, but for the router's floats."""
    streams = arms.stream_bytes(cell, arm)
    router = streams.pop("router", 0.0)
    return sum(streams.values()) / _STORED_BYTES["q4_0"] + router / _STORED_BYTES["f32"]


def _speed(cell: Json, arm: str) -> arms.Measured | None:
    """GB/s of weight bytes. A cell without a target has no verdict that would tell of failed controls."""
    measured = arms.bandwidth(cell, arm)
    doubted = cell["verdict"] is None and bool((cell["summary"] or {}).get("reasons"))
    return replace(measured, decides=False) if measured and doubted else measured


def _intensity(cell: Json, arm: str, active: dict[str, float]) -> float | None:
    """Operations per byte of an engine's arm, None when the run does not say how many weights a token has."""
    size = arms.work_bytes(cell, arm)
    weights = active.get(found.given(cell, f"model of {arm}")) or _weights(cell, arm)
    found_one = 2 * weights / size if size else 0.0
    return found_one if scales.on_log(found_one) else None


def _engines(results: Results) -> Iterator[_Dot]:
    active, seen = _active(results), set()
    for check in _ENGINES:
        for cell in found.cells(results, check):
            for name in arms.names(cell):
                intensity, speed = _intensity(cell, name, active), _speed(cell, name)
                end_to_end = check.startswith("e2e")
                label = name if end_to_end else f"{name}, {cell['label']}"
                if intensity and speed and (check[0], label) not in seen:
                    seen.add((check[0], label))
                    first = name.partition(",")[0].partition(" ")[0].lower() if end_to_end else "cflow"
                    kind = {"llama.cpp": "llama.cpp", "vllm": "vLLM"}.get(first, "cflow")
                    yield _Dot(kind, label, check, found.given(cell, "threads"), intensity, speed)


def _roofs(results: Results) -> list[_Roof]:
    best: dict[int, float] = {}
    for record in results.data["checks"]:
        for cell in found.cells(results, record["id"]):
            roof = cell["evidence"].get("roof")
            if roof and scales.on_log(roof["bytes_per_ns"]):
                best[roof["threads"]] = max(best.get(roof["threads"], 0.0), roof["bytes_per_ns"])
    return [_Roof(threads, speed) for threads, speed in sorted(best.items(), reverse=True)][: len(_LINES)]


def _peak(results: Results) -> Measured | None:
    """GFLOP/s of multiply-adds that touch no memory, all threads."""
    return next((arms.rate(cell, "flops") for cell in found.cells(results, _REGIME)), None)


def _gb(value: float) -> str:
    return f"{fmt.fixed(value, 1)}{fmt.NBSP}GB/s"


def _alt(dots: list[_Dot], roofs: list[_Roof], peak: Measured | None) -> str:
    parts = [f"read-only roof with {_threads(one.threads)}: {_gb(one.gb_per_s)}" for one in roofs]
    if peak:
        parts.append(f"multiply-adds: {fmt.fixed(peak.value, 0)} GFLOP/s")
    for kind in _LOOKS:
        mine = [one for one in dots if one.kind == kind]
        if mine:
            low, high = (pick(mine, key=lambda one: one.speed.value) for pick in (min, max))
            between = "" if low is high else f" to {_gb(high.speed.value)} ({high.label})"
            parts.append(f"{kind}, {len(mine)} marks: {_gb(low.speed.value)} ({low.label}){between}")
    return found.sentences(parts)


def _threads(count: object) -> str:
    return f"{count} thread{'' if str(count) == '1' else 's'}"


def _table(dots: list[_Dot], roofs: list[_Roof]) -> Table:
    tops = {str(one.threads): one.gb_per_s for one in roofs}
    rows = tuple(
        Row(
            (
                one.label,
                one.kind,
                one.check,
                one.threads,
                fmt.fixed(one.intensity, 2),
                fmt.figure(one.speed.value, "GB/s", one.speed.low, one.speed.high),
                fmt.fixed(one.gflops, 1),
                f"{fmt.fixed(100 * one.speed.value / tops[one.threads], 0)}{fmt.NBSP}%"
                if one.threads in tops
                else "",
                "" if one.speed.decides else "decides nothing",
            ),
            muted=not one.speed.decides,
        )
        for one in dots
    )
    names = ("Threads", "Operations per byte", "Weights", "GFLOP/s", "Of the best roof")
    numbers = (Column(name, numeric=True) for name in names)
    columns = (Column("Of"), Column("Kind"), Column("Check"), *numbers, Column("Rounds"))
    return Table("Kernels and engines under the roof", columns, rows)


def _place(dot: _Dot) -> str:
    """The same for intensities that no mark could be set apart by."""
    return f"{dot.intensity:.2g}"


def roofline(results: Results) -> Figure | None:
    """All of them on one sheet; None when the run timed no kernel and no engine."""
    dots = [one for one in (*_kernels(results), *_engines(results)) if scales.on_log(one.gflops)]
    if not dots:
        return None
    roofs, peak = _roofs(results), _peak(results)

    def paint(canvas: Canvas) -> None:
        kinds = [kind for kind in _LOOKS if any(one.kind == kind for one in dots)]
        key = [Entry(kind, _LOOKS[kind].colour, _LOOKS[kind].marker) for kind in kinds]
        lines = dict(zip(roofs, _LINES, strict=False))
        key += [
            Entry(f"reads, {_threads(roof.threads)}: {_gb(roof.gb_per_s)}", "ink", line=line)
            for roof, line in lines.items()
        ]
        (axes,) = canvas.panels(key, height=300)
        ends = [min(one.intensity for one in dots) / 1.6, max(one.intensity for one in dots) * 1.6]
        top = peak.value if peak else None
        if top and roofs:
            ends[1] = max(ends[1], top / roofs[-1].gb_per_s * 1.6)
        heights = [one.gflops for one in dots] + ([top] if top else [])
        heights += [min(x * one.gb_per_s, top or x * one.gb_per_s) for one in roofs for x in ends]
        scales.logarithmic(axes, "x", ends, most=5 if canvas.narrow else 9)
        scales.logarithmic(axes, "y", [one for one in heights if scales.on_log(one)], most=7)
        for roof, line in lines.items():
            bend = min(ends[1], top / roof.gb_per_s) if top else ends[1]
            xs = [ends[0], max(bend, ends[0])]
            axes.plot(xs, [x * roof.gb_per_s for x in xs], color=colour("ink"), linestyle=line, linewidth=1.5)
        if top:
            axes.axhline(top, color=colour("ink"), linewidth=1.5)
            axes.annotate(
                f"multiply-adds: {fmt.fixed(top, 0)} GFLOP/s",
                (0.01, top),
                xycoords=("axes fraction", "data"),
                xytext=(0, -10),
                textcoords="offset pixels",
                va="center",
                color=colour("soft"),
            )
        taken = {(one.kind, _place(one)) for one in dots}
        groups: dict[tuple[str, bool], list[tuple[float, float]]] = {}
        for one in dots:
            beside = [kind for kind in kinds if (kind, _place(one)) in taken]
            place = one.intensity * _DODGE ** (beside.index(one.kind) - (len(beside) - 1) / 2)
            groups.setdefault((one.kind, one.speed.decides), []).append((place, one.gflops))
        for (kind, decides), places in groups.items():
            axes.plot(*zip(*places, strict=True), linestyle="", **mark(_LOOKS[kind], hollow=not decides))
        canvas.label(axes, "operations per weight byte", "GFLOP/s")

    title = "Roofline"
    alt = _alt(dots, roofs, peak)
    wide, narrow = draw("figure-roofline", title, alt, paint)
    caption = (
        "Two operations for each weight, over its stored bytes; kinds are set side by side where they share "
        "a place. What lies above a line was read from a cache, or by more threads. Hollow: inconclusive "
        "or void."
    )
    return Figure("figure-roofline", title, caption, alt, _table(dots, roofs), wide, narrow)
