"""A process that decodes with a mapped model and says how much memory it took at most.

Run as `python -m claims.decode_child MODEL THREADS`; it prints one line of JSON. `peak_of` starts it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from engine.errors import CflowError
from engine.model import Model
from engine.session import Session

TOKENS: Final = 256
_START: Final = 11
_TIMEOUT_S: Final = 1200
_STATUS: Final = Path("/proc/self/status")


class ChildError(Exception):
    """The process did not end as it should, or the kernel does not say what it took."""


@dataclass(frozen=True)
class Peak:
    """peak_resident_bytes: of the whole process, pages of the mapped file among them. anonymous_bytes: of it
    at the end, what is no file.
    """

    peak_resident_bytes: int
    anonymous_bytes: int
    file_bytes: int
    kv_bytes: int


def peak_of(path: Path, threads: int) -> Peak:
    """Decodes TOKENS greedy tokens with the model in a fresh process. Raises ChildError."""
    command = [sys.executable, "-m", "claims.decode_child", str(path.absolute()), str(threads)]
    root = Path(__file__).resolve().parent.parent
    try:
        done = subprocess.run(
            command, cwd=root, capture_output=True, encoding="utf-8", errors="replace", timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise ChildError(f"decoding {path.name} takes longer than {_TIMEOUT_S} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or "it printed nothing").splitlines()[-1]
        killed = " (out of memory?)" if done.returncode == -9 else ""
        raise ChildError(f"decoding {path.name} failed with status {done.returncode}{killed}: {last}")
    return Peak(**json.loads(done.stdout))


def status_bytes(field: str, text: str) -> int:
    """A size of /proc/PID/status, e.g. VmHWM. Raises ChildError when the kernel does not tell it."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise ChildError(f"the kernel does not tell {field} of a process")


def main() -> None:
    """Decodes, and prints what it took."""
    path, threads = Path(sys.argv[1]), int(sys.argv[2])
    try:
        with Model(path) as model, Session(model, threads=threads, context=TOKENS) as session:
            session.generate(_START, TOKENS)
            kv_bytes, _ = session.memory_bytes()
            text = _STATUS.read_text()
            peak = Peak(
                status_bytes("VmHWM", text), status_bytes("RssAnon", text), model.file_bytes, kv_bytes
            )
    except (CflowError, ChildError, OSError) as error:
        sys.exit(str(error))
    print(json.dumps(asdict(peak)))


if __name__ == "__main__":
    main()
