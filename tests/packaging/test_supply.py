"""What continuous integration installs: pinned, by hash, complete, under licences that are allowed."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import licences
from tools.build_engine import ROOT

LOCK = (ROOT / "requirements/ci.txt").read_text(encoding="utf-8")
PINNED = {canonicalize_name(name): version for name, version in licences.locked(LOCK).items()}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def rows() -> dict[str, tuple[str, str]]:
    """Version and licence by name, as the document says."""
    table = re.findall(r"^\| (\S+) \| (\S+) \| (.+) \|$", licences.DOCUMENT.read_text(), re.MULTILINE)
    return {name: (version, expression) for name, version, expression in table if name != "package"}


def test_every_package_has_hashes_and_no_address() -> None:
    blocks = re.split(r"\n(?=[A-Za-z])", LOCK.strip())
    assert len(blocks) == len(PINNED) > 50
    for block in blocks:
        assert re.match(r"[\w.-]+==\S+", block), block.splitlines()[0]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", block), block.splitlines()[0]
    assert "://" not in LOCK and "--index-url" not in LOCK and "-e " not in LOCK


def test_the_lock_has_what_the_environments_ask_for() -> None:
    extras = PROJECT["optional-dependencies"]
    for text in (*PROJECT["dependencies"], *extras["dev"], *extras["docs"]):
        wanted = Requirement(text)
        version = PINNED.get(canonicalize_name(wanted.name))
        assert version is not None and wanted.specifier.contains(version, prereleases=True), text


def test_licences_are_written_down_and_allowed() -> None:
    found = rows()
    assert {canonicalize_name(name): version for name, (version, _) in found.items()} == PINNED
    assert {name: one for name, (_, one) in found.items() if not licences.is_allowed(one)} == {}


def test_installed_packages_say_the_same_of_their_licences() -> None:
    looked_at = 0
    for name, (version, expression) in rows().items():
        try:
            installed = licences.licence_of(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if installed.version == version:
            assert installed.expression == expression
            looked_at += 1
    assert looked_at > 10


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-3.0-only OR MIT", True),
        ("(MIT OR Apache-2.0)", True),
        ("MIT AND PSF-2.0", True),
        ("GPL-3.0-only", False),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR Apache-2.0) AND GPL-3.0-only", False),
        ("GPL-3.0-only AND (MIT OR Apache-2.0)", False),
        ("(MIT) OR (GPL-3.0-only)", False),  # not understood, and so not allowed
        ("Proprietary", False),
        ("not stated", False),
        ("", False),
    ],
)
def test_what_is_allowed(expression: str, allowed: bool) -> None:
    assert licences.is_allowed(expression) is allowed
