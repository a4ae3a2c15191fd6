"""Links and names in the documents lead to what is there. The site's own links are checked by its build."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.build_engine import ROOT

DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "generated" not in path.parts),
]
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
PATH = re.compile(
    r"`((?:architectures|baselines|claims|cli|cmake|docs|engine|harness|reports|tests|tools)/[\w./-]*\w)`"
)
ENVIRONMENT = re.compile(r"tox -e ([a-z]\w*)")
MODULE = re.compile(r"python3? -m ((?:tools|tests|harness|architectures)\.[\w.]+)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_names_is_there(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    missing = []
    for target in LINK.findall(text):
        path = target.split("#")[0]
        if path and not re.match(r"\w+:", path) and not (document.parent / path).exists():
            missing.append(target)
    # Capitals stand for a name of the reader's own: claims/test_claim_N.py.
    paths = [path for path in PATH.findall(text) if not re.search(r"[/_][A-Z]+\b", path)]
    missing += [path for path in paths if not (ROOT / path).exists()]
    for module in MODULE.findall(text):
        path = ROOT / module.replace(".", "/")
        if not path.with_suffix(".py").exists() and not (path / "__main__.py").exists():
            missing.append(module)
    environments = re.findall(r"^\[testenv:(\w+)\]", (ROOT / "tox.ini").read_text(), re.MULTILINE)
    missing += [name for name in ENVIRONMENT.findall(text) if name not in environments]
    assert missing == []


def test_mutants_that_documents_name_are_known() -> None:
    flags = (ROOT / "cmake/CflowFlags.cmake").read_text()
    known = re.search(r"set\(known_mutants ([^)]*)\)", flags)
    assert known is not None
    text = " ".join(" ".join(path.read_text(encoding="utf-8").split()) for path in DOCUMENTS)
    named = set(re.findall(r"mutant `(\w+)`", text))
    assert len(named) > 5
    assert named - set(known[1].split()) == set()


def test_documents_keep_the_line_length() -> None:
    long = []
    for document in DOCUMENTS:
        fenced = False
        for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
            fenced ^= line.startswith("```")
            if len(line) > 120 and not fenced and not line.startswith("|"):
                long.append(f"{document.relative_to(ROOT)}:{number}")
    assert long == []
