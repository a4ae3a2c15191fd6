"""`cflow doctor`: what can be measured on this machine, why not, and what would help."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated

import typer

from claims.readiness.diagnosis import Diagnosis, diagnose
from claims.timing import progress_line
from cli.completion import profile_names
from cli.console import EXIT_FAILED, EXIT_USAGE, JsonOption, mb, print_json, wrapped
from harness.doctor import Effect, Finding, ProfileRow
from harness.machine import usable_memory_bytes
from harness.profiles import DEFAULT_PROFILE, PROFILES

_ANSWERS = {"yes": "yes", "no": "no", "unknown": "?"}
_NARROWEST, _WIDEST = 60, 120
_LISTED = 6
"""Checks or rows that are named one by one; of more, their number is said and JSON has them all."""


def doctor(
    profile: Annotated[
        str,
        typer.Option(
            help=f"Profile to be ready for: {', '.join(p.name for p in PROFILES)}.",
            autocompletion=profile_names,
        ),
    ] = DEFAULT_PROFILE,
    out: Annotated[Path, typer.Option(help="Where results would go.")] = Path(),
    measure: Annotated[
        bool,
        typer.Option("--measure/--no-measure", help="Measure noise: five seconds of an arm against itself."),
    ] = True,
    json: JsonOption = False,
) -> None:
    """Say what this machine can show, what it cannot, why, and what would help.

    Exit code 0: ready. 1: the profile fits, but the machine is too noisy now for verdicts of timed checks.
    2: the profile cannot run here.
    """
    found = diagnose(profile, out, measure=measure, progress=progress_line("noise of an arm against itself"))
    if json:
        print_json(found.to_json())
    else:
        for line in report(found, min(max(get_terminal_size().columns, _NARROWEST), _WIDEST)):
            print(line)
    if not found.fits:
        raise typer.Exit(EXIT_USAGE)
    if found.quiet is False:
        raise typer.Exit(EXIT_FAILED)


def report(found: Diagnosis, width: int) -> Iterator[str]:
    """The lines for people, at most `width` columns wide unless a word is wider."""
    cpu, memory, storage = found.state["cpu"], found.state["memory"], found.state["storage"]
    yield f"cpu        {cpu['model'] or 'unknown'}, {cpu['physical']} cores, {cpu['logical']} threads"
    yield f"memory     {_size(usable_memory_bytes(found.state))} available of {_size(memory['total_bytes'])}"
    yield f"storage    {_size(storage['free_bytes'])} free, {storage['filesystem'] or 'unknown file system'}"
    yield ""
    for finding, effects in found.findings:
        yield from _finding(finding, effects, width)
    yield ""
    yield from _profiles(found.profiles, width)
    yield ""
    yield from wrapped(_conclusion(found), "", width)


def _finding(finding: Finding, effects: Sequence[Effect], width: int) -> Iterator[str]:
    answer = "NO" if finding.required and finding.state == "no" else _ANSWERS[finding.state]
    yield from wrapped(f"{finding.name}: {finding.detail}", f"{answer:<3}  ", width)
    if finding.remedy:
        yield from wrapped(finding.remedy, "       -> ", width)
    for effect in effects:
        yield from wrapped(effect_words(effect), "       => ", width)


def effect_words(effect: Effect) -> str:
    """ "NOT MEASURABLE HERE: 2.l1.cachegrind"."""
    parts = []
    if effect.checks:
        parts.append(_listed(effect.checks, "checks"))
    if effect.rows:
        parts.append(_listed(effect.rows, "rows"))
    return f"{'' if effect.certain else 'perhaps '}{effect.verdict}: {'; '.join(parts)}"


def _listed(names: Sequence[str], what: str) -> str:
    if len(names) <= _LISTED:
        return ", ".join(names)
    return f"{len(names)} {what}, {', '.join(names[: _LISTED - 1])} ..."


def _profiles(rows: Sequence[ProfileRow], width: int) -> Iterator[str]:
    yield f"{'profile':<9}{'time':>10}{'memory':>9}{'disk':>9}{'cores':>7}  fits"
    for row in rows:
        one = row.profile
        fits = "yes" if row.fits else f"no: {'; '.join(row.missing)}"
        sizes = f"{one.ram_bytes / 1e9:>6.0f} GB{one.disk_bytes / 1e9:>6.0f} GB{one.cores:>7}"
        yield from wrapped(fits, f"{one.name:<9}{row.budget_s / 60:>6.0f} min{sizes}  ", width)


def _conclusion(found: Diagnosis) -> str:
    if not found.fits:
        return f"NOT ready for profile {found.profile}"
    if found.quiet is False:
        return (
            f"profile {found.profile} can run, but not for verdicts of timed checks: too noisy now; what is "
            "counted or simulated does not mind"
        )
    unheard = "" if found.quiet else "; noise was not measured"
    return f"ready for profile {found.profile}{unheard}"


def _size(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else mb(size_bytes)
