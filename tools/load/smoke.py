"""Runs of the claims in a row, at profile `smoke`: same verdicts, and nothing that stays behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from claims.run import ROOT
from tools.load.store import State
from tools.load.watch import left_groups

COMMAND: Final = (sys.executable, "-m", "pytest", "claims/", "-q", "--profile", "smoke", "--record-only")
SETTLE_S: Final = 5.0
"""How long processes of a run may take to be gone once it has ended."""
_TIME_UNITS: Final = frozenset({"ns", "us", "ms", "s"})


def deterministic(results: dict[str, Any]) -> dict[str, str]:
    """Verdict and value of every check that no clock decides; of a recorded time its verdict alone."""
    return {
        check["id"]: str(check["verdict"]) + ("" if check["unit"] in _TIME_UNITS else f" {check['value']}")
        for check in results["checks"]
        if check["kind"] not in ("timed", "hardware")
    }


def session_processes(session: int) -> list[str]:
    """Processes of a session id, as `pid command`, zombies left out."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue  # it has ended meanwhile
        name, fields = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(f"{folder.name} {name}")
    return found


def one_run(folder: Path, command: Sequence[str], number: int) -> dict[str, Any]:
    """Runs the command once, results in `folder`: {"exit", "seconds", "left", "verdicts"}.

    left: what it left behind: processes of its session, temporary files, memory cgroups, files beside its
    results. The results are removed; the models beside them stay for the next run.
    """
    out, temporary = folder / f"run-{number}", folder / "tmp"
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    before, groups_before = _beside(folder, out), left_groups()
    started = time.monotonic()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        [*command, "--out", str(out)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            code = process.wait()
        except BaseException:  # it is in a session of its own, which no Ctrl-C reaches
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    seconds = time.monotonic() - started
    waited = time.monotonic()
    while (alive := session_processes(process.pid)) and time.monotonic() - waited < SETTLE_S:
        time.sleep(0.1)
    left = [f"process {one}" for one in alive]
    left += [f"temporary file {one.relative_to(temporary)}" for one in sorted(temporary.rglob("*"))]
    left += [f"file {one}" for one in sorted(_beside(folder, out) - before) if number > 0]
    left += [f"memory cgroup {one}" for one in sorted(left_groups() - groups_before)]
    try:
        verdicts = deterministic(json.loads((out / "results.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError) as error:
        verdicts = {"results.json": f"cannot be read: {error!r}"}
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(temporary, ignore_errors=True)
    return {"exit": code, "seconds": round(seconds, 1), "left": left, "verdicts": verdicts}


def _beside(folder: Path, out: Path) -> set[str]:
    """Names of what lies in the folder, the results and temporary files of the run left out; the first run
    makes the models.
    """
    return {
        str(one.relative_to(folder))
        for one in folder.rglob("*")
        if out not in (one, *one.parents) and "tmp" not in one.relative_to(folder).parts
    }


def run_smoke(state: State, path: Path, folder: Path, times: int, command: Sequence[str] = COMMAND) -> None:
    """Runs until there are `times`; each is a piece of the state, written when it has ended."""
    folder.mkdir(parents=True, exist_ok=True)
    while len(state.pieces) < times:
        state.pieces.append(one_run(folder, command, len(state.pieces)))
        state.summary = summary(state.pieces)
        state.save(path)
    state.summary = summary(state.pieces)
    state.save(path)


def summary(pieces: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """faults: in words, each with its run; CLEAN when there are none."""
    faults = []
    for number, piece in enumerate(pieces):
        if piece["exit"] != 0:
            faults.append(f"run {number}: exit code {piece['exit']}")
        faults += [f"run {number}: left behind: {one}" for one in piece["left"]]
        first, now = pieces[0]["verdicts"], piece["verdicts"]
        faults += [
            f"run {number}: {name}: {now.get(name)}, in the first run {first.get(name)}"
            for name in {**first, **now}
            if first.get(name) != now.get(name)
        ]
        if "results.json" in now:
            faults.append(f"run {number}: results.json {now['results.json']}")
    return {"outcome": "LEAK" if faults else "CLEAN", "runs": len(pieces), "faults": faults}
