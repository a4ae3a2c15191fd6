"""`cflow bench`: decode speed, bytes per token, and share of the memory roof."""

from typing import Annotated

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
from engine.bench import Row, measure_decode
from engine.kernels import threads_default
from engine.model import Model


def bench(
    model: ModelOption,
    threads: Annotated[str, typer.Option(help="Thread counts, e.g. 1,2. Default: all cores.")] = "",
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=1, help="Tokens per round.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 5,
    isa: IsaOption = None,
    json: JsonOption = False,
) -> None:
    """Measure greedy decode of a model, and the read bandwidth of the same threads beside it."""
    counts = _thread_counts(threads)
    options = {} if isa is None else {"isa": isa}
    rows = []
    with Model(model) as opened:
        for count in counts:
            with progress_bar(f"{count} thread{'s' if count > 1 else ''}") as progress:
                rows.append(
                    measure_decode(
                        opened, tokens=tokens, rounds=rounds, progress=progress, threads=count, **options
                    )
                )
    if json:
        print_json({"rows": [row.to_json() for row in rows], "ratios": []})
        return
    print("threads  isa           tok/s   MB/token      GB/s   roof GB/s   share")
    for row in rows:
        print(_line(row))
    if any(row.share_of_roof is None for row in rows):
        message(
            "no share where the decode read faster than the roof: weights in a cache, or a disturbed probe"
        )


def _thread_counts(text: str) -> list[int]:
    if not text:
        return [threads_default()]
    try:
        wanted = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--threads is {text!r}, must be numbers separated by commas") from None
    return list(dict.fromkeys(allowed_threads(count) for count in wanted))


def _line(row: Row) -> str:
    roof = "void" if row.roof_bytes_per_s is None else f"{row.roof_bytes_per_s / 1e9:.1f}"
    share = "-" if row.share_of_roof is None else f"{row.share_of_roof:.0%}"
    return (
        f"{row.threads:7d}  {row.isa:<10}  {row.tok_per_s:7.1f}  {row.weight_bytes_per_token / 1e6:9.1f}"
        f"  {row.bytes_per_s / 1e9:8.1f}  {roof:>10}  {share:>6}"
    )
