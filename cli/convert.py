"""`cflow convert`: between GGUF, .cflow and .vflow, from trained models, and to folders for vLLM."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cli.console import StagesOption, UsageError, file_order, mb, message, progress_bar
from engine.convert_checkpoint import WeightClass, convert_checkpoint, parse_types
from engine.convert_gguf import convert as convert_gguf
from engine.enums import Order
from engine.export_gguf import export
from engine.export_hf import export_hf
from engine.gguf_names import ARCHITECTURES
from engine.hf_forms import HfForm
from engine.layout import MAGIC
from engine.reorder import reorder
from engine.tiles import TileShape, type_named


def convert(
    source: Annotated[
        Path,
        typer.Argument(
            help=f"A GGUF file of architecture {', '.join(ARCHITECTURES)}, a .cflow or .vflow file, or the "
            "folder of a trained model (config.json, model.safetensors, tokenizer.json)."
        ),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            help="The file to write, or replace: GGUF when it ends in .gguf, stage-major when in .vflow; "
            "with --hf a folder."
        ),
    ],
    quantize: Annotated[
        str | None, typer.Option(help="Quantise f16 and f32 matrices to q4_0, q4_1 or q8_0.")
    ] = None,
    type_: Annotated[
        str | None,
        typer.Option(
            "--type",
            help="Types of a trained model: one, then what differs, e.g. q4_0,head=f16,attention=f32. "
            f"Classes: {', '.join(WeightClass)}.",
            show_default="q4_0",
        ),
    ] = None,
    tile_rows: Annotated[
        int | None, typer.Option(help=f"Rows of a tile, a multiple of 16; {TileShape.rows} by default.")
    ] = None,
    tile_cols: Annotated[
        int | None,
        typer.Option(help="Columns of a tile, a multiple of 32.", show_default=str(TileShape.cols)),
    ] = None,
    stages: StagesOption = None,
    hf: Annotated[
        HfForm | None,
        typer.Option(help="Write a folder for Hugging Face's loaders and vLLM, its matrices in this form."),
    ] = None,
) -> None:
    """Convert a model between GGUF, .cflow (layer-major) and .vflow (stage-major), block for block.

    Dense and with experts. What the engine would compute otherwise than a GGUF file asks (K-quants, scaled
    rotary embeddings, sliding windows, shared experts ...) is refused by name, and so is a .cflow model that
    no GGUF architecture describes. The tokenizer is carried along, but not back into GGUF. Between .cflow and
    .vflow every tensor keeps its bytes. With --hf a dense model without delays becomes config.json and
    model.safetensors, dequantised to bf16, or quantised anew to int8 or int4 as compressed-tensors has them.

    Routers, norms and registers of a trained model stay f32; the error of quantisation is printed by class.

    Example: cflow convert model.cflow model.vflow --stages kind
    """
    if hf is not None:
        _to_hf(source, target, hf, [quantize, type_, tile_rows, tile_cols, stages])
        return
    order = file_order(target, stages)
    shaping = {"--quantize": quantize, "--tile-rows": tile_rows, "--tile-cols": tile_cols}
    given = [name for name, value in shaping.items() if value is not None]
    if source.is_dir():
        if quantize is not None:
            raise UsageError(f"--quantize: only for a GGUF source; {source} takes --type")
        if target.suffix.lower() == ".gguf":
            raise UsageError(f"{target}: a trained model becomes .cflow or .vflow first")
        _from_checkpoint(source, target, type_ or "q4_0", _tile_shape(tile_rows, tile_cols), order)
        return
    if type_ is not None:
        raise UsageError(f"--type: only for the folder of a trained model; {source} is none")
    if target.suffix.lower() == ".gguf":
        if source.suffix.lower() == ".gguf":
            raise UsageError(f"{source} and {target}: both are GGUF, one must be .cflow")
        if given:
            raise UsageError(f"{', '.join(given)}: a GGUF file takes the blocks of the model as they are")
        _to_gguf(source, target)
        return
    if _is_ours(source):
        if given:
            raise UsageError(f"{', '.join(given)}: only for a GGUF source; {source} keeps its tiles")
        with progress_bar(f"converting {source.name}") as progress:
            written = reorder(source, target, order, progress)
        print(f"{target}: {written.name or 'unnamed'}, {_sizes(written.tensors, written.file_bytes)}")
        return
    kind = None if quantize is None else type_named(quantize)
    shape = _tile_shape(tile_rows, tile_cols)
    with progress_bar(f"converting {source.name}") as progress:
        done = convert_gguf(source, target, quantize=kind, tile_shape=shape, order=order, progress=progress)
    if done.tokenizer_note:
        message(f"note: no tokenizer is carried along: {done.tokenizer_note}")
    sizes = _sizes(done.tensors, done.file_bytes)
    print(f"{target}: {done.name}, architecture {done.architecture}, {sizes}")


def _tile_shape(rows: int | None, cols: int | None) -> TileShape:
    return TileShape(TileShape.rows if rows is None else rows, TileShape.cols if cols is None else cols)


def _from_checkpoint(folder: Path, target: Path, types: str, shape: TileShape, order: Order) -> None:
    with progress_bar(f"converting {folder.name}") as progress:
        done = convert_checkpoint(
            folder, target, types=parse_types(types), tile_shape=shape, order=order, progress=progress
        )
    print(f"{target}: {done.name}, {_sizes(done.tensors, done.file_bytes)}")
    for error in done.errors:
        exact = "exact" if error.relative == 0 else f"error {error.relative:.3g} of the norm"
        worst = f", at most {error.worst_relative:.3g} in {error.worst}" if error.relative else ""
        print(f"  {error.weights.value:<9} {error.kind.name.lower():<4} {exact}{worst}")


def _is_ours(source: Path) -> bool:
    """Whether a file begins as .cflow and .vflow files do; what cannot be read is left to its reader."""
    try:
        with source.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _sizes(tensors: int, file_bytes: int) -> str:
    return f"{tensors} tensors, {mb(file_bytes)}"


def _to_gguf(source: Path, target: Path) -> None:
    with progress_bar(f"converting {source.name}") as progress:
        done = export(source, target, progress=progress)
    if done.had_tokenizer:
        message("note: the tokenizer is not carried along into GGUF")
    print(f"{target}: architecture {done.architecture}, {_sizes(done.tensors, done.file_bytes)}")


def _to_hf(source: Path, target: Path, form: HfForm, others: Sequence[object]) -> None:
    if any(other is not None for other in others):
        raise UsageError("--hf: takes no option beside it; the source is a .cflow model as it is")
    with progress_bar(f"converting {source.name}") as progress:
        done = export_hf(source, target, form, progress=progress)
    print(f"{target}: {done.architecture} in {form}, {_sizes(done.tensors, done.weight_bytes)}")
