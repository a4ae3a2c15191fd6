"""The licences of everything that `requirements/ci.txt` installs: `python -m tools.licences --write`.

They are read from the metadata of the installed packages, so it runs where that file was installed. Without
--write it only compares. Exit codes: 0 all is as written and allowed, 1 not, 2 a package is not installed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tools.build_engine import ROOT

LOCK: Final = ROOT / "requirements/ci.txt"
DOCUMENT: Final = ROOT / "requirements/licences.md"

#: Licences that a tool or library of this project may have, as SPDX writes them.
ALLOWED: Final = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "HPND",
        "ISC",
        "MIT",
        "MIT-CMU",
        "MIT-0",
        "MPL-2.0",
        "PSF-2.0",
        "Python-2.0",
        "Unlicense",
        "Zlib",
    }
)

#: Names that metadata use instead, in small letters.
_SPDX: Final[Mapping[str, str]] = {
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "the unlicense (unlicense)": "Unlicense",
}

#: What metadata say of parts that no wheel holds. docutils: its GPL part is a mode for Emacs.
_REVIEWED: Final[Mapping[str, str]] = {"docutils": "BSD-2-Clause AND Python-2.0"}

_PINNED: Final = re.compile(r"^([A-Za-z0-9][\w.-]*)==(\S+?)(?:\s*;[^\\]*)?\s*\\?$", re.MULTILINE)

_HEAD: Final = """# Licences of what continuous integration installs

Written by `python -m tools.licences --write` from the metadata of the packages in `ci.txt`; a test holds it.

| package | version | licence |
|---|---|---|
"""


@dataclass(frozen=True)
class Licence:
    """Of one package; `name` as the lock writes it."""

    name: str
    version: str
    expression: str

    def row(self) -> str:
        """Of the table."""
        return f"| {self.name} | {self.version} | {self.expression} |"


def locked(text: str) -> dict[str, str]:
    """Version by name of every package that a lock installs."""
    return dict(_PINNED.findall(text))


def licence_of(name: str) -> Licence:
    """Of an installed package. Raises importlib.metadata.PackageNotFoundError."""
    found = importlib.metadata.metadata(name)
    classifiers = [
        line.rsplit(" :: ", 1)[-1]
        for line in found.get_all("Classifier") or []
        if line.startswith("License :: ") and line != "License :: OSI Approved"
    ]
    expressed, old = (_first(found.get_all(field)) for field in ("License-Expression", "License"))
    # The older field may hold the whole text of a licence; its classifier is shorter.
    stated = expressed or ("" if "\n" in old else old)
    if name in _REVIEWED:
        return Licence(name, str(found["Version"]), _REVIEWED[name])
    names = [stated] if stated else classifiers
    expression = " AND ".join(sorted({_SPDX.get(one.lower(), one) for one in names})) or "not stated"
    return Licence(name, str(found["Version"]), expression)


def _first(values: Sequence[str] | None) -> str:
    return values[0].strip() if values else ""


def alternatives(expression: str) -> Iterable[set[str]]:
    """The sets of licences of which an SPDX expression asks for one.

    None of one that has parts in parentheses: it is not understood, and so not allowed.
    """
    whole = re.fullmatch(r"\s*\(([^()]*)\)\s*", expression)
    plain = whole[1] if whole else expression
    if "(" in plain or ")" in plain:
        return
    for choice in re.split(r"\s+OR\s+", plain.strip()):
        yield {re.sub(r"\s+WITH\s+.*", "", one).strip() for one in re.split(r"\s+AND\s+", choice)}


def is_allowed(expression: str) -> bool:
    """Whether a licence may be chosen of which every part is allowed."""
    return any(choice <= ALLOWED for choice in alternatives(expression))


def document(licences: Iterable[Licence]) -> str:
    """The text of the document."""
    return _HEAD + "".join(f"{one.row()}\n" for one in licences)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.licences", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.relative_to(ROOT)}")
    chosen = parser.parse_args(arguments)
    try:
        found = [licence_of(name) for name in locked(LOCK.read_text(encoding="utf-8"))]
    except importlib.metadata.PackageNotFoundError as error:
        print(f"licences: {error.name} is not installed: pip install -r {LOCK}", file=sys.stderr)
        return 2
    text = document(found)
    if chosen.write:
        DOCUMENT.write_text(text, encoding="utf-8")
    for one in found:
        if not is_allowed(one.expression):
            print(f"{one.name} {one.version}: {one.expression} is not in the list of allowed licences")
    same = DOCUMENT.exists() and DOCUMENT.read_text(encoding="utf-8") == text
    if not same:
        print(f"{DOCUMENT.relative_to(ROOT)} is not what the installed packages say")
    return 0 if same and all(is_allowed(one.expression) for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
