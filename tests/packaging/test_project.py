"""What the project says about itself agrees with itself."""

import re
import subprocess
import tomllib
from pathlib import Path

from tools.build_engine import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_one_version_everywhere() -> None:
    version = PROJECT["project"]["version"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    built = re.search(r"project\(cflow VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    assert newest is not None and newest[1] == version
    assert built is not None and built[1] == version


def test_every_dependency_says_why() -> None:
    entries = re.findall(
        r'^    "([A-Za-z][\w-]*(?:[=>]=)[^"]*)",(.*)$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    extras = PROJECT["project"]["optional-dependencies"].values()
    declared = [*PROJECT["project"]["dependencies"], *(name for extra in extras for name in extra)]
    assert sorted(name for name, _ in entries) == sorted(declared)
    assert [name for name, comment in entries if not re.search(r"# \w+", comment)] == []


def test_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text
    assert PROJECT["project"]["license"] == "Apache-2.0"


def test_every_package_is_in_the_wheel() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "tools"}
    assert packages <= set(PROJECT["tool"]["scikit-build"]["wheel"]["packages"])


def test_contributing_stays_short_and_leads_to_the_recipes() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert len(text.splitlines()) < 40
    for recipe in ("claim", "kernel", "baseline"):
        assert f"(docs/develop/{recipe}.md)" in text
        page = (ROOT / f"docs/develop/{recipe}.md").read_text()
        steps = re.findall(r"^(\d+)\. ", page, re.MULTILINE)
        assert steps == [str(number) for number in range(1, len(steps) + 1)] and len(steps) >= 5


def test_shell_scripts_parse() -> None:
    scripts = [ROOT / ".ci/run", ROOT / "tools/preflight.sh"]
    for script in scripts:
        subprocess.run(["bash", "-n", str(script)], check=True)
    assert "set -euo pipefail" in scripts[0].read_text()


def test_make_targets_are_tox_environments() -> None:
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    environments = re.findall(r"^\[testenv:(\w+)\]", (ROOT / "tox.ini").read_text(), re.MULTILINE)
    assert targets is not None
    assert set(targets[1].split()) == {"claims", "tests"} <= set(environments)


def test_readme_names_the_commands_and_the_place_of_results() -> None:
    readme = (Path(ROOT) / "README.md").read_text()
    for text in ("make claims", "make tests", "reports/runs/", "report.html", "results.json"):
        assert text in readme
