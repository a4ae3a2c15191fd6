"""The end-to-end comparison: engines on the models of a profile, in rounds that several figures look at.

Rounds hold engines together whose speeds are divided by each other. The larger profiles hold two engines at a
time, so that two models at most are in memory; `quick` holds all that share a model's size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from baselines.errors import BaselineError
from baselines.install import LLAMACPP, VLLM, installed
from claims.contest_arms import (
    PAGES,
    PROMPT,
    Field,
    Opponent,
    Sleepers,
    open_llamacpp,
    open_ours,
    prepare_llamacpp,
)
from claims.contest_models import MODELS, Shape
from claims.contest_vllm import TOKENS as VLLM_TOKENS
from claims.contest_vllm import Weights, exported, open_vllm
from claims.lasting import LOGS, Lasting, Logs
from claims.models import from_gguf
from claims.run import SEED, ClaimsRun
from claims.timing import open_bench
from engine.enums import Isa
from engine.errors import MemoryExhaustedError
from engine.hf_forms import HfForm
from engine.kernels import isa_supported
from harness.paired import Arm, run_pairs
from harness.reductions import Scalar
from harness.rounds import Figure, RoundsOf, Side, Timed
from harness.verdict import NotMeasurable

OURS: Final = "cflow"
MOE: Final = f"{OURS}, the paper's MoE"
MOE_MAPPED: Final = f"{OURS}, the paper's MoE, mapped"
DENSE: Final = f"{OURS}, dense"
LLAMACPP_DENSE: Final = f"{LLAMACPP}, dense"
SAME_MOE: Final = f"{OURS}, the same MoE"
LLAMACPP_SAME_MOE: Final = f"{LLAMACPP}, the same MoE"
VLLM_DENSE: Final = {form: f"{VLLM} {form}, dense" for form in HfForm}
OWN: Final = f"{OURS}, your file"
LLAMACPP_OWN: Final = f"{LLAMACPP}, your file"
VLLM_OWN: Final = f"{VLLM}, your folder"
"""Names of the arms: an engine and its model."""

TOKENS: Final = {"smoke": 8, "quick": 24, "full": 6, "paper": 4}
"""Timed tokens of a turn: a turn takes about as long in every profile."""
ROUNDS_OF: Final = "e2e.ranking"
"""Whose declared rounds all checks that share them have."""

Group = tuple[str, ...]

_TOGETHER: Final[tuple[Group, ...]] = (
    (MOE, DENSE, LLAMACPP_DENSE),
    (SAME_MOE, LLAMACPP_SAME_MOE),
    (OWN, LLAMACPP_OWN),
    (VLLM_OWN,),
)
_TWO_AT_A_TIME: Final[tuple[Group, ...]] = (
    (MOE, LLAMACPP_DENSE),
    (DENSE, LLAMACPP_DENSE),
    (MOE, DENSE),
    (SAME_MOE, LLAMACPP_SAME_MOE),
    (OWN, LLAMACPP_OWN),
    (VLLM_OWN,),
)


def _beside_vllm(*forms: HfForm) -> tuple[Group, ...]:
    return tuple((LLAMACPP_DENSE, VLLM_DENSE[form]) for form in forms)


GROUPS: Final[Mapping[str, tuple[Group, ...]]] = {
    "smoke": (*_TOGETHER, *_beside_vllm(HfForm.BF16)),
    "quick": (*_TOGETHER, *_beside_vllm(HfForm.INT4, HfForm.BF16)),
    "full": (*_TWO_AT_A_TIME, *_beside_vllm(HfForm.INT4, HfForm.INT8)),
    "paper": (*_TWO_AT_A_TIME, *_beside_vllm(*HfForm), (MOE_MAPPED,)),
}
"""Arms that share rounds. A figure is taken from the first group that holds all of its arms. The forms of
vLLM are those that a profile has the time and the memory for.
"""


@dataclass(frozen=True)
class _Measured:
    """check: the one in whose time the rounds ran. owner: the record and cell that hold them, if any does."""

    found: Timed | NotMeasurable
    check: str
    owner: RoundsOf | None = None


class Contest:
    """Measures groups on demand and keeps them for the checks that follow.

    own: the user's GGUF, if any. own_folder: the user's model as vLLM loads it.
    """

    def __init__(self, run: ClaimsRun, own: Path | None = None, own_folder: Path | None = None) -> None:
        self._run = run
        self._own = own
        self._own_folder = own_folder
        self._models = MODELS[run.profile]
        logs = Logs(run.out / LOGS)
        self._field = Field(run.cache, run.threads, TOKENS[run.profile], logs)
        self._kept: dict[Group, _Measured] = {}
        self._opponents: dict[str, Opponent] = {}

    def view(self, check: str, label: str, figure: Figure) -> Timed | NotMeasurable:
        """A figure for the cell `label` of a check, from rounds that hold its arms."""
        group = next((one for one in GROUPS[self._run.profile] if set(figure.arms) <= set(one)), None)
        if group is None:
            return NotMeasurable(f"not part of profile {self._run.profile}")
        missing = next(filter(None, map(self._missing, figure.arms)), None)
        if missing is not None:
            return NotMeasurable(missing)
        here = tuple(name for name in group if self._missing(name) is None)
        measured = self._measured(here, check)
        if isinstance(measured.found, NotMeasurable):
            return measured.found
        if measured.owner is None:
            self._kept[here] = replace(measured, owner=RoundsOf(check, label))
        return replace(measured.found, figure=figure, rounds_of=measured.owner)

    def _missing(self, name: str) -> str | None:
        """Why an arm cannot be there, if it cannot."""
        if _engine(name) == LLAMACPP and installed(LLAMACPP) is None:
            return f"llama.cpp is not installed: run `cflow baseline install {LLAMACPP}`"
        if _engine(name) == VLLM and installed(VLLM) is None:
            return f"vLLM is not installed: run `cflow baseline install {VLLM}`"
        if name == VLLM_DENSE[HfForm.INT4] and not isa_supported(Isa.AVX512):
            return "vLLM's int4 kernel needs AVX-512, which this CPU has not"
        if name in (OWN, LLAMACPP_OWN) and self._own is None:
            return "no file was given: --gguf FILE"
        if name == VLLM_OWN and self._own_folder is None:
            return "no folder was given: --hf DIR"
        return None

    def _measured(self, group: Group, check: str) -> _Measured:
        """Rounds count with the check in whose time they ran, or not at all."""
        kept = self._kept.get(group)
        if kept is None or (isinstance(kept.found, Timed) and kept.owner is None and kept.check != check):
            try:
                found: Timed | NotMeasurable = self._rounds(group)
            except (BaselineError, MemoryExhaustedError) as error:
                found = NotMeasurable(str(error))
            kept = self._kept[group] = _Measured(found, check)
        return kept

    def _rounds(self, group: Group) -> Timed:
        told: dict[str, Scalar | bool | None] = {}
        for name in group:  # before any is opened: preparing loads a model, too
            if _engine(name) == LLAMACPP:
                told |= self._opponent(name).told
        mapped = MOE_MAPPED in group
        with ExitStack() as stack:
            arms = list(self._open(group, stack, told))
            bench = stack.enter_context(open_bench(self._run.threads, huge=not mapped))
            return run_pairs(
                arms,
                Figure(Side(group[0], "speed"), None),
                bench.probes(),
                control_of=group[0],
                seed=SEED,
                rounds=self._run.rounds(ROUNDS_OF),
                roof=bench.roof() if mapped else None,
                inputs={
                    **{f"model of {name}": self._model(name) for name in group},
                    "prompt": PROMPT,
                    "tokens": self._field.tokens,
                    "threads": self._run.threads,
                    "weights": "page cache through a shared mapping" if mapped else PAGES,
                    **told,
                },
                progress=self._run.progress(),
            )

    def _open(self, group: Group, stack: ExitStack, told: dict[str, Scalar | bool | None]) -> Iterator[Arm]:
        """The arms of a group, one after another. told: takes what is known once an engine runs."""
        engines: dict[str, Lasting] = {}
        for name in group:
            others: Sequence[int] = Sleepers(engines, name)
            if _engine(name) == OURS:
                residency = "mmap" if name == MOE_MAPPED else "copy"
                yield stack.enter_context(
                    open_ours(name, self._files(name)[0], self._field, others, residency)
                )
            elif _engine(name) == LLAMACPP:
                opened = open_llamacpp(name, self._opponent(name), self._field, others)
                engines[name] = stack.enter_context(opened)
                yield engines[name].arm
            else:
                weights = stack.enter_context(self._weights(name))
                tokens = VLLM_TOKENS[self._run.profile]
                started = open_vllm(name, weights, self._field, tokens, others)
                engines[name], ran = stack.enter_context(started)
                told |= ran
                yield engines[name].arm

    def _weights(self, name: str) -> AbstractContextManager[Weights]:
        """What vLLM loads."""
        if name == VLLM_OWN:
            assert self._own_folder is not None
            return nullcontext(Weights(self._own_folder, 0))
        form = next(form for form, arm in VLLM_DENSE.items() if arm == name)
        return exported(self._models.dense.cflow(self._run.cache), form, self._field)

    def _opponent(self, name: str) -> Opponent:
        if name not in self._opponents:
            path, gguf = self._files(name)
            assert gguf is not None
            self._opponents[name] = prepare_llamacpp(path, gguf, self._field)
        return self._opponents[name]

    def _files(self, name: str) -> tuple[Path, Path | None]:
        """The .cflow of an arm's model, and the GGUF of the same weights where the arm loads that."""
        if name in (OWN, LLAMACPP_OWN):
            assert self._own is not None
            return from_gguf(self._run.cache, self._own), self._own
        shape = self._shape(name)
        wanted = _engine(name) == LLAMACPP
        return shape.cflow(self._run.cache), shape.gguf(self._run.cache) if wanted else None

    def _shape(self, name: str) -> Shape:
        if name in (MOE, MOE_MAPPED):
            return self._models.moe
        return self._models.same_moe if name in (SAME_MOE, LLAMACPP_SAME_MOE) else self._models.dense

    def _model(self, name: str) -> str:
        """The name of an arm's model."""
        if name in (OWN, LLAMACPP_OWN):
            assert self._own is not None
            return self._own.name
        if name == VLLM_OWN:
            assert self._own_folder is not None
            return self._own_folder.name
        return self._shape(name).name


def _engine(name: str) -> str:
    """OURS, LLAMACPP or VLLM: an arm's first word."""
    return name.partition(", ")[0].partition(" ")[0]


def lead(arm: str, other: str) -> Figure:
    """Tokens per second of one arm over those of another."""
    return Figure(Side(arm, "speed"), Side(other, "speed"))


def byte_lead(arm: str, other: str) -> Figure:
    """Weight bytes per second of one arm over those of another."""
    return Figure(Side(arm, "bandwidth"), Side(other, "bandwidth"))


def tokens_per_s(arm: str) -> Figure:
    """Tokens per second of an arm."""
    return Figure(Side(arm, "speed"), None, 1e9)


def gigabytes_per_s(arm: str) -> Figure:
    """Weight bytes per nanosecond of an arm, that is GB/s."""
    return Figure(Side(arm, "bandwidth"), None)
