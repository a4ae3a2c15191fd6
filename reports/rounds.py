"""Timed evidence as stored in results.json: what each round contributed, for tables and charts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from reports import charts
from reports import format as fmt
from reports.model import Column, Fact, Row, Table

Json = Mapping[str, Any]

VOID_RULES: Final = {
    "run_queue": "a worker waited for a core",
    "steal": "the host took processor time",
    "bandwidth_probe": "a neighbour took memory bandwidth",
    "output": "the output was wrong",
    "cache": "a cache precondition did not hold",
    "idle_engine": "an engine that should sleep used the processor",
    "device_bytes": "the device did not deliver the bytes that were asked for",
    "engine_failed": "the engine died or hung, and was started anew",
}
_DIRECT: Final = 2.0
"""Ratios within this factor of one share an axis with the A/A control; others are shown over their median."""


def side(sample: Json, measure: str) -> float:
    """One sample: `time` in ns per unit of work, `computing` and `reading` as parts of it, `speed` in work
    per ns, `bandwidth` in bytes per ns.
    """
    if measure == "time":
        return float(sample["ns"] / sample["work"])
    if measure == "computing":
        return float((sample["ns"] - sample["counters"]["io_wait_ns"]) / sample["work"])
    if measure == "reading":
        return float(sample["counters"]["read_ns"] / sample["work"])
    if measure == "speed":
        return float(sample["work"] / sample["ns"])
    return float(sample["bytes"] / sample["ns"])


def _longest(samples: Json, paths: Json) -> float:
    """What a model predicts: the longest of its paths through computing and reading."""
    compute, read = (side(samples[one["arm"]], one["measure"]) for one in (paths["compute"], paths["read"]))
    return max(float(a * compute + b * read) for a, b in paths["terms"])


def figure_of(one: Json, timed: Json) -> float | None:
    """The figure of one round, None when an arm did not run or the figure is not a positive number."""
    figure, samples = timed["figure"], one["samples"]
    subject, reference = figure["subject"], figure["reference"]
    if any(arm["name"] not in samples for arm in timed["arms"]):
        return None
    value = figure["scale"] * side(samples[subject["arm"]], subject["measure"])
    divisor = 1.0
    if reference == "roof":
        divisor = timed["roof"]["bytes_per_ns"] if timed.get("roof") else 0.0
    elif reference is not None and "terms" in reference:
        divisor = _longest(samples, reference)
    elif reference is not None:
        divisor = side(samples[reference["arm"]], reference["measure"])
    expected = figure.get("expected")
    if expected is not None:
        divisor *= _longest(samples, expected["above"]) / _longest(samples, expected["below"])
    value = value / divisor if divisor else math.nan
    return value if math.isfinite(value) and value > 0 else None


def _control_of(one: Json, timed: Json) -> float | None:
    """Time of the A/A control arm over that of the arm which it repeats."""
    for arm in timed["arms"]:
        twin, original = arm["name"], arm["control_of"]
        if original is not None and twin in one["samples"] and original in one["samples"]:
            return side(one["samples"][twin], "time") / side(one["samples"][original], "time")
    return None


def chart(timed: Json, cell: Json) -> tuple[charts.RoundsChart | None, str]:
    """The chart of all rounds and its caption; (None, "") when there is too little to draw."""
    value, low, high = cell["value"], cell["low"], cell["high"]
    if value is None or value <= 0:
        return None, ""
    direct = cell["unit"] == "ratio" and 1 / _DIRECT <= value <= _DIRECT
    base = 1.0 if direct else value
    points: list[tuple[int, float, str]] = []
    for one in timed["rounds"]:
        figure, control = figure_of(one, timed), _control_of(one, timed)
        if figure is not None:
            points.append((one["seq"], figure / base, "void" if one["void"] else "valid"))
        if control is not None and not one["void"]:
            points.append((one["seq"], control, "control"))
    ends = (None, None) if low is None or high is None else (low / base, high / base)
    drawn = charts.rounds_chart(points, value / base, *ends)
    what = "ratio" if direct else "figure over the median of all rounds"
    return drawn, f"Every round in the order in which it ran: {what}, logarithmic scale" if drawn else ""


def chart_alt(timed: Json, cell: Json) -> str:
    """The chart in words."""
    found = [figure_of(one, timed) for one in timed["rounds"] if not one["void"]]
    valid = [value for value in found if value is not None]
    if not valid:
        return "No valid round."
    spread = fmt.interval(cell["value"], min(valid), max(valid))
    return (
        f"{len(valid)} valid rounds between {spread}, median "
        f"{fmt.figure(cell['value'], cell['unit'], cell['low'], cell['high'])}; "
        f"{sum(1 for one in timed['rounds'] if one['void'])} void rounds."
    )


def _void_text(voids: Sequence[Json]) -> str:
    words = (VOID_RULES.get(str(void["rule"]), str(void["rule"])) for void in voids)
    arms = (f" ({void['arm']})" if void["arm"] else "" for void in voids)
    return "; ".join(word + arm for word, arm in zip(words, arms, strict=True))


def counts(timed: Json, summary: Json | None) -> str:
    """Valid and void rounds in words."""
    void = sum(1 for one in timed["rounds"] if one["void"])
    valid = summary["valid"] if summary else len(timed["rounds"]) - void
    return f"{valid} valid, {void} void"


def control_text(summary: Json | None) -> str:
    """The A/A interval in words."""
    if not summary or summary.get("a_a") is None:
        return "none"
    low, high = summary["a_a"]
    return fmt.interval(math.sqrt(low * high), low, high)


def facts(timed: Json, summary: Json | None, guard: float) -> tuple[Fact, ...]:
    """How the figure came about: samples, interval, control, halves, voids, roof."""
    found = []
    if summary:
        confidence = fmt.plain(100 * summary["confidence"])
        found.append(Fact("Interval", f"median with sign-test interval, confidence {confidence} %"))
        allowed = f"allowed {fmt.fixed(1 / (1 + guard), 3)} to {fmt.fixed(1 + guard, 3)}"
        found.append(Fact("A/A control", f"{control_text(summary)}, {allowed}"))
        if summary.get("halves"):
            first, second = summary["halves"]
            digits = 3 if 0.1 < abs(first) < 100 else 1
            text = f"medians {fmt.fixed(first, digits)} and {fmt.fixed(second, digits)}, allowed to differ by"
            found.append(Fact("First and second half", f"{text} {fmt.plain(100 * guard)} %"))
    voids = Counter(void["rule"] for one in timed["rounds"] for void in one["void"])
    if voids:
        reasons = "; ".join(f"{VOID_RULES.get(rule, rule)}: {count}" for rule, count in sorted(voids.items()))
        found.append(Fact("Void because", reasons))
    roof = timed.get("roof")
    if roof:
        share = summary.get("share") if summary else None
        text = f"{fmt.fixed(roof['bytes_per_ns'], 1)}{fmt.NBSP}GB/s with {roof['threads']} threads"
        found.append(Fact("Roof", text + (f", share {fmt.fixed(share, 3)}" if share else "")))
    if "rounds_of" in timed:
        found.append(Fact("Rounds", f"those of {timed['rounds_of']['check']}, {timed['rounds_of']['cell']}"))
    run = f"{timed['rounds_wanted']} rounds wanted, seed {timed['seed']}"
    found.append(Fact("Run", run + (", interrupted" if timed["interrupted"] else "")))
    return tuple(found)


def arms_table(timed: Json) -> Table:
    """One row per arm: what it is, its median time and rate over the valid rounds, its bytes."""
    rows = []
    for arm in timed["arms"]:
        valid = (one["samples"] for one in timed["rounds"] if not one["void"])
        samples = [placed[arm["name"]] for placed in valid if arm["name"] in placed]
        nanoseconds = sorted(sample["ns"] for sample in samples)
        rates = sorted(sample["bytes"] / sample["ns"] for sample in samples)
        middle = len(samples) // 2
        rows.append(
            Row(
                (
                    arm["name"],
                    arm["description"],
                    fmt.duration(nanoseconds[middle]) if samples else "\u2013",
                    fmt.bytes_text(samples[middle]["bytes"]) if samples else "\u2013",
                    f"{fmt.fixed(rates[middle], 1)}{fmt.NBSP}GB/s" if samples and rates[middle] else "\u2013",
                )
            )
        )
    columns = (
        Column("Arm"),
        Column("What it is", wide=True),
        Column("Median time", numeric=True),
        Column("Bytes read", numeric=True),
        Column("Median rate", numeric=True),
    )
    return Table("Arms, over the valid rounds", columns, tuple(rows))


def roof_table(timed: Json) -> Table | None:
    """The read-only patterns behind the roof, None when the run had none."""
    roof = timed.get("roof")
    if not roof:
        return None
    rows = []
    for pattern in roof["patterns"]:
        rate = fmt.fixed(pattern["bytes"] / min(pattern["ns"]), 1)
        rows.append(Row((pattern["name"], fmt.bytes_text(pattern["bytes"]), f"{rate}{fmt.NBSP}GB/s")))
    columns = (Column("Pattern"), Column("Bytes a pass", numeric=True), Column("Best pass", numeric=True))
    return Table("Roof: best read-only pass of each access pattern", columns, tuple(rows))


def raw_table(timed: Json) -> Table:
    """Every round: number, order, nanoseconds of each arm, the figure, the probe, and why it is void."""
    names = [arm["name"] for arm in timed["arms"]]
    rows = []
    for one in timed["rounds"]:
        times = [fmt.fixed(one["samples"][n]["ns"], 0) if n in one["samples"] else "\u2013" for n in names]
        figure = figure_of(one, timed)
        rows.append(
            Row(
                (
                    str(one["seq"]),
                    " \u2192 ".join(str(names.index(n) + 1) if n in names else n for n in one["order"]),
                    *times,
                    "\u2013" if figure is None else fmt.digits(figure),
                    fmt.fixed(one["probe_bytes_per_ns"], 1),
                    _void_text(one["void"]),
                ),
                muted=bool(one["void"]),
            )
        )
    columns = (
        Column("Round", numeric=True),
        Column("Order"),
        *(Column(f"{i + 1}: {name}, ns", numeric=True) for i, name in enumerate(names)),
        Column("Figure", numeric=True),
        Column("Probe, GB/s", numeric=True),
        Column("Void because", wide=True),
    )
    return Table(f"Raw rounds ({len(rows)})", columns, tuple(rows))
