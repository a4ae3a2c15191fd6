"""From what a user names to a run: finds or makes the tokens, then trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from architectures.arguments import Arguments, Options
from architectures.errors import DataError
from architectures.metrics import Progress
from architectures.prepared import Prepared, is_prepared, open_prepared, prepare
from architectures.processes import Processes, processes
from architectures.sources import GPT2_BPE, SOURCES, fetched
from architectures.table import PRESETS, preset
from architectures.trainer import train


def locate(names: Sequence[str]) -> list[Path]:
    """Paths as they are; texts of `cflow data get` as the folders that it fetched. Raises DataError."""
    paths, texts = [], [name for name in SOURCES if name != GPT2_BPE]
    for name in names:
        path = Path(name)
        if not path.exists() and name not in texts:
            raise DataError(f"{name}: no such file or folder, nor one of {', '.join(texts)}")
        paths.append(path if path.exists() else fetched(name))
    return paths


def tokens_of(sources: Sequence[Path], preset_name: str, target: Path) -> Prepared:
    """The prepared folder that `sources` names; else `target`, made from their text unless it is there.

    Raises DataError, also for a prepared folder whose vocabulary is larger than the preset's.
    """
    wanted = preset(preset_name).vocab
    if len(sources) == 1 and is_prepared(sources[0]):
        data = open_prepared(sources[0])
    elif is_prepared(target):
        data = open_prepared(target)
    else:
        gpt2 = fetched(GPT2_BPE) if preset_name == "paper" else None
        data = prepare(sources, target, wanted, gpt2)
    if data.vocab != wanted:
        allowed = ", ".join(name for name, sizes in PRESETS.items() if sizes.vocab == data.vocab) or "none"
        raise DataError(
            f"{data.folder}: its tokenizer has {data.vocab} ids, preset {preset_name} needs {wanted}; "
            f"presets that fit: {allowed}"
        )
    return data


def start(
    arguments: Arguments,
    options: Options,
    sources: Sequence[Path],
    report: Callable[[Progress], None],
) -> tuple[dict[str, Any], Processes]:
    """One run, in as many processes as torchrun started; the content of its result.json, and this process."""
    with processes() as group:
        if group.leads:
            tokens_of(sources, arguments.preset, options.out / "data")
        group.wait()
        data = tokens_of(sources, arguments.preset, options.out / "data")
        return train(arguments, options, data, group, report), group
