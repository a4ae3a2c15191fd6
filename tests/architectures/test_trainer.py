"""Training: it learns, it is deterministic, it survives kill -9, and it refuses what contradicts itself."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch  # noqa: E402

import architectures  # noqa: E402
from architectures import trainer as trainer_module  # noqa: E402
from architectures.batches import Batches  # noqa: E402
from architectures.checkpoint import CHECKPOINT_NAME, read_checkpoint  # noqa: E402
from architectures.errors import CheckpointError, DataError, DivergedError  # noqa: E402
from architectures.evaluation import evaluate  # noqa: E402
from architectures.folder import WEIGHTS_NAME  # noqa: E402
from architectures.metrics import METRICS_NAME, Metrics, plot_loss, read_metrics  # noqa: E402
from architectures.prepared import Prepared  # noqa: E402
from architectures.stories import Part  # noqa: E402
from engine.errors import FileError  # noqa: E402
from tests.architectures.small import all_names, random_model, small_geometry  # noqa: E402
from tests.architectures.texts import small_data  # noqa: E402
from tests.architectures.training import run, small_arguments  # noqa: E402
from tests.faults.surroundings import small_disk  # noqa: E402

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return small_data(tmp_path_factory.mktemp("text"))


def losses(folder: Path) -> list[tuple[int, float, float]]:
    return [(m["step"], m["loss"], m["gradient_norm"]) for m in read_metrics(folder) if "loss" in m]


@pytest.mark.parametrize("name", all_names())
def test_every_architecture_learns_and_leaves_a_model(tmp_path: Path, data: Prepared, name: str) -> None:
    result = run(tmp_path, data.folder, small_arguments(40, name, lr=1e-2))
    first, last = losses(tmp_path)[0][1], losses(tmp_path)[-1][1]
    assert abs(first - np.log(300)) < 0.3
    assert last < first - 1
    model = architectures.load(tmp_path)
    assert model.config.name == name and model.config.eos == data.eos
    test = evaluate(model, data.tokens[Part.TEST], 16)
    assert test.log_perplexity == pytest.approx(result["test_log_perplexity"], rel=1e-6)
    assert result["test_tokens"] == len(data.tokens[Part.TEST]) - 1
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert not (tmp_path / CHECKPOINT_NAME).exists()


def test_a_killed_run_goes_on_bit_for_bit(tmp_path: Path, data: Prepared) -> None:
    steps = 60
    run(tmp_path / "whole", data.folder, small_arguments(steps))
    command = [sys.executable, "-m", "tests.architectures.training", str(tmp_path / "killed")]
    command += [str(data.folder), str(steps)]
    child = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    checkpoint = tmp_path / "killed" / CHECKPOINT_NAME
    while not checkpoint.exists():
        assert child.poll() is None, "ended before its first checkpoint"
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not (tmp_path / "killed" / "result.json").exists()
    done = read_checkpoint(checkpoint).step
    assert 0 < done < steps
    run(tmp_path / "killed", data.folder, small_arguments(steps), resume=True)
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    assert [(tmp_path / folder / WEIGHTS_NAME).read_bytes() for folder in ("whole", "killed")].count(
        (tmp_path / "whole" / WEIGHTS_NAME).read_bytes()
    ) == 2
    assert [path.name for path in (tmp_path / "killed").glob(".*.tmp")] == []


def test_a_run_that_fills_its_disk_goes_on_once_there_is_room(tmp_path: Path, data: Prepared) -> None:
    arguments = small_arguments(12)
    run(tmp_path / "whole", data.folder, arguments)
    # Checkpoints come every four steps; a new one is written beside the last.
    with small_disk(tmp_path / "disk", 5 << 20) as disk:
        out = disk / "out"
        with pytest.raises(
            FileError, match=rf"{out}/{CHECKPOINT_NAME}: needs [\d,]+ bytes, the file system has"
        ):
            run(out, data.folder, arguments)
        assert read_checkpoint(out / CHECKPOINT_NAME).step == 4
        assert not list(out.glob(".*.tmp"))
        subprocess.run(["mount", "-o", "remount,size=32m", str(disk)], check=True)
        run(out, data.folder, arguments, resume=True)
        assert losses(out) == losses(tmp_path / "whole")
        assert (out / WEIGHTS_NAME).read_bytes() == (tmp_path / "whole" / WEIGHTS_NAME).read_bytes()


def test_a_line_of_metrics_that_finds_no_room_names_its_file(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16 << 10) as disk:
        metrics = Metrics(disk, 0)
        (disk / "full").write_bytes(bytes((12 << 10) - disk.joinpath(METRICS_NAME).stat().st_size))
        metrics.add(step=1, loss=1.0)
        with pytest.raises(FileError, match=f"{METRICS_NAME}: cannot be written: No space left"):
            for step in range(2, 1000):
                metrics.add(step=step, loss=1.0)
        # What was cut is left out: the run goes on from its checkpoint.
        assert read_metrics(disk)[0] == {"step": 1, "loss": 1.0}
        with pytest.raises(FileError, match=r"\.svg: needs [\d,]+ bytes|cannot be written"):
            plot_loss(disk, "full")
        assert not list(disk.glob(".*.tmp"))


def test_seeds_differ_and_equal_seeds_do_not(tmp_path: Path, data: Prepared) -> None:
    arguments = small_arguments(3)
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run(tmp_path / name, data.folder, replace(arguments, seed=seed))
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    assert losses(tmp_path / "a")[0] != losses(tmp_path / "c")[0]


def test_bf16_stays_near_f32(tmp_path: Path, data: Prepared) -> None:
    for precision in ("f32", "bf16"):
        run(tmp_path / precision, data.folder, small_arguments(3, precision=precision))
    exact, rounded = losses(tmp_path / "f32"), losses(tmp_path / "bf16")
    assert rounded != exact
    assert rounded[-1][1] == pytest.approx(exact[-1][1], rel=1e-2)


def _interrupted(folder: Path, data: Prepared, steps: int, **given: Any) -> None:
    """A run that stops after its first checkpoint."""

    class StopError(Exception):
        pass

    saved = trainer_module.save_checkpoint

    def save_and_stop(*arguments: Any) -> None:
        saved(*arguments)
        raise StopError

    with pytest.MonkeyPatch.context() as patch, pytest.raises(StopError):
        patch.setattr(trainer_module, "save_checkpoint", save_and_stop)
        run(folder, data.folder, small_arguments(steps, **given))


def test_a_run_is_not_continued_without_being_told_or_with_other_arguments(
    tmp_path: Path, data: Prepared
) -> None:
    out = tmp_path / "run"
    _interrupted(out, data, 10)
    with pytest.raises(CheckpointError, match="--resume"):
        run(out, data.folder, small_arguments(10))
    with pytest.raises(CheckpointError, match=r"steps: 10, now 12.*lr: 0\.001, now 0\.01"):
        run(out, data.folder, small_arguments(12, lr=1e-2), resume=True)
    (tmp_path / "other").mkdir()
    other = small_data(tmp_path / "other", vocab=301)
    with pytest.raises(CheckpointError, match="data: other text"):
        run(out, other.folder, small_arguments(10), resume=True)
    assert read_checkpoint(out / CHECKPOINT_NAME).step == 4


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text"])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, data: Prepared, damage: str) -> None:
    _interrupted(tmp_path, data, 10)
    path = tmp_path / CHECKPOINT_NAME
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[-100] ^= 4
    path.write_bytes({"cut": content[:-1], "empty": b"", "text": b"{}\n"}.get(damage, bytes(content)))
    with pytest.raises(CheckpointError, match=CHECKPOINT_NAME):
        run(tmp_path, data.folder, small_arguments(10), resume=True)


def test_a_finished_run_is_not_made_again(tmp_path: Path, data: Prepared) -> None:
    result = run(tmp_path, data.folder, small_arguments(3))
    before = (tmp_path / WEIGHTS_NAME).stat().st_mtime_ns
    assert run(tmp_path, data.folder, small_arguments(3), resume=True) == result
    assert (tmp_path / WEIGHTS_NAME).stat().st_mtime_ns == before


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_checkpoint(
    tmp_path: Path, data: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = Batches.at

    def spoil(self: Batches, step: int) -> Any:
        if step == 5:
            with torch.no_grad():
                spoilt[0].model.head.weight[0, 0] = float("nan")
        return at(self, step)

    spoilt: list[trainer_module.Trainer] = []
    initialise = trainer_module.Trainer.__init__

    def remember(self: trainer_module.Trainer, *arguments: Any) -> None:
        initialise(self, *arguments)
        spoilt.append(self)

    monkeypatch.setattr(trainer_module.Trainer, "__init__", remember)
    monkeypatch.setattr(Batches, "at", spoil)
    with pytest.raises(DivergedError, match=rf"loss is nan at step 6; .* is kept: .*{CHECKPOINT_NAME}"):
        run(tmp_path, data.folder, small_arguments(10))
    assert read_checkpoint(tmp_path / CHECKPOINT_NAME).step == 4
    assert not (tmp_path / "config.json").exists()


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path, data: Prepared) -> None:
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CheckpointError, match="another process trains in"):
            run(tmp_path, data.folder, small_arguments(3))


def test_two_gloo_processes_equal_one(tmp_path: Path, data: Prepared) -> None:
    steps = 20
    run(tmp_path / "one", data.folder, small_arguments(steps))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "tests.architectures.training", str(tmp_path / "two"), str(data.folder), str(steps)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert [step for step, *_ in two] == list(range(1, steps + 1))
    np.testing.assert_allclose([loss for _, loss, _ in two], [loss for _, loss, _ in one], rtol=1e-4)
    assert json.loads((tmp_path / "two" / "result.json").read_text())["processes"] == 2


def test_windows_of_an_epoch_cover_the_text_once_and_share_no_prediction() -> None:
    tokens = np.arange(101, dtype=np.uint16)
    batches = Batches(tokens, sequence=10, batch=2, seed=3)
    epoch = np.concatenate([batches.at(step) for step in range(5)])
    assert sorted(epoch[:, 1:].flatten().tolist()) == list(range(1, 101))
    assert (np.diff(epoch, axis=1) == 1).all()
    following = np.concatenate([batches.at(step) for step in range(5, 10)])
    assert not np.array_equal(following, epoch)
    assert sorted(following[:, 0].tolist()) == sorted(epoch[:, 0].tolist())


def test_too_short_a_text_for_a_step_is_refused() -> None:
    with pytest.raises(DataError, match="30 tokens are 2 windows of 10, a step needs 3"):
        Batches(np.zeros(30, dtype=np.uint16), 10, 3, 0)


@pytest.mark.parametrize("length", [2, 16, 17, 18, 24, 400])
def test_perplexity_counts_every_token_but_the_first_once(length: int) -> None:
    model = random_model(small_geometry("arch4"))
    tokens = np.random.default_rng(0).integers(0, 61, length).astype(np.uint16)
    seen = evaluate(model, tokens, 8)
    total = 0.0
    for start in range(0, length - 1, 8):
        ids = torch.from_numpy(tokens[start : start + 9].astype(np.int64))
        with torch.no_grad():
            logp = model(ids[None, :-1])[0].log_softmax(-1)
        total -= float(logp.gather(-1, ids[1:, None]).sum())
    assert seen.tokens == length - 1
    assert seen.log_perplexity == pytest.approx(total / (length - 1), rel=1e-5)
