"""`cflow convert`: GGUF to .cflow."""

from pathlib import Path
from typing import Annotated

import typer

from cli.console import mb, message, progress_bar
from engine.convert_gguf import convert as convert_gguf
from engine.gguf_names import ARCHITECTURES
from engine.tiles import TileShape, type_named


def convert(
    source: Annotated[Path, typer.Argument(help=f"A GGUF file of architecture {', '.join(ARCHITECTURES)}.")],
    target: Annotated[Path, typer.Argument(help="The .cflow file to write; replaced when it exists.")],
    quantize: Annotated[
        str | None, typer.Option(help="Quantise f16 and f32 matrices to q4_0, q4_1 or q8_0.")
    ] = None,
    tile_rows: Annotated[int, typer.Option(help="Rows of a tile, a multiple of 16.")] = 128,
    tile_cols: Annotated[int, typer.Option(help="Columns of a tile, a multiple of 32.")] = 256,
) -> None:
    """Convert a GGUF model, block for block; the tokenizer is carried along.

    Dense and with experts. What the engine would compute otherwise than the file asks (K-quants, scaled
    rotary embeddings, sliding windows, shared experts ...) is refused by name.
    """
    kind = None if quantize is None else type_named(quantize)
    with progress_bar(f"converting {source.name}") as progress:
        done = convert_gguf(
            source, target, quantize=kind, tile_shape=TileShape(tile_rows, tile_cols), progress=progress
        )
    if done.tokenizer_note:
        message(f"note: no tokenizer is carried along: {done.tokenizer_note}")
    tensors = f"{done.tensors} tensors, {mb(done.file_bytes)}"
    print(f"{target}: {done.name}, architecture {done.architecture}, {tensors}")
