"""The generated references leave nothing out of what they describe."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from cli.main import app
from cli.registry import claims_path
from harness.kinds import PROFILE_NAMES
from harness.registry import load_registry
from reports.export import COLUMNS
from tools.build_engine import ROOT
from tools.docs.c_reference import sections
from tools.docs.check_tables import interval
from tools.docs.markdown import code, escaped
from tools.docs.pages import generated_pages, write_pages

HEADER = (ROOT / "engine/include/cflow.h").read_text(encoding="utf-8")
PAGES = generated_pages()


def test_every_command_and_option_is_in_the_reference() -> None:
    expected = []
    for path, command in _commands("cflow", typer.main.get_command(app)):
        expected.append(f"## {path}\n")
        for parameter in command.params:
            expected += [name for name in parameter.opts if parameter.param_type_name == "option"]
    assert len(expected) > 60
    assert [text for text in expected if text not in PAGES["cli.md"]] == []


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        yield from _commands(f"{path} {name}", child)


def test_every_command_shows_its_example() -> None:
    parts = re.split(r"^## ", PAGES["cli.md"], flags=re.MULTILINE)[1:]
    assert [part.splitlines()[0] for part in parts if "\n    cflow " not in part] == []


def test_every_field_of_the_results_is_in_the_reference() -> None:
    schema = json.loads((ROOT / "harness/schema/results-1.json").read_text())
    names = set(_property_names(schema))
    assert len(names) > 80
    assert [name for name in names if not re.search(rf"[`.]{name}`", PAGES["results.md"])] == []
    assert [name for name in schema["$defs"] if f"## {name}\n" not in PAGES["results.md"]] == []


def _property_names(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "properties" and "if" not in node:
                yield from value
            if key != "if":
                yield from _property_names(value)
    elif isinstance(node, list):
        for value in node:
            yield from _property_names(value)


def test_every_function_of_the_header_is_in_the_reference() -> None:
    body = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)
    functions = re.findall(r"^CFLOW_API [^;(]*?(cflow_\w+)\(", body, re.MULTILINE)
    assert len(functions) > 70
    documented = [one.name for section in sections(HEADER) for one in section.declarations]
    assert [name for name in functions if documented.count(name) != 1] == []
    assert [name for name in functions if f"### {name}\n" not in PAGES["c_api.md"]] == []


def test_every_constant_of_the_header_is_in_the_reference() -> None:
    body = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)
    constants = set(re.findall(r"(CFLOW_\w+)\s*=", body))
    found = [
        name for section in sections(HEADER) for one in section.declarations for name, *_ in one.constants
    ]
    assert len(constants) > 150
    assert sorted(name for name in found if name) == sorted(constants)


def test_comments_of_the_header_stand_with_what_they_describe() -> None:
    declarations = {one.name: one for section in sections(HEADER) for one in section.declarations}
    assert declarations["cflow_model_open"].comment.startswith("Opens and maps a file read-only.")
    # The comment of a group holds for each of it, up to the next empty line; one behind a line is its own.
    assert declarations["cflow_pool_create"].comment == ""
    assert declarations["cflow_threads_default"].comment.startswith("min(affinity mask")
    reads = dict((name, text) for name, _, text in declarations["cflow_option"].constants)
    assert reads["CFLOW_OPTION_PIN"].endswith("more workers than allowed CPUs")
    assert reads["CFLOW_OPTION_COUNT"] == ""


def test_every_check_stands_on_the_page_of_its_claim() -> None:
    registry = load_registry(claims_path())
    for claim in registry.claims:
        page = (ROOT / "docs/claims" / f"{claim.id}.md").read_text(encoding="utf-8")
        for part in ("statement", "checks"):
            assert f"{{include}} ../generated/{part}-{claim.id}.md" in page
        checks = registry.checks_of(claim.id)
        page = PAGES[f"checks-{claim.id}.md"]
        missing = [check.id for check in checks if f"| `{check.id}` |" not in page]
        assert missing == []
        named = re.findall(r"`(claims/test_\w+\.py)`", page.split("\n")[0])
        assert named and all((ROOT / name).is_file() for name in named)


def test_every_option_of_a_run_is_in_the_reference() -> None:
    declared = re.findall(r'group\.addoption\(\s*"(--[\w-]+)"', (ROOT / "claims/conftest.py").read_text())
    assert len(declared) > 8
    assert [name for name in declared if f"| `{name}" not in PAGES["options.md"]] == []
    assert "default quick" in PAGES["options.md"]


def test_every_exported_column_is_in_the_reference() -> None:
    for name, columns in COLUMNS.items():
        part = PAGES["export.md"].split(f"## {name}\n")[1].split("\n## ")[0]
        assert re.findall(r"^\| `(\w+)` ", part, re.MULTILINE) == list(columns)


def test_every_profile_is_in_the_reference() -> None:
    assert re.findall(r"^\| `(\w+)` ", PAGES["profiles.md"], re.MULTILINE) == list(PROFILE_NAMES)


def test_every_environment_variable_is_in_the_reference() -> None:
    page = (ROOT / "docs/reference/run.md").read_text(encoding="utf-8")
    for folder in ("engine", "baselines", "architectures"):
        for path in (ROOT / folder).rglob("*.py"):
            for name in re.findall(r'^ENVIRONMENT_VARIABLE = "(\w+)"', path.read_text(), re.MULTILINE):
                assert f"| `{name}` |" in page, path


def test_text_shows_as_it_is() -> None:
    assert escaped("a *b* [c] <d>\n e_f | g") == r"a \*b\* \[c\] \<d\> e\_f \| g"
    assert code("a | b") == r"`a \| b`"


def test_targets_in_words() -> None:
    inf = float("inf")
    found = [interval(ends) for ends in ((1.0, 1.0), (1.03, inf), (-inf, 1.02), (6.5, 8.2))]
    assert found == ["1", "1.03 or more", "1.02 or less", "6.5 to 8.2"]


def test_pages_are_written_once(tmp_path: Path) -> None:
    write_pages(tmp_path)
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    write_pages(tmp_path)
    assert times == {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert times.keys() == PAGES.keys()
