"""The tables of a run."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest

from harness.errors import ResultsError
from harness.results import Results, headline
from reports import export

Data = dict[str, Any]
Load = Callable[[Data], Results]

needs_pyarrow = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="needs pyarrow: parquet is written through it"
)


@pytest.fixture
def results(data: Data, load: Load) -> Results:
    """The sample."""
    return load(data)


def test_every_table_has_the_documented_columns_and_no_other(results: Results) -> None:
    found = export.tables(results)
    assert list(found) == [*export.COLUMNS, "columns"]
    for name, meanings in export.COLUMNS.items():
        assert list(found[name].columns) == list(meanings), name
        assert all(meanings.values())
    assert len(found["columns"]) == sum(len(named) for named in export.COLUMNS.values())


def test_a_row_is_one_thing(data: Data, results: Results) -> None:
    found = export.tables(results)
    assert len(found["checks"]) == len(results.registry.checks)
    cells = [(record["id"], cell["label"]) for record in data["checks"] for cell in record["cells"]]
    assert sorted(zip(found["cells"]["check"], found["cells"]["cell"], strict=True)) == sorted(cells)
    samples = sum(
        len(one["samples"])
        for record in data["checks"]
        for cell in record["cells"]
        for one in (cell["evidence"] or {}).get("rounds", ())
    )
    assert len(found["rounds"]) == samples
    for name in ("cells", "rounds", "observations"):
        keys = {"cells": 2, "rounds": 4, "observations": 4}[name]
        assert not found[name].duplicated(list(found[name].columns[:keys])).any(), name


def test_figures_are_those_of_the_file(results: Results) -> None:
    found = export.tables(results)
    for record in results.checks:
        head = headline(record)
        row = found["cells"].query("check == @record['id'] and cell == @head['label']").iloc[0]
        for field in ("value", "low", "high", "paper"):
            assert row[field] == head[field] or (pandas.isna(row[field]) and head[field] is None)
        assert row["verdict"] == head["verdict"] or head["verdict"] is None


def test_observations_keep_numbers_and_texts_apart(results: Results) -> None:
    observed = export.tables(results)["observations"]
    texts = observed[observed["text"].notna()]
    assert set(texts["check"]) == {"3.agreement"} and list(texts["text"][:2]) == ["a1", "b2"]
    assert observed["number"].notna().sum() + len(texts) == len(observed)
    single = observed[observed["name"] == "routed_bytes"].iloc[0]
    assert pandas.isna(single["item"]) and single["number"] == 25_165_824


@pytest.mark.parametrize("wanted", ["csv", pytest.param("parquet", marks=needs_pyarrow)])
def test_what_is_written_reads_back_the_same(results: Results, tmp_path: Path, wanted: export.Format) -> None:
    folder = tmp_path / "deep" / "tables"
    written = export.export(results, wanted, folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{one.name}.{wanted}" for one in written)
    for one in written:
        made = export.tables(results)[one.name]
        read = pandas.read_csv(one.path) if wanted == "csv" else pandas.read_parquet(one.path)
        assert list(read.columns) == list(made.columns) == list(one.columns)
        assert len(read) == len(made) == one.rows
        for column in made.columns:
            if made[column].notna().all() and pandas.api.types.is_numeric_dtype(made[column]):
                assert read[column].tolist() == made[column].tolist(), column


def test_a_run_without_records_gives_empty_tables_with_headings(
    data: Data, load: Load, tmp_path: Path
) -> None:
    data["checks"] = []
    for one in export.export(load(data), "csv", tmp_path / "out"):
        assert list(pandas.read_csv(one.path).columns) == list(one.columns)
        assert (one.rows == 0) is (one.name in ("cells", "rounds", "observations"))


def test_parquet_without_pyarrow_is_refused_before_anything_is_written(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ResultsError, match="pip install pyarrow"):
        export.export(results, "parquet", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert export.missing_package("csv") == ""
