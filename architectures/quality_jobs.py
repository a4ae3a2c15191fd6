"""Runs of a series in processes of their own, several at once.

Each run has one process with one thread, so what it computes does not depend on how many there are. The
parent starts them in the order of the series, hears from them through pipes, and ends them when one fails or
Ctrl-C comes; their checkpoints stay. A run that somebody else trains is left to them and awaited.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from architectures.arguments import Options
from architectures.errors import ArchitectureError, BusyError, DivergedError
from architectures.metrics import Progress
from architectures.prepared import open_prepared
from architectures.quality_file import Run, Settings, run_folder
from architectures.run_folder import in_use
from engine.errors import CflowError, FileError

LOOK_S = 2.0
"""Between two looks at runs that another process trains."""


@dataclass(frozen=True)
class Series:
    """What a process needs to know of the series in `out`; `data`: the prepared folder."""

    out: Path
    data: Path
    settings: Settings


Work = Callable[[Series, Run, Callable[[Progress], None]], None]
"""Trains one run. A function of a module, so that a new process finds it."""


@dataclass(frozen=True)
class Ended:
    """How a run ended. error: None when it is complete, else what its process raised."""

    run: Run
    error: CflowError | None


def train_run(series: Series, run: Run, report: Callable[[Progress], None]) -> None:
    """Trains one run, or goes on with it. Raises what `architectures.trainer.train` raises."""
    from architectures.processes import Processes
    from architectures.trainer import train

    # Several threads would add in another order on a machine with other cores.
    options = Options(run_folder(series.out, run), resume=True, threads=1)
    train(series.settings.arguments(run), options, open_prepared(series.data), Processes(0, 1), report)


def make_runs(
    series: Series,
    runs: Sequence[Run],
    jobs: int,
    report: Callable[[Run, Progress], None],
    work: Work = train_run,
) -> Generator[Ended]:
    """Makes `runs`, at most `jobs` at once; gives each when it is complete or has diverged.

    Raises ArchitectureError naming the run whose process failed; then, and when the caller stops, the others
    are ended, too.
    """
    if jobs < 1:
        raise ArchitectureError(f"jobs is {jobs}, must be at least 1")
    pool = _Pool(series, work)
    left, told = list(runs), set[Run]()
    try:
        while left or pool.running:
            free = [run for run in left if not in_use(run_folder(series.out, run))]
            for run in free[: jobs - len(pool.running)]:
                left.remove(run)
                pool.start(run)
            if len(pool.running) < jobs:
                for run in (run for run in left if run not in told):
                    told.add(run)
                    print(f"{run.name}: another process trains it; waiting", file=sys.stderr, flush=True)
            for said in pool.heard(LOOK_S):
                if not isinstance(said, Ended):
                    report(*said)
                elif isinstance(said.error, BusyError):
                    left = [run for run in runs if run in left or run == said.run]
                elif said.error is None or isinstance(said.error, DivergedError):
                    yield said
                else:
                    raise ArchitectureError(f"{said.run.name}: {said.error}") from said.error
    finally:
        pool.end()


class _Pool:
    """The processes that train. `running`: what each pipe belongs to."""

    def __init__(self, series: Series, work: Work) -> None:
        self._series, self._work = series, work
        self._context = get_context("spawn")
        self.running: dict[Connection, tuple[Run, SpawnProcess]] = {}

    def start(self, run: Run) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_worker, args=(self._work, self._series, run, theirs), daemon=True
        )
        process.start()
        theirs.close()  # theirs is the only end now: when they die, ours ends
        self.running[ours] = run, process

    def heard(self, timeout_s: float) -> Iterator[Ended | tuple[Run, Progress]]:
        """What the processes said; nothing when all were silent for that long."""
        for pipe in connection.wait(list(self.running), timeout_s):
            assert isinstance(pipe, Connection)
            run, process = self.running[pipe]
            try:
                said: Progress | CflowError | None = pipe.recv()
            except EOFError:
                process.join()
                said = ArchitectureError(f"its process ended with exit code {process.exitcode}")
            if isinstance(said, Progress):
                yield run, said
                continue
            del self.running[pipe]
            pipe.close()
            process.join()
            yield Ended(run, said)

    def end(self) -> None:
        """Ends all that still run."""
        for _, process in self.running.values():
            process.terminate()
        for pipe, (_, process) in self.running.items():
            process.join()
            pipe.close()


def _worker(work: Work, series: Series, run: Run, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent as well, which ends this process
    error: CflowError | None = None
    try:
        work(series, run, pipe.send)
    except BrokenPipeError:
        return  # the parent was killed; the last checkpoint is there
    except CflowError as raised:
        error = raised
    except OSError as raised:
        error = FileError(f"{raised.filename or run_folder(series.out, run)}: {raised.strerror}")
    pipe.send(error)
