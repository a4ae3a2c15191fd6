"""The view model: everything that the page shows, as text and geometry, decided before a template sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from reports.charts import Axis, Bar, Mark, RoundsChart
from reports.samples import Samples


@dataclass(frozen=True)
class Badge:
    """A verdict as it is shown: its word, a glyph, and the class whose shape and colour go with it."""

    word: str
    slug: str
    glyph: str


BADGES: Final = {
    "SUPPORTED": Badge("SUPPORTED", "supported", "\u2713"),
    "REFUTED": Badge("REFUTED", "refuted", "\u2715"),
    "INCONCLUSIVE": Badge("INCONCLUSIVE", "inconclusive", "?"),
    "NOT MEASURABLE HERE": Badge("NOT MEASURABLE HERE", "not-measurable", "\u2013"),
}
RECORDED: Final = Badge("RECORDED", "recorded", "\u2022")
"""For a figure without a target: it was written down, and nothing was judged."""


def check_anchor(check_id: str) -> str:
    """The fragment id of a check's section; check ids hold nothing that HTML or a URL must escape."""
    return f"check-{check_id}"


@dataclass(frozen=True)
class Column:
    """A table column. numeric: right-aligned. wide: holds prose, may wrap."""

    name: str
    numeric: bool = False
    wide: bool = False


@dataclass(frozen=True)
class Row:
    """A table row; `muted` rows (void rounds) are printed softer."""

    cells: tuple[str, ...]
    muted: bool = False


@dataclass(frozen=True)
class Table:
    """A data table; each row has one cell per column, and the first is the row's header."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Figure:
    """A figure with two axes, drawn twice.

    alt: all that it shows, in words with figures. table: the data behind it. wide, narrow: inline SVG of
    which the style sheet shows one.
    """

    id: str
    title: str
    caption: str
    alt: str
    table: Table
    wide: Markup
    narrow: Markup


@dataclass(frozen=True)
class Number:
    """A figure as text: value with unit, interval (empty for exact values), the paper's figure, target."""

    value: str
    interval: str
    paper: str
    target: str


@dataclass(frozen=True)
class Fact:
    """A labelled statement about a measurement, such as the A/A control."""

    label: str
    text: str


@dataclass(frozen=True)
class CellView:
    """One row of a check with the raw material of its figure. rounds, control: empty unless timed."""

    label: str
    badge: Badge
    number: Number
    kind: str
    reason: str
    rounds: str
    control: str
    facts: tuple[Fact, ...]
    chart: RoundsChart | None
    chart_caption: str
    chart_alt: str
    tables: tuple[Table, ...]
    raw: tuple[Table, ...]

    @property
    def backed(self) -> bool:
        """Whether there is evidence to show."""
        return bool(self.facts or self.tables)


@dataclass(frozen=True)
class CheckView:
    """One check. number, kind, quantity: of its headline cell, which stands for it; recorded: no target.

    earlier: attempts that were interrupted and decide nothing.
    """

    id: str
    anchor: str
    statement: str
    metric: str
    quantity: str
    paper_finding: str
    badge: Badge
    number: Number
    kind: str
    kinds: str
    beyond: bool
    recorded: bool
    reason: str
    limits: tuple[str, ...]
    earlier: tuple[str, ...]
    cells: tuple[CellView, ...]
    cell_table: Table | None
    repeat: str


@dataclass(frozen=True)
class ForestRow:
    """One timed ratio of the forest plot. `alt`: all of it in words."""

    anchor: str
    label: str
    detail: str
    value: str
    interval: str
    mark: Mark
    alt: str


@dataclass(frozen=True)
class ForestGroup:
    """Rows that share a logarithmic axis."""

    title: str
    axis: Axis
    axis_alt: str
    rows: tuple[ForestRow, ...]


@dataclass(frozen=True)
class Forest:
    """All timed ratios, and the same as a table."""

    groups: tuple[ForestGroup, ...]
    table: Table


@dataclass(frozen=True)
class Panel:
    """The bars of one check: one kind of evidence, never mixed with another."""

    title: str
    anchor: str
    kind: str
    figure: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class BarChart:
    """Panels of bars over one shared linear axis."""

    id: str
    axis: Axis
    axis_alt: str
    has_paper: bool
    panels: tuple[Panel, ...]
    table: Table


@dataclass(frozen=True)
class Projection:
    """What another machine would do under assumptions: a curve a model over one axis of read bandwidth."""

    anchor: str
    machine: str
    assumptions: tuple[Fact, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class ScaledBars:
    """Bars of one unit over an axis of their own."""

    title: str
    anchor: str
    unit: str
    axis: Axis
    axis_alt: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class EndToEnd:
    """Engines on their models. sentence: which part of the lead is the model and which the engine; `anchor`
    is the check behind it. doubt: why its rounds decide nothing, empty when they do.
    """

    sentence: str
    doubt: str
    anchor: str
    panels: tuple[ScaledBars, ...]
    has_paper: bool
    table: Table


@dataclass(frozen=True)
class Finding:
    """One check in the table of evidence: figure of its headline, empty when there is none."""

    anchor: str
    id: str
    badge: Badge
    figure: str


@dataclass(frozen=True)
class KindColumn:
    """The checks of a claim whose evidence is of one kind."""

    kind: str
    deciding: tuple[Finding, ...]
    beyond: tuple[Finding, ...]


@dataclass(frozen=True)
class ClaimView:
    """One claim. headline: the check whose figure stands for the claim on the first screen; why: what is said
    there when it has none, the beginning of `reason`. per_token: what the figures mean in time; history: this
    run and earlier ones; samples: what trained models wrote, of the claim on quality.
    """

    id: str
    anchor: str
    label: str
    title: str
    statement: str
    paper_finding: str
    badge: Badge
    built: bool
    reason: str
    why: str
    headline: CheckView | None
    tally: str
    kinds: tuple[KindColumn, ...]
    per_token: Table | None
    history: Table | None
    chart: BarChart | None
    figures: tuple[Figure, ...]
    samples: Samples | None
    checks: tuple[CheckView, ...]


@dataclass(frozen=True)
class Checker:
    """What the separate checker found: `agrees` when it re-derived every verdict and reported no problem."""

    agrees: bool
    summary: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """The whole page.

    sentence: the verdicts on the claims with a number; beside: on the others; partial: which claims are
    supported by some of their checks alone; undecided: why figures do not decide. first_screen: checks beyond
    the paper that are told beside its claims. raw: show the raw rounds.
    """

    title: str
    sentence: str
    beside: str
    partial: str
    undecided: str
    run_id: str
    started: str
    profile: str
    commit: str
    machine_line: str
    run_note: str
    raw: bool
    repeat: str
    checker: Checker
    claims: tuple[ClaimView, ...]
    first_screen: tuple[CheckView, ...]
    forest: Forest | None
    end_to_end: EndToEnd | None
    roofline: tuple[Figure, ...]
    projection: Projection | None
    machine: tuple[Table, ...]
    run_tables: tuple[Table, ...]
    registry_sha256: str
    registry_text: str
    history_notes: tuple[str, ...]
