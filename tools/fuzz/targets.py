"""The fuzz targets, how they are built, and where their inputs lie."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.build_engine import CLANGS, ROOT, BuildError, build_engine

DICTIONARY = ROOT / "fuzz/model.dict"
MAX_INPUT_BYTES = 1 << 16


@dataclass(frozen=True)
class Target:
    """One program of fuzz/. `reads`: the sources whose line coverage says how far it comes."""

    name: str
    reads: tuple[str, ...]

    @property
    def program(self) -> str:
        """File name of the built program."""
        return f"fuzz_{self.name}"

    @property
    def corpus(self) -> Path:
        """The inputs that the repository keeps."""
        return ROOT / "fuzz/corpus" / self.name


_TABLES = ("model.c", "tiles.c", "plan.c", "forward.c", "spans.c", "hash.c", "utf8.c")
_DATA = ("session.c", "residency.c", "load.c", "experts.c", "stream.c", "exec_routed.c", "exec_vector.c")
_READER = ("reader.c", "reader_create.c", "reader_threads.c", "reader_uring.c")
TARGETS = {
    "cflow": Target("cflow", (*_TABLES, "verify.c")),
    "vflow": Target("vflow", (*_TABLES, *_DATA, *_READER)),
}


def find_clang() -> str:
    """The first clang that has libFuzzer. Raises BuildError."""
    for name in filter(shutil.which, CLANGS):
        shown = subprocess.run([name, "-print-resource-dir"], capture_output=True, text=True, check=True)
        if any(Path(shown.stdout.strip()).rglob("libclang_rt.fuzzer*.a")):
            return name
    raise BuildError(
        "no clang with libFuzzer is installed (Debian, Ubuntu: apt install clang libclang-rt-dev)"
    )


def build_targets(build_dir: Path, compiler: str, c_flags: str = "", mutant: str = "") -> Path:
    """Builds all targets in `build_dir`, what is there already not again; returns it.

    mutant: a deliberate fault of the engine (CFLOW_MUTANT), none by default. Raises BuildError.
    """
    options = {"CFLOW_FUZZ": "ON", "CFLOW_WERROR": "ON", "CMAKE_C_FLAGS": c_flags, "CFLOW_MUTANT": mutant}
    build_engine(build_dir, options, compiler=compiler, target="cflow_fuzz", fresh=False)
    return build_dir
