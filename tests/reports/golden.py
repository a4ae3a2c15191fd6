"""The golden report: a small run, made up and stored, and the page that comes of it.

python -m tests.reports.golden writes both files of tests/reports/golden again; test_golden.py compares.
The page is stored one tag a line, without its styles and script, so that a change reads as a diff.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Final

import harness
from harness.check import check
from harness.registry import parse_registry
from harness.results import FILE_NAME, write_atomically
from reports.render import page
from tests.reports.made_runs import CLAIMS, Made

FOLDER: Final = Path(__file__).parent / "golden"
PAGE: Final = FOLDER / "report.html"
KEPT: Final = ("2.l1.simulated", "2.l1.hardware", "3.agreement", "6.hint")
"""One check of each way to be shown: exact, not measurable, several rows, timed."""

_LEFT_OUT: Final = re.compile(r"(<(style|script)>).*?(</\2>)|sha256-[\w+/=]*", re.S)


def readable(page: str) -> str:
    """A page one tag a line, without styles, script and the hash of it."""
    short = _LEFT_OUT.sub(lambda found: (found[1] or "") + (found[3] or ""), page)
    lines = (line.strip() for line in re.sub(r"(?<=>)(?=<)", "\n", short).splitlines())
    return "\n".join(line for line in lines if line) + "\n"


def rendered() -> str:
    """The page of the stored run."""
    return readable(page(harness.load(FOLDER), check(FOLDER)))


def main() -> None:
    """Writes the run and its page."""
    every = [declared.id for declared in parse_registry(CLAIMS).checks]
    options = {"threads": 2, "isa": "avx2", "only": ",".join(KEPT)}
    without = tuple(name for name in every if name not in KEPT)
    with tempfile.TemporaryDirectory() as scratch:
        made = Made(hint=1.10, options=options, without=without).write(Path(scratch) / "run")
        write_atomically(FOLDER / FILE_NAME, (made / FILE_NAME).read_text(encoding="utf-8"))
    write_atomically(PAGE, rendered())
    print(FOLDER / FILE_NAME, PAGE, sep="\n")


if __name__ == "__main__":
    main()
