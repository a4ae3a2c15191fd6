"""Trained models that `--trained DIR` names: a folder of `cflow train`, or a folder of such folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from claims.models import cached_model
from engine.checkpoint import CONFIG, TENSORS, read_config
from engine.convert_checkpoint import convert_checkpoint
from engine.errors import FileError
from engine.model import Model
from engine.tokenizer import Tokenizer

TrainedModels = Mapping[str, Path]
"""Name of the architecture -> the model in q4_0."""

_TEXT = Path(__file__).with_name("prompt.txt"), Path(__file__).with_name("text.txt")


def trained_models(folder: Path, cache: Path) -> TrainedModels:
    """The first model of each name in `folder`, sorted by path, converted into `cache`.

    Raises FileError when there is none, and what `convert_checkpoint` raises.
    """
    found = (
        [folder]
        if (folder / CONFIG).is_file()
        else sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))
    )
    if not found:
        raise FileError(f"--trained {folder}: no folder of a trained model ({CONFIG}) in it")
    models: dict[str, Path] = {}
    for one in found:
        name = read_config(one / CONFIG).name
        if name not in models:
            models[name] = _converted(one, name, cache)
    return models


def _converted(folder: Path, name: str, cache: Path) -> Path:
    try:
        status = (folder / TENSORS).stat()
    except OSError as error:
        raise FileError(f"{folder / TENSORS}: cannot be read: {error.strerror}") from error
    key = f"trained {folder.resolve()} {status.st_size} {status.st_mtime_ns}"
    return cached_model(cache, f"trained-{name}", key, lambda target: convert_checkpoint(folder, target))


def text_tokens(path: Path, count: int) -> list[int]:
    """The first `count` tokens of the texts of the claims, by the tokenizer of the model at `path`.

    Raises FileError when they do not have as many.
    """
    with Model(path) as model:
        json = model.tokenizer_json
        if json is None:
            raise FileError(f"{path}: carries no tokenizer")
        ids = Tokenizer.from_json(json).encode("\n".join(text.read_text(encoding="utf-8") for text in _TEXT))
    if len(ids) < count:
        raise FileError(f"{path}: the texts of the claims have {len(ids)} of its tokens, {count} are needed")
    return ids[:count]
