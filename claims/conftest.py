"""pytest for claims: options, one recorded run a session, verdicts as outcomes, a table at the end."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from claims.display import Display, LiveDisplay
from claims.forecast import Forecast
from claims.models import remove_cached
from claims.own_file import UnfitError
from claims.run import REGISTRY_PATH, ClaimsRun, Found, Settings, model_cache
from claims.summary import table
from claims.terminal import Block
from claims.trained import TrainedModels, trained_models
from engine.errors import CflowError
from harness import load
from harness.errors import HarnessError, ResultsError
from harness.kinds import INCONCLUSIVE, NOT_MEASURABLE, PROFILE_NAMES, REFUTED, Verdict
from harness.profiles import DEFAULT_PROFILE
from harness.registry import load_registry
from reports import render

USAGE_ERROR = 2
NARROWEST = 100  # columns of the table at the end; a narrower terminal wraps it
_LEFT_OUT = ("--resume", "-x", "--exitfirst")
_RUN = pytest.StashKey[ClaimsRun]()
_ENDED = pytest.StashKey[list[str]]()

Measure = Callable[..., None]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("claims", "verification of the paper's claims")
    group.addoption("--profile", choices=PROFILE_NAMES, default=DEFAULT_PROFILE, help="size of the run")
    group.addoption(
        "--only", action="append", default=[], metavar="ID", help="a check (7.law) or a claim (7)"
    )
    group.addoption(
        "--threads", type=_positive, default=None, metavar="N", help="workers; default: physical cores"
    )
    group.addoption(
        "--out", type=Path, default=None, metavar="DIR", help="results; default: reports/runs/<utc>-<host>"
    )
    group.addoption(
        "--gguf", type=Path, default=None, metavar="FILE", help="your own model, for the rows of e2e.own"
    )
    group.addoption(
        "--hf", type=Path, default=None, metavar="DIR", help="your own model for vLLM, for its row of e2e.own"
    )
    group.addoption(
        "--trained",
        type=Path,
        default=None,
        metavar="DIR",
        help="a folder of `cflow train`, or a folder of such folders: trained models for parity, 1 and 7",
    )
    group.addoption(
        "--train",
        type=Path,
        default=None,
        metavar="DIR",
        help="train the series behind the claim on quality in DIR, or go on with it (hours), and judge that",
    )
    group.addoption("--resume", action="store_true", help="go on with the interrupted run in --out DIR")
    group.addoption(
        "--clean", action="store_true", help="remove the cached models beside --out DIR, and measure nothing"
    )
    group.addoption(
        "--record-only",
        action="store_true",
        help="measure and record; no verdict fails (with pytest's own --strict, skips fail as well)",
    )


def _positive(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 256:
        raise ValueError(f"found {text}, allowed: 1 to 256")
    return int(text)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "check(id): the check of claims.toml that a test measures")
    if config.getoption("clean"):
        clean(config.getoption("out"))
    config.stash[_ENDED] = []
    if config.getini("strict") and config.getoption("record_only"):
        refuse("--strict and --record-only contradict each other")
    if config.getoption("resume") and config.getoption("out") is None:
        refuse("--resume needs --out DIR, the folder of the interrupted run")
    refuse_xdist(config.option)


def refuse(message: str) -> NoReturn:
    """Ends pytest with the exit code of a usage or environment error."""
    pytest.exit(f"cflow: {message}", returncode=USAGE_ERROR)


def refuse_xdist(options: argparse.Namespace) -> None:
    """Ends pytest when its options ask xdist for processes; -n 0, and its mere presence, are fine."""
    if getattr(options, "numprocesses", None) or getattr(options, "tx", None):
        refuse("-n, --tx: timed checks cannot share the machine with one another; run without xdist")


def clean(out: Path | None) -> NoReturn:
    """Removes the models that runs in this folder share, says what that freed, and ends pytest."""
    folder = model_cache(out)
    try:
        files, freed_bytes = remove_cached(folder)
    except OSError as error:
        refuse(f"--clean: {error}")
    pytest.exit(f"{folder}: {files} cached models removed, {freed_bytes / 1e6:,.0f} MB freed", returncode=0)


def _check_id(item: pytest.Item) -> str:
    mark = item.get_closest_marker("check")
    return str(mark.args[0]) if mark is not None else ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted: Sequence[str] = config.getoption("only")
    if not wanted:
        return
    claims = {check.id: check.claim for check in load_registry(REGISTRY_PATH).checks}
    names = {check: {check, claims.get(check)} for check in map(_check_id, items)}
    for name in wanted:
        if not any(name in each for each in names.values()):
            refuse(f"--only {name}: no such check or claim; there are {', '.join(sorted(names))}")
    kept = [item for item in items if not names[_check_id(item)].isdisjoint(wanted)]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def _partial(items: Sequence[pytest.Item]) -> tuple[str, ...] | None:
    """The selected checks when --only, -k, -m or --lf left some out; None for a whole run."""
    selected = {_check_id(item) for item in items}
    declared = [check.id for check in load_registry(REGISTRY_PATH).checks if check.built]
    return None if selected.issuperset(declared) else tuple(name for name in declared if name in selected)


def _allowed_threads(wanted: int | None) -> int | None:
    """At most one worker per CPU that this process may use; a warning says so when more were asked for."""
    allowed = len(os.sched_getaffinity(0))
    if wanted is not None and wanted > allowed:
        warnings.warn(
            f"--threads {wanted}: {allowed} CPUs are allowed here, {allowed} are used", stacklevel=2
        )
        return allowed
    return wanted


@pytest.fixture(scope="session")
def claims_run(request: pytest.FixtureRequest) -> ClaimsRun:
    """The run of this session; a machine or folder that cannot take it ends pytest with exit code 2."""
    config = request.config
    settings = Settings(
        profile=config.getoption("profile"),
        threads=_allowed_threads(config.getoption("threads")),
        out=config.getoption("out"),
        resume=config.getoption("resume"),
        only=_partial(request.session.items),
        gguf=config.getoption("gguf"),
        hf=config.getoption("hf"),
        arguments=[str(text) for text in config.invocation_params.args if not str(text).startswith("claims")],
    )
    try:
        run = ClaimsRun(settings)
    except (UnfitError, HarnessError, CflowError, OSError) as error:
        refuse(str(error))
    run.display = _display(config, run, [_check_id(item) for item in request.session.items])
    config.stash[_RUN] = run
    return run


def _display(config: pytest.Config, run: ClaimsRun, checks: Sequence[str]) -> Display:
    """The live one where pytest reports to a terminal that can move its cursor, and -qq is not given."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not reporter.isatty or config.option.verbose < -1:
        return Display()
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        return Display()
    planned = {name: run.registry.check(name).budget_s.get(run.profile) for name in checks if name}
    left = {name: s for name, s in planned.items() if s is not None and not run.recorder.done(name)}
    writer = config.get_terminal_writer()
    block = Block(lambda: sys.stdout, lambda: writer.width_of_current_line)
    return LiveDisplay(block, run.registry, Forecast(left))


