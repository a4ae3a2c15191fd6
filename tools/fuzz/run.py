"""Runs of one target, and the summary that they add up to.

The work folder of a target holds `corpus` (inputs that reached something new), `crashes`, and `summary.json`.
Work goes on in pieces of at most PIECE_S seconds, each of which starts from that corpus and ends in the
summary: a run that is killed loses the counts of one piece, and no input.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from harness.results import write_atomically
from tools.fuzz.targets import DICTIONARY, MAX_INPUT_BYTES, Target

PIECE_S = 300
MINIMISE_S = 60
POLL_S = 0.1
MOST_S = 20
"""Of one input. libFuzzer looks at the clock; what it ends counts if it takes as much processor time."""
MEMORY = "-rss_limit_mb=2048"
MOST_CRASHES = 20
"""After so many of its own a run ends: one fault is found again and again."""

_PROGRESS = re.compile(r"^#(\d+)\s.*cov: (\d+) ft: (\d+) corp: (\d+)/", re.MULTILINE)
_EXECUTED = re.compile(r"^stat::number_of_executed_units: (\d+)", re.MULTILINE)
_WRITTEN = re.compile(r"Test unit written to (.+)$", re.MULTILINE)
_CAUSE = re.compile(r"^.*(?:broken: |ERROR: |runtime error: ).*$", re.MULTILINE)


@dataclass
class Crash:
    """A finding: the input, the smallest that still shows it, and what the sanitizer or the target said."""

    input: str
    reduced: str
    cause: str


@dataclass
class Summary:
    """All runs of a target in one work folder. Times are of processes: `cpu_s` counts all jobs."""

    target: str
    compiler: str = ""
    executions: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    executions_per_s: float = 0.0
    edges: int = 0
    features: int = 0
    corpus_inputs: int = 0
    pieces: int = 0
    crashes: list[Crash] = field(default_factory=list)
    waited: int = 0
    """Inputs that took too long by the clock, and not by the processor: no findings."""
    lines: dict[str, dict[str, float]] = field(default_factory=dict)
    """By source file: lines, covered, percent. Empty until asked for."""


def read_summary(path: Path, target: str) -> Summary:
    """The summary at `path`, or a new one when there is none. Raises ValueError when it is not one."""
    if not path.exists():
        return Summary(target)
    try:
        values = json.loads(path.read_text())
        return Summary(**{**values, "crashes": [Crash(**crash) for crash in values["crashes"]]})
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a summary of this tool ({error}); remove it to start again") from error


def write_summary(path: Path, summary: Summary) -> None:
    """Writes it atomically."""
    write_atomically(path, json.dumps(asdict(summary), indent=2) + "\n")


@dataclass(frozen=True)
class Runner:
    """Runs `program` for `target` with its work folder. reduces: whether a finding is made smaller."""

    target: Target
    program: Path
    work: Path
    reduces: bool = True

    @property
    def corpus(self) -> Path:
        """Inputs found so far."""
        return self.work / "corpus"

    @property
    def crashes(self) -> Path:
        """Inputs that ended the program."""
        return self.work / "crashes"

    @property
    def summary_path(self) -> Path:
        """What the runs add up to."""
        return self.work / "summary.json"

    def prepare(self) -> None:
        """Makes the folders."""
        self.corpus.mkdir(parents=True, exist_ok=True)
        self.crashes.mkdir(exist_ok=True)

    def run(
        self,
        summary: Summary,
        seconds: int,
        jobs: int,
        report: Callable[[str], None],
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Fuzzes for `seconds` of wall time with `jobs` processes, or until `is_stopped`, asked often.

        After a finding the rest of the time is used, too. The summary is written after every piece.
        """
        end, left, most = time.monotonic() + seconds, float(seconds), len(summary.crashes) + MOST_CRASHES
        while left >= 1 and len(summary.crashes) < most and not is_stopped():
            self._piece(summary, int(min(left, PIECE_S)), jobs, is_stopped)
            write_summary(self.summary_path, summary)
            report(
                f"{self.target.name}: {summary.executions:,} executions, {summary.executions_per_s:,.0f}/s, "
                f"{summary.edges:,} edges, {summary.corpus_inputs:,} inputs, {len(summary.crashes)} crashes"
            )
            left = end - time.monotonic()

    def still_found(self, summary: Summary, is_stopped: Callable[[], bool] = lambda: False) -> list[Crash]:
        """The findings of earlier runs whose inputs still end the program, of those tried until stopped."""
        found = []
        for crash in summary.crashes:
            path = Path(crash.reduced)
            if crash.reduced and path.is_file() and self._ends(path, is_stopped):
                found.append(crash)
        return found

    def _ends(self, path: Path, is_stopped: Callable[[], bool]) -> bool:
        """Whether an input ends the program, or takes too much of the processor; not if it was stopped."""
        if is_stopped():
            return False
        # A deadlock takes no processor time at all: in the end the clock decides, and patiently.
        arguments = [f"-timeout={10 * MOST_S}", MEMORY, "-exact_artifact_path=/dev/null", str(path)]
        process = self._start(arguments, self.work / "again.log")
        with suppress(ProcessLookupError):  # it may have ended
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (MOST_S, MOST_S + 1))
        return not _wait([process], is_stopped) and process.returncode != 0

    def _piece(self, summary: Summary, seconds: int, jobs: int, is_stopped: Callable[[], bool]) -> None:
        before, started = set(self.crashes.iterdir()), time.monotonic()
        cpu_before = resource.getrusage(resource.RUSAGE_CHILDREN)
        arguments = [
            str(self.corpus),
            str(self.target.corpus),
            f"-max_total_time={seconds}",
            f"-max_len={MAX_INPUT_BYTES}",
            "-len_control=0",
            f"-timeout={MOST_S}",
            MEMORY,
            "-report_slow_units=10000",  # would lie among the crashes: a busy machine is no finding
            "-print_final_stats=1",
            f"-dict={DICTIONARY}",
            f"-artifact_prefix={self.crashes}/",
        ]
        logs = [self.work / f"job-{job}.log" for job in range(jobs)]
        running = [self._start(arguments, log) for log in logs]
        stopped = _wait(running, is_stopped)
        cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
        texts = [log.read_text(errors="replace") for log in logs]
        summary.pieces += 1
        summary.wall_s = round(summary.wall_s + time.monotonic() - started, 1)
        summary.cpu_s = round(
            summary.cpu_s + cpu.ru_utime + cpu.ru_stime - cpu_before.ru_utime - cpu_before.ru_stime, 1
        )
        executions = sum([_add_counts(summary, text) for text in texts])
        summary.executions_per_s = round(summary.executions / max(summary.wall_s, 0.1), 1)
        summary.corpus_inputs = len(list(self.corpus.iterdir()))
        written = {self.work / name for text in texts for name in _WRITTEN.findall(text)}
        found = sorted(set(self.crashes.iterdir()) - before | {path for path in written if path.is_file()})
        slow = [path for path in found if path.name.startswith("timeout-")]
        waited = [path for path in slow if not self._ends(path, lambda: False)]
        for path in waited:
            path.unlink()
        summary.waited += len(waited)
        for path in [path for path in found if path not in waited]:
            text = next((text for text in texts if path.name in text), "")
            reduced = self._reduce(path, is_stopped) if self.reduces else path
            summary.crashes.append(Crash(str(path), str(reduced), _cause(text)))
        failed = [p.returncode for p in running if p.returncode not in (0, None)]
        if (failed or not executions) and not found and not stopped:
            code = failed[0] if failed else 0
            ended = f"exit code {code} after {executions:,} executions, no input was kept"
            cause = _cause("\n".join(texts)) or ended
            summary.crashes.append(Crash("", "", cause))

    def _start(self, arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "TMPDIR": str(self.work),
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        with log.open("wb") as output:
            return subprocess.Popen(
                [str(self.program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.work,
                process_group=0,
            )

    def _reduce(self, path: Path, is_stopped: Callable[[], bool]) -> Path:
        """A smaller input that ends the same, beside it; or the input itself (none found, or it is slow)."""
        reduced = path.with_name(f"reduced-{path.name}")
        if not path.name.startswith("crash-"):
            return path
        arguments = [
            "-minimize_crash=1",
            f"-max_total_time={MINIMISE_S}",
            f"-exact_artifact_path={reduced}",
            str(path),
        ]
        # It starts processes of its own, and goes on when one of them is asked to end.
        if _wait([self._start(arguments, self.work / "reduce.log")], is_stopped, signal.SIGKILL):
            reduced.unlink(missing_ok=True)  # may be half written
        return reduced if reduced.exists() else path


def _wait(
    running: list[subprocess.Popen[bytes]],
    is_stopped: Callable[[], bool],
    number: signal.Signals = signal.SIGINT,
) -> bool:
    """Until all have ended; whether their groups were sent the signal. After SIGINT counts are printed."""
    stopped = False
    while any([process.poll() is None for process in running]):
        if is_stopped() and not stopped:
            stopped = True
            for process in running:
                if process.poll() is None:
                    os.killpg(process.pid, number)  # its number is taken until it has been waited for
        time.sleep(POLL_S)
    return stopped


def _add_counts(summary: Summary, text: str) -> int:
    """Adds what one process has said; returns its executions."""
    executed, progress = _EXECUTED.findall(text), _PROGRESS.findall(text)
    count = int(executed[-1]) if executed else int(progress[-1][0]) if progress else 0
    summary.executions += count
    if progress:
        summary.edges = max(summary.edges, int(progress[-1][1]))
        summary.features = max(summary.features, int(progress[-1][2]))
    return count


def _cause(text: str) -> str:
    found = _CAUSE.search(text)
    return found.group(0).strip() if found else ""
