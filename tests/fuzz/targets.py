"""What reads files of strangers in Python, each with valid files, ways to spoil them, and one whole use.

A target reads a folder. It may succeed, leaving the files that it says, or raise an error of our hierarchy
that names a file of the folder, leaving nothing.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import struct
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Final

from engine.convert_checkpoint import convert_checkpoint
from engine.convert_gguf import convert
from engine.model import Model
from engine.tokenizer import Tokenizer
from tests.engine.checkpoints import TINY, CheckpointFolder, byte_tokenizer
from tests.fuzz import gguf_form
from tests.fuzz.mutate import spoilt_bytes, spoilt_json, spoilt_toml

Files = dict[str, bytes]

_ROOT: Final = Path(__file__).parents[2]
_TEXT: Final = "Once upon a time, there were 3 dragons. \u00e9\U0001f600\n"


@dataclass(frozen=True)
class Target:
    """make: files of a case. read: one whole use of them. writes: what a use that succeeds leaves behind.

    missing: why it cannot run here; empty when it can.
    """

    name: str
    make: Callable[[Random], Files]
    read: Callable[[Path], None]
    writes: tuple[str, ...] = ()
    missing: str = ""


def _make_gguf(random: Random) -> Files:
    parts = gguf_form.seed_files(random)
    if random.randrange(8):
        gguf_form.spoil(random, parts)
    data = parts.to_bytes()
    return {"model.gguf": spoilt_bytes(random, data) if random.randrange(4) == 0 else data}


def _read_gguf(folder: Path) -> None:
    target = folder / "model.cflow"
    done = convert(folder / "model.gguf", target)
    _generate(target, done.file_bytes)


def _generate(path: Path, file_bytes: int) -> None:
    """What was written is a file that the engine takes."""
    with Model(path) as model:
        model.verify()
        assert model.file_bytes == file_bytes
        if model.tokenizer_json is not None:
            _speak(Tokenizer.from_json(model.tokenizer_json))


def _speak(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(_TEXT)
    tokenizer.decode(ids)
    step = tokenizer.stream()
    for token in ids[:16]:
        step(token)


@functools.cache
def _checkpoints() -> list[Files]:
    """One valid folder of each architecture."""
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, geometry in TINY.items():
            folder = CheckpointFolder(geometry, name).write(Path(scratch) / name)
            found.append({path.name: path.read_bytes() for path in folder.iterdir()})
    return found


def _make_checkpoint(random: Random) -> Files:
    files = dict(random.choice(_checkpoints()))
    spoilt = random.choice(("config.json", "config.json", "tokenizer.json", "model.safetensors", ""))
    if spoilt == "model.safetensors":
        files[spoilt] = _spoilt_safetensors(random, files[spoilt])
    elif spoilt:
        files[spoilt] = _spoilt_json(random, files[spoilt])
    return files


def _spoilt_safetensors(random: Random, data: bytes) -> bytes:
    """Length, header as JSON, data: each may lie."""
    (length,) = struct.unpack_from("<Q", data)
    header, body = data[8 : 8 + length], data[8 + length :]
    if random.randrange(3):
        header = _spoilt_json(random, header)
    else:
        body = spoilt_bytes(random, body)
    lies = random.choice((None, None, None, 0, 1, length + 8, 1 << 32, (1 << 64) - 1))
    return struct.pack("<Q", len(header) if lies is None else lies) + header + body


def _spoilt_json(random: Random, data: bytes) -> bytes:
    changed = spoilt_json(random, data.decode()).encode("utf-8", "surrogatepass")
    return spoilt_bytes(random, changed) if random.randrange(5) == 0 else changed


def _read_checkpoint(folder: Path) -> None:
    target = folder / "model.cflow"
    _generate(target, convert_checkpoint(folder, target).file_bytes)


@functools.cache
def _tokenizers() -> list[bytes]:
    """Byte-level BPE, plain and with parts of other models."""
    plain = json.loads(byte_tokenizer(300))
    rich = json.loads(byte_tokenizer(300))
    rich["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}
    split = {"type": "Split", "pattern": {"Regex": r"\p{L}+|\s+"}, "behavior": "Isolated", "invert": False}
    digits = {"type": "Digits", "individual_digits": True}
    rich["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, digits, plain["pre_tokenizer"]]}
    rich["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            "<|endoftext|>": {"id": "<|endoftext|>", "ids": [299], "tokens": ["<|endoftext|>"]}
        },
    }
    rich["truncation"] = {"max_length": 16, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    rich["padding"] = {
        "strategy": {"Fixed": 8},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "!",
    }
    return [json.dumps(plain).encode(), json.dumps(rich).encode()]


def _make_tokenizer(random: Random) -> Files:
    return {"tokenizer.json": _spoilt_json(random, random.choice(_tokenizers()))}


def _read_tokenizer(folder: Path) -> None:
    path = folder / "tokenizer.json"
    _speak(Tokenizer.from_json(path.read_bytes().decode("utf-8", "replace"), str(path)))


@functools.cache
def _results() -> str:
    return (_ROOT / "tests/reports/golden/results.json").read_text(encoding="utf-8")


def _make_results(random: Random) -> Files:
    if random.randrange(3) == 0:  # the targets inside, under a hash that is right
        data = json.loads(_results())
        text = spoilt_toml(random, data["registry"]["text"])
        data["registry"] = {"text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
        return {"results.json": json.dumps(data).encode()}
    return {"results.json": _spoilt_json(random, _results().encode())}


def _read_results(folder: Path) -> None:
    import harness
    from harness.check import check
    from reports import render
    from reports.compare import compare, write_page

    faults: list[Exception] = []
    uses: list[Callable[[], Any]] = [
        lambda: check(folder),
        lambda: harness.load(folder).to_frame(),
        lambda: harness.load(folder).rounds_frame(),
        lambda: render(folder),
        lambda: write_page(compare([folder, _ROOT / "tests/reports/golden"]), folder / "compared.html"),
    ]
    for use in uses:
        try:
            use()
        except harness.errors.HarnessError as error:
            faults.append(error)
    for name in ("report.html", "compared.html"):
        page = folder / name
        if page.exists():
            text = page.read_text(encoding="utf-8")
            assert "<script>alert" not in text, f"{name}: text of the file is code"
            page.unlink()
    if faults:
        raise faults[0]


@functools.cache
def _series() -> bytes:
    return (_ROOT / "claims/quality.json").read_bytes()


def _make_quality(random: Random) -> Files:
    return {"quality.json": _spoilt_json(random, _series())}


def _read_quality(folder: Path) -> None:
    from claims.quality_series import read_series

    series = read_series(folder / "quality.json")
    _ = series.scale
    for other in ("arch2_4_sync", "arch4", "arch1"):
        series.pairs("arch2_4_combined", other)


@functools.cache
def _prepared() -> Files:
    import xxhash

    files = {"tokenizer.json": byte_tokenizer(300).encode()}
    files |= {f"{part}.bin": bytes(range(64)) for part in ("train", "validation", "test")}
    manifest = {
        "format": "cflow-tokens",
        "version": 1,
        "vocab": 300,
        "eos": 299,
        "stories": {"train": 1, "validation": 1, "test": 1},
        "xxh64": {name: xxhash.xxh64_hexdigest(data) for name, data in files.items()},
    }
    return {**files, "manifest.json": json.dumps(manifest).encode()}


def _make_prepared(random: Random) -> Files:
    files = dict(_prepared())
    spoilt = random.choice(("manifest.json", "manifest.json", "manifest.json", *files))
    if spoilt == "manifest.json":
        files[spoilt] = _spoilt_json(random, files[spoilt])
    else:
        files[spoilt] = spoilt_bytes(random, files[spoilt])
    return files


def _read_prepared(folder: Path) -> None:
    from architectures.prepared import open_prepared

    open_prepared(folder)


@functools.cache
def _parquets() -> list[bytes]:
    """Stories as string of every kind, packed and plain; and columns that are no text."""
    import pyarrow
    from pyarrow import parquet

    texts = ["Once upon a time", None, "there were 3 dragons \u00e9\U0001f600", "", "Once upon a time"] * 8
    string = pyarrow.array(texts)
    columns = [
        string,
        string.cast(pyarrow.large_string()),
        string.dictionary_encode(),
        string.cast(pyarrow.binary()),
        pyarrow.array([1, 2, 3]),
        pyarrow.array([["Once"], None, []]),
    ]
    found = []
    for column, how in product(columns, ("none", "snappy", "zstd")):
        held = pyarrow.BufferOutputStream()
        parquet.write_table(pyarrow.table({"text": column}), held, compression=how, row_group_size=16)
        found.append(held.getvalue().to_pybytes())
    return found


def _make_parquet(random: Random) -> Files:
    data = random.choice(_parquets())
    return {"a.parquet": spoilt_bytes(random, data) if random.randrange(4) else data}


def _read_parquet(folder: Path) -> None:
    from architectures.stories import read_stories

    for story in read_stories(folder / "a.parquet"):
        story.encode()


def _no_pyarrow() -> str:
    return "" if importlib.util.find_spec("pyarrow") else "pyarrow is not installed: pip install pyarrow"


_RUN: Final[Mapping[str, Any]] = {"arguments": {"architecture": "arch4", "steps": 4}, "data": {}}


@functools.cache
def _training() -> Files:
    """The checkpoint of a run, and the two files of JSON beside it."""
    import torch
    from torch import nn

    from architectures.checkpoint import save_checkpoint

    model = nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "checkpoint.bin"
        save_checkpoint(path, 3, {"steps": 4}, model, optimizer)
        lines = [{"step": 1, "loss": 2.5}, {"step": 2, "validation_log_perplexity": 2.4}]
        return {
            "checkpoint.bin": path.read_bytes(),
            "run.json": json.dumps(_RUN).encode(),
            "metrics.jsonl": b"".join(json.dumps(line).encode() + b"\n" for line in lines),
        }


def _make_training(random: Random) -> Files:
    import xxhash

    files = dict(_training())
    spoilt = random.choice(list(files))
    if spoilt == "metrics.jsonl":
        lines = files[spoilt].splitlines()
        lines[random.randrange(len(lines))] = _spoilt_json(random, random.choice(lines))
        files[spoilt] = b"\n".join(lines) + b"\n"
    elif spoilt == "run.json":
        files[spoilt] = _spoilt_json(random, files[spoilt])
    else:
        head, _, body = files[spoilt].partition(b"\n")
        if random.randrange(2):
            head = _spoilt_json(random, head)
        else:  # under a hash that is right
            body = _spoilt_safetensors(random, body)
            head = json.dumps({**json.loads(head), "xxh64": xxhash.xxh64(body).hexdigest()}).encode()
        files[spoilt] = head + b"\n" + body
    return files


def _read_training(folder: Path) -> None:
    import torch
    from torch import nn

    from architectures.checkpoint import read_checkpoint, restore
    from architectures.metrics import Metrics, read_metrics
    from architectures.run_folder import read_json

    read_json(folder / "run.json")
    read_metrics(folder)
    model = nn.Linear(4, 2)
    restore(read_checkpoint(folder / "checkpoint.bin"), model, torch.optim.AdamW(model.parameters()))
    Metrics(folder, 2)


def _no_torch() -> str:
    return "" if importlib.util.find_spec("torch") else "PyTorch is not installed: pip install '.[train]'"


TARGETS: Final[Mapping[str, Target]] = {
    target.name: target
    for target in (
        Target("gguf", _make_gguf, _read_gguf, ("model.cflow",)),
        Target("checkpoint", _make_checkpoint, _read_checkpoint, ("model.cflow",)),
        Target("tokenizer", _make_tokenizer, _read_tokenizer),
        Target("results", _make_results, _read_results),
        Target("quality", _make_quality, _read_quality),
        Target("prepared", _make_prepared, _read_prepared),
        Target("parquet", _make_parquet, _read_parquet, missing=_no_pyarrow()),
        Target("training", _make_training, _read_training, missing=_no_torch()),
    )
}
