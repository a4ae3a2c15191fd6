"""Runs made elsewhere: kept as they are, not made again, and refused when they are of another series."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from architectures import quality
from architectures.batches import Batches
from architectures.errors import CheckpointError
from architectures.quality import export, measure, series
from architectures.quality_file import SUMMARY_NAME, Known, Run, Settings, shared_by_runs
from architectures.quality_known import read_known
from architectures.stories import Part
from tests.architectures.texts import small_data

SETTINGS = Settings("tiny", 3, "f32")


def test_a_series_takes_over_what_another_machine_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from tests.architectures.small_series import small_run

    data = small_data(tmp_path)
    there, here = tmp_path / "there", tmp_path / "here"

    def made(out: Path, arms: dict[str, int], known: Path | None = None) -> dict[str, Any]:
        monkeypatch.setattr(quality, "SEEDS", arms)
        return measure(out, data, Settings("small_test", 3, "f32"), work=small_run, known=known)

    made(there, {"arch4": 1, "arch1": 1})
    path = there / SUMMARY_NAME
    content = json.loads(path.read_text())
    # As from another CPU: figures that no run here would give.
    content["runs"][0].update(cpu="another", test_top1=0.125)
    content["runs"][1].update(diverged="loss is nan at step 2", definition=None)
    content["samples"] = [{**content["samples"][0], "text": "Once more"}]
    path.write_text(json.dumps(content))
    here.mkdir()
    arms = {"arch4": 1, "arch5": 1, "arch1": 1, "arch3": 1}
    found = made(here, arms, path)
    assert [row["architecture"] for row in found["runs"]] == ["arch4", "arch5", "arch1", "arch3"]
    assert [found["runs"][0], found["runs"][2]] == content["runs"]
    assert sorted(folder.name for folder in (here / "runs").iterdir()) == ["arch3-0", "arch5-0"]
    assert [row["architecture"] for row in found["samples"]] == ["arch4", "arch5", "arch3"]
    assert found["samples"][0]["text"] == "Once more"
    (here / "data").symlink_to(data.folder)
    assert export(here, tmp_path / "all.json", path) == found == json.loads((here / SUMMARY_NAME).read_text())
    # Nothing of the other machine's is left to those who do not name it.
    assert export(here, tmp_path / "own.json")["runs"] == [found["runs"][1], found["runs"][3]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c["data"].update({"train.bin": "0"}), "of another series: data is .*, here "),
        (lambda c: c["arguments"].update(lr=0.1), "of another series: arguments is .*0.1.*, here "),
        (lambda c: c.update(steps=4), "of another series: steps is 4, here 3"),
        (lambda c: c.update(version=2), "of another series: version is 2, here 3"),
        (lambda c: c["runs"][0].update(data_order="0"), "arch4-0: data_order is '0', here "),
        (lambda c: c["runs"][0].update(seed=7), "arch4-7 is not of the series"),
        (lambda c: c["runs"].append(c["runs"][0]), "is not valid: .*a run is listed twice"),
        (lambda c: c["runs"][0].pop("diverged"), "is not valid: KeyError.*diverged"),
        (
            lambda c: c["runs"][0].update(test_log_perplexity=None),
            "is not valid: .*test_log_perplexity is None",
        ),
        (lambda c: c.pop("samples"), "is not valid: KeyError.*samples"),
        (lambda c: c.update(runs=3), "is not valid: TypeError"),
    ],
)
def test_runs_of_another_series_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    data = small_data(tmp_path)
    arguments = SETTINGS.arguments(Run("arch4", 0))
    batches = Batches(data.tokens[Part.TRAIN], arguments.sequence, arguments.batch, 0)
    row = {
        "architecture": "arch4",
        "seed": 0,
        "data_order": batches.order_hash(arguments.steps),
        "diverged": None,
        "test_log_perplexity": 5.5,
    }
    content = {**shared_by_runs(data, SETTINGS), "samples": [], "runs": [row]}
    path = tmp_path / "known.json"
    path.write_text(json.dumps(content))
    assert read_known(path, data, SETTINGS, series()) == Known({Run("arch4", 0): row}, {})
    changed = json.loads(path.read_text())
    change(changed)
    path.write_text(json.dumps(changed))
    with pytest.raises(CheckpointError, match=rf"known\.json:? {said}"):
        measure(tmp_path / "new", data, SETTINGS, known=path)
    assert not (tmp_path / "new").exists()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    data = small_data(tmp_path)
    with pytest.raises(CheckpointError, match=r"none\.json cannot be read"):
        measure(tmp_path / "out", data, SETTINGS, known=tmp_path / "none.json")
