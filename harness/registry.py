"""claims.toml, the registry of claims and checks: targets are declared before anything is measured."""

from __future__ import annotations

import hashlib
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from harness.errors import RegistryError
from harness.kinds import CLAIM_IDS, KINDS, PROFILE_NAMES, Kind, Target
from harness.statistics import MIN_ROUNDS
from harness.toml_table import Table

DEFAULT_GUARD: Final = 0.03
MIN_REPETITIONS: Final = 2
_CHECK_ID: Final = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")
_NEED: Final = re.compile(r"[a-z0-9_]+([:.-][a-z0-9_]+)*")


@dataclass(frozen=True)
class Claim:
    """One claim of the paper. `built` is False while this suite has no measurement for it."""

    id: str
    title: str
    statement: str
    paper_finding: str
    built: bool


@dataclass(frozen=True)
class Cell:
    """One row of a check: its own target and evidence. A check that declares none has one, labelled "".

    repetitions: runs that must all be there before a figure over repetitions gets a verdict: looks at a
    growing series would choose the moment. rounds: valid ones that a paired run must want, per profile, for
    the same reason; None: whatever it wants.
    """

    label: str
    unit: str
    paper: float | None
    target: Target | None
    repetitions: int | None = None
    rounds: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Check:
    """One measurement with one target.

    target: [low, high], None = recorded only (allowed with `beyond` alone). margin: how much counts as "no
    benefit". positive_control: an arm that must be faster than the figure's reference by more than the
    margin, else the setup could not have shown a benefit, and decides nothing. guard: g of the A/A rule.
    budget_s: seconds per profile; a profile that is absent does not run the check. Of its cells the first
    with the verdict of the check is the headline: its value, interval, unit and paper figure stand for the
    check; without a record that is cells[0].
    """

    id: str
    claim: str
    statement: str
    paper_finding: str
    paper: float | None
    paper_unit: str
    metric: str
    unit: str
    target: Target | None
    kinds: tuple[Kind, ...]
    needs: tuple[str, ...]
    budget_s: Mapping[str, float]
    beyond: bool
    first_screen: bool
    built: bool
    margin: float | None
    positive_control: str | None
    guard: float
    cells: tuple[Cell, ...]

    def rounds(self, profile: str, label: str = "") -> int | None:
        """Valid rounds that the paired run of a cell must want; None when none are declared.

        Raises RegistryError for a cell that does not exist.
        """
        for cell in self.cells:
            if cell.label == label:
                return None if cell.rounds is None else cell.rounds.get(profile)
        raise RegistryError(f"check[{self.id}]: no cell {label!r}")

    @property
    def confidence(self) -> float:
        """Per-cell confidence 1 - 0.05 / m for m cells (Bonferroni)."""
        return 1.0 - 0.05 / len(self.cells)


@dataclass(frozen=True)
class Registry:
    """The parsed claims.toml with the exact text that it came from."""

    claims: tuple[Claim, ...]
    checks: tuple[Check, ...]
    text: str

    @property
    def sha256(self) -> str:
        """SHA-256 of the UTF-8 text of claims.toml, hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def ids(self) -> tuple[str, ...]:
        """Of the claims, then of the checks: what --only and `cflow explain` take."""
        return (*(claim.id for claim in self.claims), *(check.id for check in self.checks))

    def claim(self, claim_id: str) -> Claim:
        """The claim of that id. Raises RegistryError naming the ids that exist."""
        for claim in self.claims:
            if claim.id == claim_id:
                return claim
        raise RegistryError(f"no claim {claim_id!r}; claims are {', '.join(c.id for c in self.claims)}")

    def check(self, check_id: str) -> Check:
        """The check of that id. Raises RegistryError naming the ids that exist."""
        for check in self.checks:
            if check.id == check_id:
                return check
        raise RegistryError(f"no check {check_id!r}; checks are {', '.join(c.id for c in self.checks)}")

    def checks_of(self, claim_id: str) -> tuple[Check, ...]:
        """The checks of a claim, in the order of the file."""
        return tuple(check for check in self.checks if check.claim == claim_id)

    def budget_s(self, profile: str) -> float:
        """Seconds that the checks of a profile may take together."""
        return sum(check.budget_s.get(profile, 0.0) for check in self.checks)


def load_registry(path: Path) -> Registry:
    """Reads and validates claims.toml.

    Raises:
        RegistryError: the file cannot be read, or a key breaks a rule; names the key, what was found, what is
        allowed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryError(f"{path.name}: cannot be read: {error}") from error
    return parse_registry(text)


