"""`cflow train`: one of the six architectures on a text."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from architectures.pytorch import require_torch
from architectures.table import ARCHITECTURES, PRESETS
from cli.completion import architecture_names, preset_names, text_names
from cli.console import JsonOption, print_json

if TYPE_CHECKING:
    from architectures.metrics import Progress


def train(
    arch: Annotated[
        str,
        typer.Option(
            "--arch", help=f"One of: {', '.join(ARCHITECTURES)}.", autocompletion=architecture_names
        ),
    ],
    data: Annotated[
        list[str],
        typer.Option(
            help="Text, parquet, a folder of them, or a name of `cflow data get`; may be repeated.",
            autocompletion=text_names,
        ),
    ],
    steps: Annotated[int, typer.Option(help="Steps of the optimiser.")],
    out: Annotated[Path, typer.Option(help="Folder for the model, its checkpoints and metrics.")],
    preset: Annotated[
        str, typer.Option(help=f"Sizes: {', '.join(PRESETS)}.", autocompletion=preset_names)
    ] = "tiny",
    seed: Annotated[int, typer.Option(help="Of the weights and of the order of the text.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the last checkpoint is.")] = False,
    batch: Annotated[int | None, typer.Option(help="Sequences a step. Default: the preset's.")] = None,
    sequence: Annotated[int | None, typer.Option(help="Tokens a sequence. Default: the preset's.")] = None,
    lr: Annotated[float | None, typer.Option(help="Highest learning rate. Default: the preset's.")] = None,
    precision: Annotated[
        str, typer.Option(help="bf16 (autocast), f32, or auto: bf16 where the CPU has it in hardware.")
    ] = "auto",
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints.")] = 200,
    threads: Annotated[int | None, typer.Option(help="Threads of PyTorch. Default: all cores.")] = None,
    json: JsonOption = False,
) -> None:
    """Train an architecture of the paper; what comes out is for `cflow convert`.

    An interrupted run goes on with --resume and the same arguments, bit for bit as if it had not been.
    Several processes or machines: torchrun --nproc-per-node 2 -m cli.main train ...
    """
    require_torch()
    from architectures.arguments import Arguments, Options
    from architectures.start import locate, start

    given = {"batch": batch, "sequence": sequence, "lr": lr, "precision": precision}
    arguments = Arguments.of(arch, preset, steps, seed, **given)
    options = Options(out, resume, checkpoint_every, threads=threads)
    result, group = start(arguments, options, locate(data), _report)
    if not group.leads:
        return
    if json:
        print_json(result)
        return
    print(
        f"{out}: {result['parameters'] / 1e6:.1f} M weights, test perplexity {result['test_perplexity']:.2f} "
        f"over {result['test_tokens']} tokens, top-1 {result['test_top1']:.1%}"
    )


def _report(progress: "Progress") -> None:
    minutes, seconds = divmod(round(progress.left_s), 60)
    line = (
        f"step {progress.step}/{progress.steps}  loss {progress.loss:.4f}  "
        f"{progress.tokens_per_s:,.0f} tok/s  {minutes}:{seconds:02} left"
    )
    end = "\r" if sys.stderr.isatty() and progress.step < progress.steps else "\n"
    print(line.ljust(72), end=end, file=sys.stderr, flush=True)
