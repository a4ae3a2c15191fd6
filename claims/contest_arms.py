"""Arms of the end-to-end comparison: our engine and llama.cpp on the models of a profile.

All weights lie in memory of the process that reads them, on huge pages: ours by residency `copy`, llama.cpp's
read into memory of the C library. At most the engines of one run of rounds are loaded at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, overload

from baselines.errors import BaselineError
from baselines.llamacpp import LlamaCpp
from claims import tuning
from claims.agreement import EXACT, compare
from claims.lasting import Lasting, Logs, Started
from claims.prompts import bench_prompt
from claims.turns import Course, engine_arm, greedy_course, llamacpp_arm
from claims.twins import block_bytes_per_token
from engine.enums import Param
from engine.model import Model
from engine.session import Session
from harness.paired import Arm
from harness.reductions import Scalar

PROMPT: Final = 8
"""Tokens before the timed ones of a turn."""
_AGREED_TOKENS: Final = 8
"""Tokens over which the logits of two engines are compared."""
PAGES: Final = "copied to memory, on huge pages where the kernel has any"


@dataclass(frozen=True)
class Field:
    """Where the engines run. cache: folder of the models. tokens: timed ones of a turn."""

    cache: Path
    threads: int
    tokens: int
    logs: Logs


@dataclass(frozen=True)
class Opponent:
    """What llama.cpp needs for one model: what it is fed, its best settings, its CPUs, bytes per token."""

    gguf: Path
    course: Course
    settings: tuning.Settings
    cpus: tuple[int, ...]
    bytes_per_token: float
    told: Mapping[str, Scalar | bool | None]
    """What ran, for the inputs of the rounds."""


class Sleepers(Sequence[int]):
    """Process ids of the engines that sleep while an arm runs, as they are now: one may be started anew.

    engines: those that are open, filled while the arms are made. name: of the arm, which does not sleep.
    """

    def __init__(self, engines: Mapping[str, Lasting], name: str) -> None:
        self._engines = engines
        self._name = name

    def _pids(self) -> list[int]:
        return [engine.pid for name, engine in self._engines.items() if name != self._name]

    def __len__(self) -> int:
        return len(self._pids())

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        return self._pids()[index]


@contextmanager
def open_ours(
    name: str, path: Path, field: Field, others: Sequence[int], residency: str = "copy"
) -> Iterator[Arm]:
    """Our engine's arm: greedy tokens after a prompt."""
    with Model(path) as model:
        prompt = bench_prompt(model, PROMPT, field.tokens)
        context = PROMPT + field.tokens
        with Session(model, threads=field.threads, context=context, residency=residency) as session:
            course = greedy_course(session, prompt.ids, field.tokens)
            yield engine_arm(name, session, course, others)


def prepare_llamacpp(path: Path, gguf: Path, field: Field) -> Opponent:
    """Tunes llama.cpp on a model, and compares its logits with ours on the same weights.

    Raises BaselineError: it cannot load the model, or it computes something else.
    """
    context = PROMPT + field.tokens
    with ExitStack() as stack:
        model = stack.enter_context(Model(path))
        prompt = bench_prompt(model, PROMPT, field.tokens)
        # Mapped: beside llama.cpp's copy of the weights a second copy need not fit.
        session = stack.enter_context(Session(model, threads=field.threads, context=context))
        exact = stack.enter_context(Session(model, threads=field.threads, context=context, **EXACT))
        course = greedy_course(session, prompt.ids, field.tokens)
        cpus = tuple(session.worker_cpus)
        baseline = stack.enter_context(LlamaCpp(huge_pages=True))
        tries = tuning.candidates(field.threads, sweep=False)
        best = tuning.tune(baseline, gguf, tries, cpus, course, mmap=False)[0].settings
        tuning.load(baseline, gguf, best, cpus, context, mmap=False)
        first = Course(course.prompt, course.tokens[:_AGREED_TOKENS], course.chosen[:_AGREED_TOKENS])
        (agreement,) = compare(first, session, exact, [baseline])
        if agreement.fault() is not None:
            raise BaselineError(f"llama.cpp computes something else on {gguf.name}: {agreement.fault()}")
        info = baseline.info()
        needed = block_bytes_per_token(model, model.param(Param.EXPERTS_PER_TOKEN))
    told: dict[str, Scalar | bool | None] = {
        "llama.cpp": f"{info.version} {info.commit}, {info.back_end}",
        "llama.cpp flash attention": info.flash_attention,
        "llama.cpp repacked MiB": info.repack_mib,
        "llama.cpp tokens equal to ours": agreement.tokens_equal,
        "llama.cpp logit difference": agreement.difference,
        "explained by rounding": agreement.limit,
    }
    return Opponent(gguf, course, best, cpus, needed, told)


@contextmanager
def open_llamacpp(name: str, opponent: Opponent, field: Field, others: Sequence[int]) -> Iterator[Lasting]:
    """llama.cpp's arm, fed our tokens. Raises BaselineError when it does not start."""
    lasting = Lasting(name, partial(_start_llamacpp, name, opponent, others), field.logs)
    try:
        yield lasting
    finally:
        lasting.close()


def _start_llamacpp(name: str, opponent: Opponent, others: Sequence[int]) -> Started:
    baseline = LlamaCpp(huge_pages=True)
    try:
        context = opponent.course.context
        tuning.load(baseline, opponent.gguf, opponent.settings, opponent.cpus, context, mmap=False)
        arm = llamacpp_arm(name, baseline, opponent.gguf, opponent.course, opponent.bytes_per_token, others)
    except BaseException:
        baseline.close()
        raise
    return Started(baseline, arm)