@pytest.fixture(scope="session")
def trained(request: pytest.FixtureRequest, claims_run: ClaimsRun) -> TrainedModels | None:
    """The models of --trained DIR, converted; a folder that holds none ends pytest with exit code 2."""
    folder: Path | None = request.config.getoption("trained")
    try:
        return None if folder is None else trained_models(folder, claims_run.cache)
    except (CflowError, OSError) as error:
        refuse(str(error))


@pytest.fixture
def measure(
    request: pytest.FixtureRequest, claims_run: ClaimsRun, capsys: pytest.CaptureFixture[str]
) -> Iterator[Measure]:
    """`measure(produce, limits)`: measures and records the check of this test; its verdict ends the test."""
    check_id = _check_id(request.node)
    config = request.config

    def run_check(produce: Callable[[], Found], limits: Sequence[str] = ()) -> None:
        if claims_run.profile not in claims_run.registry.check(check_id).budget_s:
            pytest.skip(f"{check_id}: not part of profile {claims_run.profile}")
        try:
            with capsys.disabled():  # progress belongs on the terminal, and pytest would keep it
                verdict, reason = claims_run.measure(check_id, produce, limits)
        except (ResultsError, CflowError, OSError) as error:
            # A full disk, a model that cannot be made, memory that is not there: what was measured is kept.
            refuse(f"{check_id}: {error}")
        judge(check_id, verdict, reason, config)

    yield run_check


def judge(check_id: str, verdict: Verdict | None, reason: str, config: pytest.Config) -> None:
    """Pass, fail or skip: SUPPORTED and recorded pass, REFUTED fails, the others skip."""
    if config.getoption("record_only") and verdict not in (INCONCLUSIVE, NOT_MEASURABLE):
        return
    if verdict == REFUTED:
        pytest.fail(f"{check_id} {verdict}: {reason}", pytrace=False)
    if verdict in (INCONCLUSIVE, NOT_MEASURABLE):
        if config.getini("strict"):
            pytest.fail(f"{check_id} {verdict}: {reason}", pytrace=False)
        pytest.skip(f"{check_id} {verdict}: {reason}")


def resuming(config: pytest.Config, out: Path) -> str:
    """The command that goes on with a run: the same arguments, with its folder. Without -x: what failed is
    recorded, fails again, and would end it.
    """
    words: list[str] = []
    given = iter(map(str, config.invocation_params.args))
    for word in given:
        if word == "--out":
            next(given, None)
        elif word not in _LEFT_OUT and not word.startswith(("--out=", "--maxfail=")):
            words.append(word)
    return shlex.join(["pytest", *words, "--resume", "--out", str(out)])


def pytest_sessionfinish(session: pytest.Session) -> None:
    run = session.config.stash.get(_RUN, None)
    if run is None:
        return
    ended = session.config.stash[_ENDED]
    cut_short = session.exitstatus == pytest.ExitCode.INTERRUPTED or session.shouldfail or session.shouldstop
    try:
        if cut_short:
            ended.append(f"not finished; go on with: {resuming(session.config, run.out)}")
        else:
            run.finish()
        ended.append(f"report: {render(run.out)}")
    except (HarnessError, OSError) as error:
        ended.append(f"the run could not be closed: {error}")
        session.exitstatus = USAGE_ERROR


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    run = config.stash.get(_RUN, None)
    if run is None:
        return
    terminalreporter.section(f"claims, profile {run.profile}, {run.threads} threads")
    with contextlib.suppress(ResultsError):
        for line in table(load(run.out), max(shutil.get_terminal_size().columns, NARROWEST)).splitlines():
            terminalreporter.write_line(line)
    terminalreporter.write_line(f"results: {run.recorder.path}")
    for line in config.stash[_ENDED]:
        terminalreporter.write_line(line)
