"""The life of a run's folder.

    run.json          arguments and hashes of the data: written first, compared when a run is resumed
    metrics.jsonl     see `metrics.py`
    checkpoint.bin    see `checkpoint.py`; removed when the run is complete
    model.safetensors, config.json, tokenizer.json, loss.svg     the trained model
    result.json       test perplexity and how it came about; written last: a folder that has it is complete

With several processes they share the folder: it lies on a file system that all of them see.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from architectures.arguments import Arguments, Options
from architectures.atomic import write_atomically
from architectures.errors import BusyError, CheckpointError
from architectures.prepared import Prepared

if TYPE_CHECKING:  # it imports PyTorch, which reading a folder does not need
    from architectures.processes import Processes

RUN_NAME = "run.json"
RESULT_NAME = "result.json"
_LOCK_NAME = ".lock"


@contextmanager
def claimed(
    arguments: Arguments, options: Options, data: Prepared, group: Processes
) -> Iterator[dict[str, Any] | None]:
    """The folder `options.out` is this run's while the block runs. Gives its result when it is complete.

    Raises CheckpointError: it holds a run and `resume` is not set, it holds another run (naming the arguments
    that differ). Raises BusyError: another process trains in it.
    """
    out = options.out
    if not group.leads:
        group.wait()
        yield _result(options)
        return
    out.mkdir(parents=True, exist_ok=True)
    with (out / _LOCK_NAME).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"another process trains in {out}") from None
        for left in out.glob(".*.tmp"):  # of a run that was killed: we hold the lock
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        _claim(arguments, options, data)
        group.wait()
        yield _result(options)


def in_use(out: Path) -> bool:
    """Whether a process trains in the folder now."""
    try:
        with (out / _LOCK_NAME).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody has begun there
        return False
    return False


def _claim(arguments: Arguments, options: Options, data: Prepared) -> None:
    run = options.out / RUN_NAME
    if not run.exists():
        wanted = {"arguments": asdict(arguments), "data": data.hashes}
        write_atomically(run, (json.dumps(wanted, indent=2) + "\n").encode())
        return
    if not options.resume:
        raise CheckpointError(f"{options.out} holds a run already; --resume continues it")
    found = read_json(run)
    differences = arguments.differences(found.get("arguments", {}))
    if found.get("data") != data.hashes:
        differences.append("data: other text or another tokenizer")
    if differences:
        raise CheckpointError(f"{options.out} holds a run with other arguments: {'; '.join(differences)}")


def _result(options: Options) -> dict[str, Any] | None:
    path = options.out / RESULT_NAME
    return read_json(path) if options.resume and path.exists() else None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of ours. Raises CheckpointError naming the file."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid: {error}") from error
