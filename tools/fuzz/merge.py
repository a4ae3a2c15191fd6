"""Takes over what runs have found into the inputs that the repository keeps."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.build_engine import BuildError
from tools.fuzz.run import Runner

MOST_CORPUS_BYTES = 320_000
"""Of one target in the repository."""


def merge_corpus(runner: Runner) -> tuple[list[Path], int]:
    """Copies found inputs that reach more than the kept ones, smallest first, while there is room.

    Returns the new files and how many were left out for want of room. Raises BuildError: the target failed.
    """
    kept = runner.target.corpus
    with TemporaryDirectory(dir=runner.work) as temporary:
        merged = Path(temporary) / "merged"
        shutil.copytree(kept, merged)
        known = {path.name for path in merged.iterdir()}
        command = [str(runner.program), "-merge=1", str(merged), str(runner.corpus)]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=temporary
        )
        if done.returncode != 0:
            raise BuildError(f"{' '.join(command)} exited with {done.returncode}:\n{done.stderr[-2000:]}")
        found = sorted(
            (path for path in merged.iterdir() if path.name not in known),
            key=lambda path: (path.stat().st_size, path.name),
        )
        room = MOST_CORPUS_BYTES - sum(path.stat().st_size for path in kept.iterdir())
        added = []
        for path in found:
            room -= path.stat().st_size
            if room < 0:
                break
            added.append(Path(shutil.copy(path, kept / path.name)))
    return added, len(found) - len(added)
