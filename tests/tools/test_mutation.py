"""The tool of mutation testing, on outcomes that were made up; mutmut itself is not run."""

from __future__ import annotations

import fcntl
import importlib
import json
import subprocess
from pathlib import Path

import pytest

from tools import mutation
from tools.mutation import (
    OUTCOME,
    ROOT,
    Change,
    change_of,
    copy_tree,
    exit_codes,
    function_of,
    main,
    names_to_run,
    outcome,
    read_table,
)

DIFF = """--- harness/shift.py
+++ harness/shift.py
@@ -1,3 +1,3 @@
 def shift_rank(n):
-    return n < 1
+    return n <= 1
"""


@pytest.mark.parametrize(
    ("mutant", "function"),
    [
        ("harness.shift.x_shift_rank__mutmut_3", "harness.shift.shift_rank"),
        ("harness.statistics.x__log_median__mutmut_12", "harness.statistics._log_median"),
        (
            "harness.statistics.xǁTimedSummaryǁto_json__mutmut_17",
            "harness.statistics.TimedSummary.to_json",
        ),
    ],
)
def test_mutants_are_named_by_their_function(mutant: str, function: str) -> None:
    assert function_of(mutant) == function


def test_a_change_is_one_line_for_another() -> None:
    change = change_of("harness.shift.x_shift_rank__mutmut_3", DIFF)
    assert change == Change("harness.shift.shift_rank", "return n < 1", "return n <= 1")


def test_survivors_that_nobody_judged_are_named() -> None:
    judged, other = Change("harness.shift.f", "a", "b"), Change("harness.shift.f", "a", "c")
    codes = {f"harness.shift.x_f__mutmut_{n}": code for n, code in enumerate((1, 0, 0, None, 33, -24))}
    names = list(codes)
    found = outcome(codes, {names[1]: judged, names[2]: other}, {judged: "equivalent"})
    counts = {"noticed": 2, "survived": 2, "not_run": 1, "no_test": 1}
    assert found["modules"] == {"harness.shift": counts}
    assert found["unjudged"] == [{"mutant": names[2], **vars(other)}]


def test_the_table_is_about_what_is_there() -> None:
    modules, tests, judged = read_table()
    assert all((ROOT / name).is_file() for name in (*modules, *tests))
    known = {name.removesuffix(".py").replace("/", ".") for name in modules}
    for change, why in judged.items():
        module, name = next(
            (m, change.function[len(m) + 1 :]) for m in known if change.function.startswith(f"{m}.")
        )
        place: object = importlib.import_module(module)
        for part in name.split("."):
            place = getattr(place, part)
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        assert change.removed in " ".join(line.strip() for line in source.splitlines())
        assert why.startswith(("equivalent: ", "tolerated: "))


def test_a_work_folder_gets_the_checkout_and_its_settings(tmp_path: Path) -> None:
    copy_tree(tmp_path, ["harness/shift.py"], ["tests/harness/test_shift.py"])
    assert (tmp_path / "harness" / "shift.py").read_bytes() == (ROOT / "harness" / "shift.py").read_bytes()
    settings = (tmp_path / "pyproject.toml").read_text(encoding="utf-8")
    assert 'only_mutate = ["harness/shift.py"]' in settings and settings.startswith("[build-system]")
    before = (tmp_path / "harness" / "shift.py").stat().st_mtime_ns
    copy_tree(tmp_path, ["harness/shift.py"], [])
    assert (tmp_path / "harness" / "shift.py").stat().st_mtime_ns == before


def test_a_report_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    meta = tmp_path / "mutants" / "harness" / "shift.py.meta"
    meta.parent.mkdir(parents=True)
    codes = {"harness.shift.x_shift__mutmut_1": 1, "harness.shift.x_shift__mutmut_2": None}
    meta.write_text(json.dumps({"exit_code_by_key": codes}), encoding="utf-8")
    assert exit_codes(tmp_path, ["harness/shift.py", "harness/other.py"]) == codes
    assert main(["--report", "--work", str(tmp_path), "harness/shift.py"]) == 0
    assert capsys.readouterr().out == "harness.shift: not_run 1, noticed 1\n"
    assert json.loads((tmp_path / OUTCOME).read_text(encoding="utf-8"))["unjudged"] == []


def test_a_run_that_leaves_mutants_out_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "copy_tree", lambda *_: None)
    done = subprocess.CompletedProcess([], 0, "")
    monkeypatch.setattr(mutation, "mutmut", lambda *_, **__: done)
    arguments = ["--work", str(tmp_path), "harness/shift.py"]
    assert main(arguments) == 1  # nothing at all has run
    meta = tmp_path / "mutants" / "harness" / "shift.py.meta"
    meta.parent.mkdir(parents=True)
    for code, ended in ((None, 1), (1, 0)):
        meta.write_text(json.dumps({"exit_code_by_key": {"harness.shift.x_shift__mutmut_1": code}}))
        assert main(arguments) == ended


def test_a_second_run_in_the_same_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / mutation.LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SystemExit) as ended:
            main(["--work", str(tmp_path)])
    assert ended.value.code == 2
    assert f"{tmp_path}: another run works there" in capsys.readouterr().err


def test_unknown_modules_are_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["harness/nothing.py"])
    assert ended.value.code == 2
    assert "found ['harness/nothing.py'], allowed: harness/statistics.py" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("codes", "modules", "again", "names"),
    [
        ({}, [], False, []),
        ({"harness.shift.x_a__mutmut_1": 1}, [], False, []),  # mutmut itself leaves out what has run
        ({}, ["harness/shift.py"], False, ["harness.shift.*"]),
        ({"a": 1, "b": None}, ["harness/shift.py"], False, ["b"]),
        ({"a": 1, "b": 0}, ["harness/shift.py"], False, ["harness.shift.*"]),
        ({"a": 1, "b": 0, "c": 33, "d": None}, [], True, ["b", "c"]),
        ({"a": 1, "d": None}, ["harness/shift.py"], True, None),
    ],
)
def test_a_stopped_run_goes_on_where_it_was(
    codes: dict[str, int | None], modules: list[str], again: bool, names: list[str] | None
) -> None:
    # mutmut runs what is named even when it has run: the names of all would begin anew each time.
    assert names_to_run(codes, modules, again=again) == names
