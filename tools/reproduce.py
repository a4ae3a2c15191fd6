"""Builds the library twice, in two folders of different depth, and compares the bytes.

`python -m tools.reproduce` prints the SHA-256 of the library. Exit codes: 0 the same bytes, 1 others, 2 a
build failed. It takes twice the time of a build.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from tools.build_engine import ROOT, BuildError, build_engine

_PARTS = ("cmake", "engine", "docs/claims")
_FOLDERS = ("one", "two/deeper/down")


def built_in(folder: Path) -> str:
    """SHA-256 of the library of a copy of the sources, built in `folder`. Raises BuildError."""
    tree = folder / "tree"
    for part in _PARTS:
        shutil.copytree(ROOT / part, tree / part)
    shutil.copy(ROOT / "CMakeLists.txt", tree)
    library = build_engine(folder / "build", source_dir=tree, target="cflow")
    return hashlib.sha256(library.read_bytes()).hexdigest()


def main() -> int:
    """The command; its exit code."""
    with tempfile.TemporaryDirectory(prefix="cflow-reproduce-") as scratch:
        try:
            found = {name: built_in(Path(scratch) / name) for name in _FOLDERS}
        except BuildError as error:
            print(f"reproduce: {error}", file=sys.stderr)
            return 2
    for name, digest in found.items():
        print(f"{digest}  {name}/libcflow")
    return 0 if len(set(found.values())) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
