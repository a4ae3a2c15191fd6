"""`cflow ppl`: perplexity of a text, and of another model or other options beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cli.console import (
    IsaOption,
    JsonOption,
    ModelOption,
    UsageError,
    allowed_threads,
    message,
    print_json,
    progress_bar,
)
from cli.session_options import (
    OptionOption,
    RamBudgetOption,
    ResidencyOption,
    VerifyOption,
    reading_notes,
    session_options,
)
from engine.errors import ArgumentError
from engine.model import Model
from engine.perplexity import DEFAULT_WINDOW, Perplexity, perplexity, windows
from engine.session import OptionValue, Session
from engine.tokenizer import Tokenizer

_SHOWN_OPTIONS = ("q8_activations", "kv_f32", "dense_delay", "expert_delay", "route", "threads")


def ppl(
    model: ModelOption,
    file: Annotated[Path, typer.Option("--file", "-f", help="A UTF-8 text.")],
    window: Annotated[
        int | None,
        typer.Option(help="Tokens of a window.", show_default=f"{DEFAULT_WINDOW}, or the context if less"),
    ] = None,
    stride: Annotated[
        int | None, typer.Option(help="Tokens from window to window.", show_default="the window")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option("-n", "--tokens", min=2, help="Take the first so many tokens of the text.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="A second model on the same tokens, with default options: the ratio of the two."),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Worker threads. Default: all cores.")] = None,
    isa: IsaOption = None,
    residency: ResidencyOption = None,
    ram_budget: RamBudgetOption = None,
    verify: VerifyOption = None,
    option: OptionOption = None,
    json: JsonOption = False,
) -> None:
    """Print the perplexity of a text: exp of the mean of -ln p over its tokens but the first.

    Windows of --window tokens are taken in, each from an empty cache, and predict the token behind each one.
    With a --stride below the window they overlap, and a token counts where it is predicted first. Activations
    are quantised to 8 bits unless -o q8_activations=0 is given. -o changes the model of -m alone: -m and
    --against may name the same file, e.g. with -o dense_delay=1.
    """
    options = session_options(option, isa=isa, residency=residency, ram_budget=ram_budget, verify=verify)
    if "context" in options:
        raise UsageError("--option context is set by --window")
    workers: dict[str, OptionValue] = {} if threads is None else {"threads": allowed_threads(threads)}
    text = _text(file)
    with Model(model) as opened:
        ids = _ids(opened, text, tokens)
        wide = min(DEFAULT_WINDOW, opened.context) if window is None else window
        step = wide if stride is None else stride
        _check_window(file, len(ids), wide, step)
        ours, ours_options = _measure(opened, ids, wide, step, {**options, **workers})
    shown: dict[str, Any] = {
        "file": str(file),
        "window": wide,
        "stride": step,
        "model": _row(model, ours, ours_options),
        "against": None,
        "ratio": None,
    }
    lines = [_line(model, ours, ours_options)]
    if against is not None:
        with Model(against) as opened:
            if _ids(opened, text, tokens) != ids:
                raise UsageError(f"--against {against}: its tokenizer makes other tokens of {file}")
            theirs, their_options = _measure(opened, ids, wide, step, workers)
        ratio = float(np.exp(ours.nats_per_token - theirs.nats_per_token))
        shown |= {"against": _row(against, theirs, their_options), "ratio": ratio}
        lines += [_line(against, theirs, their_options), f"ratio {ratio:.5f} ({(ratio - 1) * 100:+.3f} %)"]
    if json:
        print_json(shown)
    else:
        print("\n".join(lines))


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}"
        ) from None


def _ids(model: Model, text: str, count: int | None) -> list[int]:
    json = model.tokenizer_json
    if json is None:
        raise UsageError(f"{model.path}: the model carries no tokenizer, so it cannot read a text")
    return Tokenizer.from_json(json).encode(text)[:count]


def _check_window(file: Path, tokens: int, window: int, stride: int) -> None:
    try:
        next(windows(tokens, window, stride))
    except ArgumentError as error:
        raise UsageError(f"{file}, --window, --stride: {error}") from None


def _measure(
    model: Model, ids: list[int], window: int, stride: int, options: Mapping[str, OptionValue]
) -> tuple[Perplexity, dict[str, int]]:
    if window > model.context:
        raise UsageError(f"--window is {window}, the context of {model.path} is {model.context}")
    with Session(model, context=window, **options) as session:
        for note in reading_notes(session.options, options):
            message(note)
        with progress_bar(f"reading with {model.path.name}") as progress:
            return perplexity(session, ids, window, stride, progress), session.options


def _speed(done: Perplexity) -> float:
    return done.fed / (done.wall_ns / 1e9)


def _row(path: Path, done: Perplexity, options: Mapping[str, int]) -> dict[str, Any]:
    return {
        "path": str(path),
        "perplexity": done.value,
        "nats_per_token": done.nats_per_token,
        "tokens": done.tokens,
        "tok_per_s": _speed(done),
        "options": {name: options[name] for name in _SHOWN_OPTIONS},
    }


def _line(path: Path, done: Perplexity, options: Mapping[str, int]) -> str:
    activations = "q8" if options["q8_activations"] else "f32"
    delays = f"delays ({options['dense_delay']}, {options['expert_delay']})"
    return (
        f"{path}: perplexity {done.value:.4f} over {done.tokens} tokens, {activations} activations, "
        f"{delays}, {_speed(done):.0f} tok/s"
    )
