"""Our engine and llama.cpp in the same rounds: the same weights, tokens and cores, one awake at a time.

::

    with Model(path) as model:
        measured = measure(model, Request(tokens=64, prompt=32, rounds=20), threads=2, gguf=gguf)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import log, log1p
from pathlib import Path
from typing import Any, Final

from baselines.install import LLAMACPP
from baselines.llamacpp import LlamaCpp
from claims import tuning
from claims.agreement import EXACT, Agreement, compare
from claims.prompts import bench_prompt
from claims.run import SEED
from claims.speed import Ratio, Row, merged, ratio, row, time_ratio
from claims.timing import open_bench, progress_line
from claims.turns import Course, engine_arm, greedy_course, llamacpp_arm, prompt_view
from claims.twins import block_bytes_per_token
from engine.enums import Option, Param, Residency
from engine.model import Model
from engine.session import OptionValue, Session
from harness.errors import HarnessError
from harness.paired import Arm, Probes, run_pairs
from harness.registry import DEFAULT_GUARD
from harness.rounds import Figure, Side, Timed
from harness.statistics import DEFAULT_ROUNDS

OURS: Final = "cflow"
FOR_PROMPTS: Final = f"{LLAMACPP}, for prompts"
REPACK_OFF: Final = f"{LLAMACPP}, repack off"

_MOST_WARM_UPS: Final = 4


class NoBaselineError(HarnessError):
    """The other engine computes something else. `agreement` has the logits of both."""

    def __init__(self, against: str, agreement: Agreement) -> None:
        super().__init__(
            f"{against} is no baseline for this model: it computes something else: {agreement.fault()}"
        )
        self.against = against
        self.agreement = agreement


@dataclass(frozen=True)
class Request:
    """What to measure. tokens: timed ones of a turn. prompt: tokens before them. rounds: valid ones wanted.

    sweep: llama.cpp gets every combination of threads, pool and flash attention instead of its defaults with
    flash attention on and off. options: of our session.
    """

    tokens: int = 64
    prompt: int = 32
    rounds: int = DEFAULT_ROUNDS
    sweep: bool = False
    options: Mapping[str, OptionValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """Rows and ratios for one number of threads."""

    rows: tuple[Row, ...]
    ratios: tuple[Ratio, ...]


@dataclass(frozen=True)
class Opponent:
    """A llama.cpp that is loaded, sleeps, and computes what our engine does."""

    name: str
    baseline: LlamaCpp
    agreement: Agreement
    settings: Mapping[str, Any]


Say = Callable[[str], None]
"""Told what is done next; called while nothing is timed."""


def measure(
    model: Model, request: Request, threads: int, gguf: Path | None = None, say: Say = lambda _: None
) -> Measured:
    """Our engine, and llama.cpp on `gguf` when it is given, with `threads` threads.

    Raises NoBaselineError, BaselineError, ContextError when prompt and tokens do not fit the model's context,
    and KeyboardInterrupt.
    """
    prompt = bench_prompt(model, request.prompt, request.tokens)
    context = request.prompt + request.tokens
    with ExitStack() as stack:
        session = stack.enter_context(Session(model, threads=threads, context=context, **request.options))
        course = greedy_course(session, prompt.ids, request.tokens)
        opponents: list[Opponent] = []
        if gguf is not None:
            opponents = stack.enter_context(_opponents(session, gguf, course, request.sweep, say))
        copied = session.option(Option.RESIDENCY) != Residency.MMAP
        workers = stack.enter_context(open_bench(session.threads, huge=copied))
        arms = _arms(session, gguf, course, opponents)
        say("warming up")
        warm_up = warm_up_arms(arms)
        say("measuring the roof")
        before = workers.roof()
        timed = paired_rounds(arms, workers.probes(), request.rounds, threads)
        after = workers.roof()
        common = {"tokens": request.tokens, "prompt": prompt.to_json(), "warm_up": warm_up}
        common["roof_before_bytes_per_s"] = before.bytes_per_ns * 1e9
        common["roof_after_bytes_per_s"] = after.bytes_per_ns * 1e9
        settings = {**common, "options": session.options, "cpus": session.worker_cpus}
        isa = session.isa.name.lower()
    roof = merged(before, after)
    rows = [row(timed, OURS, threads, roof, isa, settings)]
    ratios = []
    for one in opponents:
        back_end = str(one.settings["back_end"])
        rows.append(row(timed, one.name, threads, roof, back_end, {**common, **one.settings}))
        equal = one.agreement.tokens_equal
        prompts = prompt_view(timed, time_ratio(one.name, OURS))
        ratios.append(ratio(timed, threads, one.name, OURS, "decode", equal))
        ratios.append(ratio(prompts, threads, one.name, OURS, "prompt", equal))
    return Measured(tuple(rows), tuple(ratios))


@contextmanager
def _opponents(
    session: Session, gguf: Path, course: Course, sweep: bool, say: Say
) -> Iterator[list[Opponent]]:
    """llama.cpp with its best settings; once more with those that are better for the prompt, where there are
    such; and with repacking off, where repacking did anything.
    """
    cpus = session.worker_cpus
    # Both on huge pages or neither: they are worth more than many a kernel.
    huge = session.option(Option.RESIDENCY) != Residency.MMAP
    with ExitStack() as stack:
        baseline = stack.enter_context(LlamaCpp(huge_pages=huge))
        tries = tuning.candidates(session.threads, sweep)
        say(f"{LLAMACPP}: trying {len(tries)} settings")
        tried = tuning.tune(baseline, gguf, tries, cpus, course, mmap=not huge)
        loaded = {LLAMACPP: baseline}

        def load(name: str, settings: tuning.Settings, *, repack: bool = True) -> None:
            if name not in loaded:
                loaded[name] = stack.enter_context(LlamaCpp(huge_pages=huge))
            tuning.load(loaded[name], gguf, settings, cpus, course.context, mmap=not huge, repack=repack)

        best, prompts = tried[0].settings, tuning.for_prompts(tried)
        load(LLAMACPP, best)
        if prompts is not None:
            load(FOR_PROMPTS, prompts)
        if baseline.info().repack_mib > 0:
            load(REPACK_OFF, best, repack=False)
        say("comparing the logits of both engines")
        options = {**EXACT, "threads": session.threads, "context": session.context}
        opponents = []
        with Session(session.model, **options) as exact:
            agreements = compare(course, session, exact, list(loaded.values()))
            for (name, one), agreement in zip(loaded.items(), agreements, strict=True):
                one.rest()
                if agreement.fault() is not None:
                    raise NoBaselineError(name, agreement)
                extra = {"tuning": [each.to_json() for each in tried], "agreement": agreement.to_json()}
                opponents.append(Opponent(name, one, agreement, {**one.info().to_json(), **extra}))
        yield opponents


def _arms(session: Session, gguf: Path | None, course: Course, opponents: Sequence[Opponent]) -> list[Arm]:
    pids = [one.baseline.pid for one in opponents]
    arms = [engine_arm(OURS, session, course, pids)]
    needed = block_bytes_per_token(session.model, session.model.param(Param.EXPERTS_PER_TOKEN))
    for one in opponents:
        assert gguf is not None
        others = [pid for pid in pids if pid != one.baseline.pid]
        arms.append(llamacpp_arm(one.name, one.baseline, gguf, course, needed, others))
    return arms


def warm_up_arms(arms: Sequence[Arm]) -> dict[str, Any]:
    """Runs all arms until each takes as long as the time before, within the guard; how that went."""
    last = [arm.run().ns for arm in arms]
    runs, steady = 1, False
    while not steady and runs < _MOST_WARM_UPS:
        now = [arm.run().ns for arm in arms]
        runs += 1
        steady = all(abs(log(new / old)) <= log1p(DEFAULT_GUARD) for new, old in zip(now, last, strict=True))
        last = now
    rule = f"two runs in a row within {DEFAULT_GUARD:.0%}, at most {_MOST_WARM_UPS}"
    return {"runs": runs, "steady": steady, "rule": rule}


def paired_rounds(arms: Sequence[Arm], probes: Probes, rounds: int, threads: int) -> Timed:
    """The paired run; KeyboardInterrupt when Ctrl-C cut it short."""
    others = [arm.name for arm in arms if arm.name != OURS]
    timed = run_pairs(
        arms,
        time_ratio(others[0], OURS) if others else Figure(Side(OURS, "time"), None),
        probes,
        control_of=OURS,
        seed=SEED,
        rounds=rounds,
        warmups=0,
        progress=progress_line(f"{threads} thread{'s' if threads > 1 else ''}"),
    )
    if timed.interrupted:
        raise KeyboardInterrupt
    return timed
