"""Results to the view model of the whole page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.results import Results
from reports import claims, figures, panels, state, summary
from reports.end_to_end import end_to_end
from reports.history import Earlier
from reports.model import Checker, Report
from reports.projection import projection

Json = Mapping[str, Any]

NO_RUNS: Final = Earlier()


def checker_view(found: Json, recorded: int) -> Checker:
    """The separate checker's answer. recorded: checks that the run holds, which it derives."""
    problems = tuple(
        f"{item['check']}: {item['problem']}" if item["check"] else str(item["problem"])
        for item in found["problems"]
    )
    if problems:
        plural = "s" if len(problems) != 1 else ""
        summary = (
            f"The separate checker reports {len(problems)} problem{plural}: "
            "do not trust this page before each is explained."
        )
    else:
        checks = f"{recorded} recorded check{'s' if recorded != 1 else ''}"
        summary = f"The separate checker derived the {checks} again from the raw results: no problem."
    return Checker(agrees=not problems, summary=summary, problems=problems)


def _commit(run: Json) -> str:
    if run["commit"] is None:
        return "not a checkout"
    return str(run["commit"])[:12] + (" with uncommitted changes" if run["dirty"] else "")


def _note(run: Json) -> str:
    parts = []
    if run["finished_utc"] is None:
        parts.append("The run has not finished: this page shows what was measured so far.")
    if run["resumed_utc"]:
        times = len(run["resumed_utc"])
        parts.append(f"The run was resumed {times} time{'s' if times > 1 else ''}.")
    return " ".join(parts)


def _utc(stamp: str) -> str:
    return stamp.replace("T", " ").removesuffix("Z") + " UTC"


def _run_rows(run: Json) -> list[tuple[str, object]]:
    rows = [("started", _utc(run["created_utc"]))]
    rows += [("resumed", _utc(stamp)) for stamp in run["resumed_utc"]]
    rows += [("finished", _utc(run["finished_utc"]) if run["finished_utc"] else "not finished")]
    return [*rows, ("profile", run["profile"]), ("commit", _commit(run)), ("command", run["command"])]


def build(results: Results, checked: Json, earlier: Earlier = NO_RUNS) -> Report:
    """The view model of a run.

    Args:
        results: as loaded by harness.load.
        checked: what harness.check.check says about the same folder.
        earlier: runs to tell of beside this one.
    """
    run = results.run
    shown = tuple(claims.claim_view(results, claim, earlier.runs) for claim in results.registry.claims)
    flagged = {check.id for check in results.registry.checks if check.first_screen}
    return Report(
        title=f"cflow claims: {results.directory.resolve().name}",
        sentence=summary.sentence(shown),
        beside=summary.beside(shown),
        partial=summary.partial(shown),
        undecided=summary.undecided(results),
        run_id=results.directory.resolve().name,
        started=_utc(run["created_utc"]),
        profile=run["profile"],
        commit=_commit(run),
        machine_line=state.machine_line(results.data["machine"]["before"]),
        run_note=_note(run),
        raw=True,
        repeat=run["command"],
        checker=checker_view(checked, len(results.checks)),
        claims=shown,
        first_screen=tuple(check for claim in shown for check in claim.checks if check.id in flagged),
        forest=panels.forest(results),
        end_to_end=end_to_end(results),
        roofline=figures.of(results, "roofline"),
        projection=projection(results),
        machine=state.machine_tables(results.data["machine"]),
        run_tables=(
            state.pairs_table("Run", _run_rows(run)),
            state.pairs_table("Options", list(state.flatten(run["options"]))),
            state.pairs_table("Build of the engine", list(state.flatten(results.data["build"]))),
        ),
        registry_sha256=results.data["registry"]["sha256"],
        registry_text=results.registry.text,
        history_notes=earlier.notes,
    )