def parse_registry(text: str) -> Registry:
    """Validates the text of a claims.toml. Raises RegistryError as load_registry does."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a plain ValueError
        raise RegistryError(f"claims.toml: not valid TOML: {error}") from error
    top = Table("claims.toml", data)
    claims = tuple(_claim(index, item) for index, item in enumerate(top.tables("claim")))
    found = tuple(claim.id for claim in claims)
    if found != CLAIM_IDS:
        raise RegistryError(
            f"claims.toml.claim: found ids {found}, allowed: exactly {CLAIM_IDS}, in this order"
        )
    by_id = {claim.id: claim for claim in claims}
    checks = tuple(_check(index, item, by_id) for index, item in enumerate(top.tables("check")))
    top.done()
    _cross_rules(claims, checks)
    return Registry(claims, checks, text)


def _claim(index: int, item: object) -> Claim:
    table = Table(f"claim[{index}]", item)
    claim = Claim(
        id=table.text("id"),
        title=table.text("title"),
        statement=table.text("statement"),
        paper_finding=table.text("paper_finding"),
        built=table.flag("built"),
    )
    table.done()
    return claim


def _check(index: int, item: object, claims: Mapping[str, Claim]) -> Check:
    name = item.get("id", index) if isinstance(item, dict) else index
    table = Table(f"check[{name}]", item)
    check_id = table.text("id")
    if not _CHECK_ID.fullmatch(check_id):
        raise table.fail("id", check_id, "lower-case words joined by dots, such as 7.law")
    claim_id = table.text("claim")
    if claim_id not in claims:
        raise table.fail("claim", claim_id, f"one of {', '.join(claims)}")
    kinds = table.texts("kinds", f"a list out of {', '.join(KINDS)}", required=True)
    if not kinds or any(kind not in KINDS for kind in kinds):
        raise table.fail("kinds", list(kinds), f"a non-empty list out of {', '.join(KINDS)}")
    needs = table.texts("needs", "a list of distinct strings")
    for need in needs:
        if not _NEED.fullmatch(need):
            raise table.fail("needs", need, "lower-case words such as isa:avx2 or threads:2")
    beyond = table.flag("beyond", False)
    target = table.target("target")
    unit = table.text("unit")
    margin = table.fraction("margin")
    positive_control = table.text("positive_control", "") or None
    guard = table.fraction("guard") or DEFAULT_GUARD
    if margin is not None and guard > margin:
        raise table.fail("guard", guard, f"at most the margin, {margin}")
    if positive_control is not None and margin is None:
        raise table.fail("positive_control", positive_control, "only beside a margin, which it must exceed")
    paper = table.number("paper")
    budget_s = _budget(check_id, table.table("budget_s"))
    repetitions = table.whole("repetitions", MIN_REPETITIONS)
    default = Cell("", unit, paper, target, repetitions, _rounds(table, budget_s))
    cells = _cells(check_id, table.tables("cells"), default, budget_s)
    if any(cell.target is None for cell in cells) and not beyond:
        raise RegistryError(
            f"check[{check_id}].target: missing; only a check with beyond = true may be recorded alone"
        )
    first_screen = table.flag("first_screen", False)
    if first_screen and not beyond:
        raise table.fail("first_screen", True, "false: checks that decide a claim stand in its row already")
    check = Check(
        id=check_id,
        claim=claim_id,
        statement=table.text("statement"),
        paper_finding=table.text("paper_finding", claims[claim_id].paper_finding),
        paper=paper,
        paper_unit=table.text("paper_unit", unit),
        metric=table.text("metric"),
        unit=unit,
        target=target,
        kinds=cast(tuple[Kind, ...], kinds),
        needs=needs,
        budget_s=budget_s,
        beyond=beyond,
        first_screen=first_screen,
        built=table.flag("built", True),
        margin=margin,
        positive_control=positive_control,
        guard=guard,
        cells=cells,
    )
    table.done()
    return check


def _cells(check_id: str, items: list[Any], default: Cell, budget_s: Mapping[str, float]) -> tuple[Cell, ...]:
    if not items:
        return (default,)
    cells: list[Cell] = []
    for index, item in enumerate(items):
        table = Table(f"check[{check_id}].cells[{index}]", item)
        label = table.text("label")
        if label in {cell.label for cell in cells}:
            raise table.fail("label", label, "labels that differ")
        target, repetitions = table.target("target"), table.whole("repetitions", MIN_REPETITIONS)
        cells.append(
            Cell(
                label=label,
                unit=table.text("unit", default.unit),
                paper=table.number("paper"),
                target=default.target if target is None else target,
                repetitions=repetitions or default.repetitions,
                rounds=_rounds(table, budget_s) or default.rounds,
            )
        )
        table.done()
    return tuple(cells)


def _rounds(table: Table, budget_s: Mapping[str, float]) -> dict[str, int] | None:
    found = table.optional_table("rounds")
    if found is None:
        return None
    allowed = f"a whole number, at least {MIN_ROUNDS}, for each of {', '.join(budget_s)}"
    if set(found) != set(budget_s) or any(type(n) is not int or n < MIN_ROUNDS for n in found.values()):
        raise table.fail("rounds", found, allowed)
    return found


def _budget(check_id: str, data: Mapping[str, Any]) -> dict[str, float]:
    for profile, seconds in data.items():
        where = f"check[{check_id}].budget_s.{profile}"
        if profile not in PROFILE_NAMES:
            raise RegistryError(f"{where}: unknown profile, allowed: {', '.join(PROFILE_NAMES)}")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
            raise RegistryError(f"{where}: found {seconds!r}, allowed: seconds above 0")
    if not data:
        raise RegistryError(f"check[{check_id}].budget_s: empty, allowed: at least one profile")
    return {profile: float(seconds) for profile, seconds in data.items()}


def _cross_rules(claims: tuple[Claim, ...], checks: tuple[Check, ...]) -> None:
    ids = [check.id for check in checks]
    for check_id in ids:
        if ids.count(check_id) > 1:
            raise RegistryError(f"check[{check_id}].id: used twice")
    for claim in claims:
        own = [check for check in checks if check.claim == claim.id]
        if claim.built and not any(not check.beyond for check in own):
            raise RegistryError(
                f"claim[{claim.id}].built: true, but no check that is not beyond belongs to it"
            )
        if not claim.built and any(check.built for check in own):
            raise RegistryError(
                f"claim[{claim.id}].built: false, but check {own[0].id} belongs to it and is built"
            )
