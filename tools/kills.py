"""Kills a command at random moments, over and over, and looks at what is left: `python -m tools.kills synth`.

A run is started, killed with SIGKILL (its whole process group), and started again in the same folder until
one comes to its end; then the folder is emptied. Half of the moments are drawn uniformly over the time that
an undisturbed run takes, half from the moments at which it opens, renames or removes a file. After every kill
each file with a final name must be whole; a run that has come to its end must have the outcome of the
undisturbed one and no temporary name left. Of `claims`, results.json is read all the time and must be valid
whenever it is there.

COMMAND is synth, convert, folder (convert --hf), claims or train. The seed gives the moments: run it in
pieces with different seeds. What was counted is appended to a file, a line of JSON a piece.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from harness.results import FILE_NAME, parse_json, validate
from tools.kills_subjects import ROOT, SUBJECTS, Subject, digests, left, visible

_RUN_S: Final = 600.0
"""Of one run, at most."""


class KillsError(Exception):
    """Something was not as it must be after a kill."""


@dataclass
class Counts:
    """kills: that met a running process; in_time, at_file: drawn which way. leaving: kills after which
    temporary names were left. completed: runs that came to their end with the right outcome. reads: of the
    watched file.
    """

    subject: str
    seed: int
    kills: int = 0
    in_time: int = 0
    at_file: int = 0
    leaving: int = 0
    completed: int = 0
    reads: int = 0


@dataclass
class Watch:
    """Reads a file of results as fast as it changes; whatever is wrong with it is in `faults`."""

    path: Path
    reads: int = 0
    faults: list[str] = field(default_factory=list)

    @contextmanager
    def watching(self) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._loop, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _loop(self, stop: threading.Event) -> None:
        seen = ""
        while not stop.wait(0.002):
            try:
                text = self.path.read_text(encoding="utf-8")
            except FileNotFoundError:
                continue
            self.reads += 1
            if text != seen:
                try:
                    validate(parse_json(text, FILE_NAME))
                except Exception as error:
                    self.faults.append(str(error))
                seen = text


class Kills:
    """The runs of one subject below `folder`, which must not exist yet or be empty."""

    def __init__(self, subject: Subject, folder: Path, seed: int) -> None:
        self.subject, self.folder = subject, folder
        self.counts = Counts(subject.name, seed)
        self._target = folder / "target"
        self._random = random.Random(seed)
        self._wanted: Mapping[str, Any] = {}
        self._files: dict[str, str] = {}
        self._duration_s = 0.0
        self._moments = 0
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, times: int) -> Counts:
        """Until `times` kills have met a running process, and a run has come to its end after the last.

        Raises KillsError.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._prepare()
        self._reference()
        ended = True
        while self.counts.kills < times or not ended:
            ended = self._one(resume=not ended, kill=self.counts.kills < times)
        return self.counts

    def _prepare(self) -> None:
        if self.subject.prepare:
            (self.folder / "source").mkdir()
            ended = self._finished(self._start(self.subject.prepare, 0))
            self._require(ended == 0, f"the preparation ended with {ended}")

    def _reference(self) -> None:
        self._target.mkdir()
        started_s = time.monotonic()
        ended = self._finished(self._start(self.subject.command(self._target, False), 0))
        self._duration_s = time.monotonic() - started_s
        self._require(ended in self.subject.ends, f"the undisturbed run ended with {ended}")
        self._moments = int((self.folder / "count").read_text())
        self._wanted = self.subject.outcome(self._target)
        self._files = digests(self._target)
        self._empty()

    def _one(self, resume: bool, kill: bool) -> bool:
        """One run; whether it came to its end."""
        at_file = kill and self._random.random() < 0.5
        moment = self._random.randint(1, self._moments) if at_file else 0
        delay_s = self._random.uniform(0, self._duration_s)
        watch = Watch(self._target / (self.subject.watched or ""))
        with watch.watching() if self.subject.watched else _nothing():
            process = self._start(self.subject.command(self._target, resume), moment)
            if kill and not at_file:
                try:
                    process.wait(delay_s)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
            ended = self._finished(process)
        self.counts.reads += watch.reads
        self._require(not watch.faults, f"read meanwhile: {watch.faults}")
        if ended == -signal.SIGKILL:
            self.counts.kills += 1
            self.counts.at_file += at_file
            self.counts.in_time += not at_file
            self._look()
            return False
        self._require(ended in self.subject.ends, f"a run after a kill ended with {ended}")
        self._complete()
        return True

    def _look(self) -> None:
        """After a kill: what has a final name is whole."""
        for path in visible(self._target):
            name = str(path.relative_to(self._target))
            try:
                self.subject.whole(path)
            except ValueError as error:
                raise KillsError(f"{self.counts}: {error}") from error
            if self.subject.outcome is digests:
                same = digests(self._target)[name] == self._files.get(name)
                self._require(same, f"{name} is there and differs from that of the undisturbed run")
        self.counts.leaving += bool(left(self._target))

    def _complete(self) -> None:
        found = self.subject.outcome(self._target)
        different = [key for key in self._wanted if found.get(key) != self._wanted[key]]
        self._require(not different, f"differs from the undisturbed run: {', '.join(different)}")
        names = left(self._target)
        self._require(not names, f"a run that has ended left {names}")
        self.counts.completed += 1
        self._empty()

    def _empty(self) -> None:
        shutil.rmtree(self._target)
        self._target.mkdir()

    def _start(self, words: Sequence[str], moment: int) -> subprocess.Popen[bytes]:
        child = ["-m", "tools.kills_child", str(self._target), str(moment), str(self.folder / "count")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
        words = [str(self.folder / word) if word.startswith("source") else word for word in words]
        with (self.folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [self.subject.python, "-B", *child, *words],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self._process

    def _finished(self, process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(_RUN_S)
        except subprocess.TimeoutExpired:
            raise KillsError(f"{self.counts}: a run does not end") from None

    def close(self) -> None:
        """Ends what still runs: it is in a session of its own, which no Ctrl-C reaches."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _require(self, holds: bool, otherwise: str) -> None:
        if not holds:
            said = (self.folder / "output").read_text(errors="replace")[-2000:]
            raise KillsError(f"{self.counts}: {otherwise}\n{said}")


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=SUBJECTS)
    parser.add_argument("--times", type=int, default=100, help="kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("kills"), help="for the runs; removed at the end")
    parser.add_argument("--log", type=Path, default=Path("kills.jsonl"), help="what was counted")
    parser.add_argument("--python", default=sys.executable, help="for train: an interpreter with PyTorch")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = given.folder.absolute() / f"{given.command}-{given.seed}"
    if folder.exists():
        parser.error(f"{folder} is there: kept by a run that failed; remove it, or take another --seed")
    subject = replace(SUBJECTS[given.command], python=given.python)
    kills = Kills(subject, folder, given.seed)
    ended = 0
    try:
        kills.run(given.times)
    except KillsError as error:
        print(f"kills: {error}; the files are kept in {folder}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        ended = 130  # what was counted so far is kept
    finally:
        kills.close()
    shutil.rmtree(folder)
    line = json.dumps(asdict(kills.counts))
    with given.log.open("a", encoding="utf-8") as log:
        log.write(f"{line}\n")
    print(line)
    return ended


if __name__ == "__main__":
    sys.exit(main())
