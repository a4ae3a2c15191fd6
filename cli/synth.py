"""`cflow synth`: a random model of any size."""

from pathlib import Path
from typing import Annotated

import typer

from cli.completion import geometry_names
from cli.console import (
    JsonOption,
    StagesOption,
    UsageError,
    file_order,
    mb,
    message,
    print_json,
    progress_bar,
)
from engine.export_gguf import Export, architecture_of, export
from engine.geometry import Geometry
from engine.synth import synthesise


def synth(
    target: Annotated[Path, typer.Argument(help="The .cflow or .vflow file to write, or replace.")],
    geometry: Annotated[
        str,
        typer.Option(
            help='A name, numbers ("d=512,layers=6,vocab=1000"), or both ("arch4,layers=2").',
            autocompletion=geometry_names,
        ),
    ],
    type_: Annotated[str, typer.Option("--type", help="f32, f16, q4_0, q4_1 or q8_0.")] = "q4_0",
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal bytes.")] = 0,
    tile_rows: Annotated[int, typer.Option(help="Rows of a tile, a multiple of 16.")] = 128,
    tile_cols: Annotated[int, typer.Option(help="Columns of a tile, a multiple of 32.")] = 256,
    gguf: Annotated[
        Path | None, typer.Option(help="Also write the same weights as a GGUF file, for other engines.")
    ] = None,
    stages: StagesOption = None,
    json: JsonOption = False,
) -> None:
    """Write a model with seeded random weights, at about the speed of the disk.

    With --gguf the architecture follows from the geometry: llama; "dense_246m,qkv_bias=1" is qwen2,
    "dense_246m,qk_norm=1" qwen3, "moe_399m,qk_norm=1" qwen3moe.
    """
    shape = Geometry.parse(geometry)
    if target.suffix.lower() == ".gguf":
        raise UsageError(f"{target} is written as .cflow; a GGUF file is named by --gguf")
    if gguf is not None:
        _check_gguf(gguf)
        what = f"--gguf with --geometry {geometry}"
        architecture_of(shape.hyperparameters(tile_rows, tile_cols), shape.qkv_bias, shape.qk_norm, what)
    order = file_order(target, stages)
    name = geometry if "=" not in geometry else ""
    with progress_bar(f"writing {target.name}") as progress:
        done = synthesise(
            target,
            shape,
            seed,
            type_,
            tile_rows=tile_rows,
            tile_cols=tile_cols,
            name=name,
            order=order,
            progress=progress,
        )
    exported = None if gguf is None else _export(target, gguf)
    speed = done.file_bytes / done.elapsed_ns * 1e9
    if json:
        print_json(
            {
                "path": str(done.path),
                "file_bytes": done.file_bytes,
                "parameters": shape.parameters,
                "elapsed_ns": done.elapsed_ns,
                "bytes_per_s": speed,
                "direct_io": done.direct_io,
                "gguf": None if exported is None else _json(exported),
            }
        )
        return
    if done.note:
        message(f"note: {done.note}")
    print(f"{target}: {shape.parameters / 1e6:.1f} M weights, {mb(done.file_bytes)}, {mb(speed)}/s")
    if exported is not None:
        print(
            f"{gguf}: architecture {exported.architecture}, {exported.tensors} tensors, "
            f"{mb(exported.file_bytes)}, {mb(exported.file_bytes / exported.elapsed_ns * 1e9)}/s"
        )


def _check_gguf(path: Path) -> None:
    """Before anything is written: what takes minutes must not fail at its end, nor replace the model."""
    if path.suffix.lower() != ".gguf":
        raise UsageError(f"--gguf is {path}, must end in .gguf")
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"--gguf is {path}, must be a file in a folder that exists")


def _export(source: Path, target: Path) -> Export:
    with progress_bar(f"writing {target.name}") as progress:
        return export(source, target, progress=progress)


def _json(exported: Export) -> dict[str, str | int]:
    return {
        "path": str(exported.path),
        "architecture": exported.architecture,
        "file_bytes": exported.file_bytes,
        "elapsed_ns": exported.elapsed_ns,
    }
