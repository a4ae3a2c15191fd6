"""Runs a module as `python -m` does, and ends itself with SIGKILL when it is about to touch a folder again.

    python -m tools.kills_child FOLDER NUMBER COUNT MODULE [ARGUMENT...]

Before the NUMBER-th time that Python opens a file below FOLDER for writing, renames, removes or makes one
there, the whole process group is killed; NUMBER 0 never. At its end the number of these moments is written to
the file COUNT.
"""

from __future__ import annotations

import atexit
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

_CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")


class Moments:
    """Counts what an audit hook reports, and kills before the `last`-th."""

    def __init__(self, folder: str, last: int) -> None:
        self._folder, self._last = folder, last
        self.count = 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if not (writes or event in _CHANGES) or not self._below(arguments[0]):
            return
        self.count += 1
        if self.count == self._last:
            os.killpg(0, signal.SIGKILL)

    def _below(self, path: object) -> bool:
        return isinstance(path, str | os.PathLike) and str(os.fspath(path)).startswith(self._folder)


def main() -> None:
    """See above."""
    folder, number, counted, module, *arguments = sys.argv[1:]
    moments = Moments(folder, int(number))
    atexit.register(lambda: Path(counted).write_text(f"{moments.count}\n"))
    sys.argv = [module, *arguments]
    sys.addaudithook(moments)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
