"""One run of the claims: registry, profile, where results and models lie, how a check is recorded."""

from __future__ import annotations

import platform
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from claims.display import Display
from claims.needs import unmet
from claims.own_file import UnfitError, check_own, check_own_folder
from engine.enums import Isa
from engine.kernels import isa_default, isa_supported, threads_default
from engine.native import build_info, library_sha256
from harness.errors import RegistryError
from harness.evidence import Evidence
from harness.kinds import Verdict
from harness.machine import machine_state
from harness.paired import Progress
from harness.profiles import fit
from harness.registry import Registry, load_registry
from harness.results import Recorder, RunInfo
from harness.revision import revision
from harness.rounds import Timed
from harness.verdict import NotMeasurable

ROOT: Final = Path(__file__).resolve().parent.parent
REGISTRY_PATH: Final = Path(__file__).with_name("claims.toml")
DEFAULT_RUNS: Final = Path("reports/runs")
SEED: Final = 20_260_824
"""Of all orders and synthetic weights; the date of the paper."""

Found = Evidence | NotMeasurable | Mapping[str, Evidence | NotMeasurable]


@dataclass(frozen=True)
class Settings:
    """What the command line asked for.

    out: results folder, None = a new one under reports/runs. only: the checks selected, None = all. gguf: a
    model of the user's own, None = none. hf: a folder with one as vLLM loads it.
    """

    profile: str
    threads: int | None
    out: Path | None
    resume: bool
    only: Sequence[str] | None
    arguments: Sequence[str]
    gguf: Path | None = None
    hf: Path | None = None


def new_run_folder(now: datetime | None = None, host: str | None = None) -> Path:
    """`reports/runs/<utc>-<host>` under the working directory."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", host or platform.node()) or "host"
    return DEFAULT_RUNS / f"{stamp}-{name}"


def model_cache(out: Path | None) -> Path:
    """Where runs keep the models that they share: beside the results folder `out`, None = the default one."""
    return (out.parent if out is not None else DEFAULT_RUNS) / "models"


class ClaimsRun:
    """An open run. Raises UnfitError, ResultsError or RegistryError when it cannot start.

    display: shows what is measured; the default shows nothing, and may be replaced before the first check.
    """

    def __init__(self, settings: Settings) -> None:
        self.registry: Registry = load_registry(REGISTRY_PATH)
        self.display = Display()
        self.profile = settings.profile
        self.out = settings.out if settings.out is not None else new_run_folder()
        self.threads = settings.threads if settings.threads is not None else threads_default()
        self.cache = model_cache(self.out)
        parent = next(folder for folder in [self.out, *self.out.absolute().parents] if folder.exists())
        before = machine_state(parent)
        fitting = fit(settings.profile, before)
        if not fitting.fits:
            raise UnfitError(fitting.message())
        self.gguf = settings.gguf
        if self.gguf is not None:
            check_own(self.gguf, before)
        self.hf = settings.hf
        if self.hf is not None:
            check_own_folder(self.hf, before)
        revised = revision(ROOT)
        options: dict[str, Any] = {"threads": self.threads, "isa": isa_default().name.lower()}
        if settings.only is not None:
            options["only"] = list(settings.only)
        if self.gguf is not None:
            options["gguf"] = str(self.gguf.absolute())
        if self.hf is not None:
            options["hf"] = str(self.hf.absolute())
        self.recorder = Recorder.open(
            self.out,
            self.registry,
            RunInfo(
                profile=settings.profile,
                options=options,
                commit=revised.commit,
                dirty=revised.dirty,
                command=shlex.join(["pytest", "claims/", *settings.arguments]),
            ),
            {"engine": build_info(), "library_sha256": library_sha256()},
            before,
            resume=settings.resume,
        )

    def finish(self) -> None:
        """Records the machine's state after the last check."""
        self.recorder.finish(machine_state(self.out))
        self.recorder.close()

    def command(self, check_id: str) -> str:
        """What repeats one check alone."""
        return f"pytest claims/ --profile {self.profile} --threads {self.threads} --only {check_id}"

    def rounds(self, check_id: str, label: str | None = None) -> int:
        """Valid rounds that claims.toml declares for a cell of a timed check, its first one if none is named.

        Raises RegistryError when it declares none.
        """
        check = self.registry.check(check_id)
        declared = check.rounds(self.profile, check.cells[0].label if label is None else label)
        if declared is None:
            raise RegistryError(f"check[{check_id}].rounds: missing, or not for profile {self.profile}")
        return declared

    def progress(self, label: str = "") -> Progress | None:
        """What shows the rounds of a paired run of the check that is being measured; label: of its cell."""
        return self.display.rounds(label)

    def measure(
        self, check_id: str, produce: Callable[[], Found], limits: Sequence[str] = ()
    ) -> tuple[Verdict | None, str]:
        """Measures a check unless a resumed run has it already; returns its verdict and reason.

        Raises KeyboardInterrupt after recording a run that Ctrl-C cut short.
        """
        check = self.registry.check(check_id)
        if self.recorder.done(check_id):
            return self.recorder.verdict(check_id)
        started_ns = time.monotonic_ns()
        judged: tuple[Verdict | None, str] = None, ""
        self.display.begin(check)
        try:
            missing = unmet(check.needs, self.cache)
            found = produce() if missing is None else NotMeasurable(missing)
            judged = self.recorder.add(
                check_id, found, started_ns=started_ns, command=self.command(check_id), limits=limits
            )
        finally:
            self.display.end(judged[0])
        cells = found.values() if isinstance(found, Mapping) else [found]
        if any(isinstance(cell, Timed) and cell.interrupted for cell in cells):
            raise KeyboardInterrupt
        return judged


def isa_cells(names: Sequence[str], measure: Callable[[str, Isa], Evidence]) -> Found:
    """A cell per instruction set: `measure` of its name and value, or why it cannot run here."""
    sets = {name: Isa[name.upper()] for name in names}
    return {
        name: measure(name, isa) if isa_supported(isa) else NotMeasurable(f"this CPU has no {name}")
        for name, isa in sets.items()
    }
