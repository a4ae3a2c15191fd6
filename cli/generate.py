"""`cflow generate`: continue a text, streamed to stdout."""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from cli.console import IsaOption, ModelOption, UsageError, allowed_threads, mb, message, shown
from cli.session_options import (
    OptionOption,
    RamBudgetOption,
    ResidencyOption,
    VerifyOption,
    memory_note,
    reading_notes,
    session_options,
)
from engine.errors import ContextError
from engine.model import Model
from engine.session import Sampler, Session
from engine.tokenizer import FEED_IDS_HINT, Tokenizer
from harness.rounds import weight_bytes


def generate(
    model: ModelOption,
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", help="Text to continue.")] = None,
    token_ids: Annotated[str | None, typer.Option(help="Token ids to continue, e.g. 1,2,3.")] = None,
    count: Annotated[int, typer.Option("-n", "--tokens", min=1, help="Tokens to generate at most.")] = 128,
    temperature: Annotated[float, typer.Option(min=0.0, help="0: always the most probable token.")] = 0.0,
    top_k: Annotated[int, typer.Option(min=0, help="Draw from the k most probable only; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="Draw from this probability mass.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal draws.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Worker threads. Default: all cores.")] = None,
    isa: IsaOption = None,
    residency: ResidencyOption = None,
    ram_budget: RamBudgetOption = None,
    verify: VerifyOption = None,
    option: OptionOption = None,
    ignore_eos: Annotated[bool, typer.Option(help="Go on after the end-of-text token.")] = False,
) -> None:
    """Generate text from a prompt or from token ids. Speed is printed at the end, on stderr."""
    options = session_options(option, isa=isa, residency=residency, ram_budget=ram_budget, verify=verify)
    if "context" in options:
        raise UsageError("--option context is set by the prompt and --tokens")
    if threads is not None:
        options["threads"] = allowed_threads(threads)
    with Model(model) as opened:
        tokenizer = _tokenizer(opened)
        ids = _prompt_ids(opened, tokenizer, prompt, token_ids)
        if len(ids) >= opened.context:
            raise ContextError(
                f"the prompt has {len(ids)} tokens, the context of the model {opened.context}, "
                "one of which must be left for the answer"
            )
        # The last token that is drawn is not fed again, so it needs no position.
        count = min(count, opened.context - len(ids) + 1)
        sampler = Sampler(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        emit = _ids_as_text() if tokenizer is None else tokenizer.stream()
        with Session(opened, context=len(ids) + count - 1, **options) as session:
            message(memory_note(session))
            for note in reading_notes(session.options, options):
                message(note)
            stop = None if ignore_eos else opened.eos
            try:
                _stream(session, sampler, ids, count, stop, emit)
            finally:
                print(flush=True)
            _print_speed(session)


def _tokenizer(model: Model) -> Tokenizer | None:
    json = model.tokenizer_json
    return None if json is None else Tokenizer.from_json(json)


def _prompt_ids(
    model: Model, tokenizer: Tokenizer | None, prompt: str | None, token_ids: str | None
) -> list[int]:
    if (prompt is None) == (token_ids is None):
        raise UsageError("give either --prompt or --token-ids")
    if prompt is not None:
        if tokenizer is None:
            raise UsageError(f"{model.path}: the model carries no tokenizer; {FEED_IDS_HINT}")
        ids = tokenizer.encode(prompt)
        if not ids and model.bos is not None:
            ids = [model.bos]
        if not ids:
            raise UsageError("the prompt is empty")
        return ids
    try:
        ids = [int(part) for part in (token_ids or "").split(",")]
    except ValueError:
        raise UsageError(f"--token-ids is {token_ids!r}, must be numbers separated by commas") from None
    wrong = next((token for token in ids if not 0 <= token < model.vocab), None)
    if wrong is not None:
        raise UsageError(f"--token-ids has {wrong}, must be 0 to {model.vocab - 1}")
    return ids


def _stream(
    session: Session,
    sampler: Sampler,
    ids: list[int],
    count: int,
    stop: int | None,
    emit: Callable[[int], str],
) -> None:
    """Feeds the prompt, then draws and prints up to `count` tokens. Counters leave out the prompt."""
    logits = session.decode(ids)
    session.reset_counters()
    for index in range(count):
        token = sampler.sample(logits)
        if token == stop:
            return
        text = emit(token)
        sys.stdout.write(shown(text) if on_terminal() else text)
        sys.stdout.flush()
        if index + 1 < count:
            logits = session.decode([token])


def on_terminal() -> bool:
    """Whether the answer is shown, and not kept in a file or read by a program."""
    return sys.stdout.isatty()


def _ids_as_text() -> Callable[[int], str]:
    return lambda token: f"{token} "


def _print_speed(session: Session) -> None:
    counters = session.counters()
    if counters["tokens"] == 0:
        return
    seconds = counters["wall_ns"] / 1e9
    speed = f"{counters['tokens'] / seconds:.1f} tok/s"
    traffic = f"{weight_bytes(counters) / seconds / 1e9:.1f} GB/s of weights"
    workers = f"{session.threads} thread{'s' if session.threads > 1 else ''}"
    message(f"{speed}, {traffic}, {workers}, {session.isa.name.lower()}")
    asked = counters["asked_bytes"] / counters["tokens"]
    if asked > 0 or counters["expert_hits"] > 0:
        waited = counters["io_wait_ns"] / counters["wall_ns"]
        hits = counters["expert_hits"] / counters["tokens"]
        message(
            f"per token {mb(asked)} read, {hits:.1f} experts from memory; waited for the disk {waited:.0%}"
        )
