"""`cflow bench`: decode and prompt speed, share of the memory roof, and llama.cpp beside it in the same
rounds.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from baselines.install import LLAMACPP, VLLM, environment, libraries
from claims.against import Measured, NoBaselineError, Request, measure
from claims.against_vllm import measure_vllm
from claims.models import from_gguf
from claims.run import model_cache
from claims.twins import check_twin
from cli.bench_table import lines, notes
from cli.console import (
    EXIT_FAILED,
    IsaOption,
    JsonOption,
    UsageError,
    allowed_threads,
    message,
    print_json,
)
from cli.session_options import (
    OptionOption,
    RamBudgetOption,
    ResidencyOption,
    VerifyOption,
    reading_notes,
    session_options,
)
from engine.kernels import threads_default
from engine.model import Model
from harness.statistics import DEFAULT_ROUNDS

_GGUF_SUFFIX = ".gguf"


def bench(
    model: Annotated[
        Path, typer.Option("--model", "-m", help="A .cflow model, or a .gguf, which is converted and kept.")
    ],
    threads: Annotated[str, typer.Option(help="Thread counts, e.g. 1,2. Default: all cores.")] = "",
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=1, help="Timed tokens of a round.")] = 64,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of prompt before them.")] = 32,
    rounds: Annotated[int, typer.Option(min=1, help="Valid rounds wanted.")] = DEFAULT_ROUNDS,
    against: Annotated[
        str | None, typer.Option(help=f"Another engine in the same rounds: {LLAMACPP} or {VLLM}.")
    ] = None,
    gguf: Annotated[
        Path | None, typer.Option(help="The GGUF that a .cflow model was converted from; with --against.")
    ] = None,
    tune: Annotated[
        bool, typer.Option(help="Sweep the other engine's threads, pool and flash attention; keep its best.")
    ] = False,
    isa: IsaOption = None,
    residency: ResidencyOption = None,
    ram_budget: RamBudgetOption = None,
    verify: VerifyOption = None,
    option: OptionOption = None,
    json: JsonOption = False,
) -> None:
    """Measure greedy decode and the prompt before it; the read bandwidth of the same threads; and, with
    --against, the ratio to another engine on the same weights."""
    twin = _twin(model, against, gguf, tune)
    options = session_options(option, isa=isa, residency=residency, ram_budget=ram_budget, verify=verify)
    for name in ("threads", "context"):
        if name in options:
            raise UsageError(f"--option {name} is set by --threads, and by --prompt and --tokens")
    request = Request(tokens, prompt, rounds, tune, options)
    found: list[Measured] = []
    with Model(from_gguf(model_cache(None), model) if _is_gguf(model) else model) as opened:
        if twin is not None:
            _say(f"comparing the weights with {twin.name}")
            check_twin(opened, twin, model_cache(None))
        for count in _thread_counts(threads):
            try:
                if against == VLLM:
                    found.append(measure_vllm(opened, request, count, model_cache(None), message))
                else:
                    found.append(measure(opened, request, count, twin, _say))
            except NoBaselineError as error:
                if json:
                    print_json({"rows": [], "ratios": [], "no_baseline": error.agreement.to_json()})
                message(str(error))
                raise typer.Exit(EXIT_FAILED) from None
    rows = [row for one in found for row in one.rows]
    ratios = [ratio for one in found for ratio in one.ratios]
    if json:
        print_json({"rows": [row.to_json() for row in rows], "ratios": [ratio.to_json() for ratio in ratios]})
        return
    print("\n".join(lines(rows, ratios)))
    for note in notes(rows):
        message(note)
    if rows:
        for note in reading_notes(rows[0].settings["options"], options):
            message(note)


def _say(what: str) -> None:
    if sys.stderr.isatty():
        message(what)


def _is_gguf(path: Path) -> bool:
    return path.suffix.lower() == _GGUF_SUFFIX


def _twin(model: Path, against: str | None, gguf: Path | None, tune: bool) -> Path | None:
    """The GGUF that the other engine loads; None when there is no other engine."""
    if against is None:
        if gguf is not None or tune:
            raise UsageError(f"{'--gguf' if gguf is not None else '--tune'} needs --against {LLAMACPP}")
        return None
    if against == VLLM:
        if gguf is not None or tune:
            raise UsageError(f"{'--gguf' if gguf is not None else '--tune'} is not for --against {VLLM}")
        environment(VLLM)
        return None
    if against != LLAMACPP:
        raise UsageError(f"--against is {against!r}, allowed: {LLAMACPP}, {VLLM}")
    libraries(LLAMACPP)  # before anything is converted: it says how to install what is missing
    if gguf is not None:
        return gguf
    if not _is_gguf(model):
        raise UsageError(
            f"--against {LLAMACPP} needs the same weights as a GGUF: --gguf FILE, or the GGUF itself as -m"
        )
    return model


def _thread_counts(text: str) -> list[int]:
    if not text:
        return [threads_default()]
    try:
        wanted = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--threads is {text!r}, must be numbers separated by commas") from None
    return list(dict.fromkeys(allowed_threads(count) for count in wanted))
