"""`cflow synth`, `convert` and `inspect`."""

import json
import re
from pathlib import Path

import pytest

from engine.format import read_file
from engine.geometry import Geometry
from tests.cli.conftest import Cflow
from tests.engine.checkpoints import TINY, CheckpointFolder
from tests.engine.gguf_files import RELATIVES, LlamaGguf


def test_synth_by_name_and_numbers(cflow: Cflow, tmp_path: Path) -> None:
    target = tmp_path / "m.cflow"
    outcome = cflow("synth", target, "--geometry", "tiny_arch4,layers=2", "--type", "q8_0", "--json")
    assert outcome.code == 0
    done = json.loads(outcome.out)
    shape = Geometry.parse("tiny_arch4,layers=2")
    assert done["parameters"] == shape.parameters
    assert done["file_bytes"] == target.stat().st_size
    assert read_file(target).hparams == shape.hyperparameters()


def test_synth_is_seeded(cflow: Cflow, tmp_path: Path) -> None:
    def written(name: str, seed: int) -> bytes:
        cflow("synth", tmp_path / name, "--geometry", "d=64,layers=1,vocab=100", "--seed", seed)
        return (tmp_path / name).read_bytes()

    assert written("a", 1) == written("b", 1)
    assert written("a", 1) != written("c", 2)


def test_synth_writes_the_same_weights_as_gguf(cflow: Cflow, tmp_path: Path) -> None:
    target, gguf, back = (tmp_path / name for name in ("m.cflow", "m.gguf", "back.cflow"))
    geometry = "tiny_moe,norm_topk=1"
    outcome = cflow("synth", target, "--geometry", geometry, "--gguf", gguf)
    assert outcome.code == 0
    assert "architecture llama" in outcome.out
    done = json.loads(cflow("synth", target, "--geometry", geometry, "--gguf", gguf, "--json").out)
    assert done["gguf"]["file_bytes"] == gguf.stat().st_size
    assert cflow("convert", gguf, back).code == 0
    assert read_file(back).tensors == read_file(target).tensors


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--geometry", "tiny_arch4", "--gguf", "m.gguf"], "--geometry tiny_arch4: no GGUF architecture"),
        (["--geometry", "nonsense"], "geometry 'nonsense' is unknown; known are arch1"),
        (["--geometry", "d=500,layers=1"], "d_model is 500, must be a multiple of 32"),
        (["--geometry", "tiny_arch4", "--type", "q5_0"], "type 'q5_0' is unknown"),
        (["--geometry", "tiny_arch4", "--tile-rows", "10"], "tile_rows is 10"),
        (["--geometry", "d=131072,layers=60,ffn=524288"], "bytes free"),
    ],
)
def test_synth_refuses_and_leaves_nothing(
    cflow: Cflow, tmp_path: Path, arguments: list[str], fault: str
) -> None:
    outcome = cflow("synth", tmp_path / "m.cflow", *arguments)
    assert outcome.code == 2
    assert fault in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_unwritable_targets(cflow: Cflow, tmp_path: Path) -> None:
    source = LlamaGguf().write(tmp_path / "m.gguf")
    for arguments in (
        ("synth", tmp_path / "absent" / "m.cflow", "--geometry", "tiny_arch4"),
        ("convert", source, tmp_path / "absent" / "m.cflow"),
    ):
        outcome = cflow(*arguments)
        assert outcome.code == 2
        assert "absent" in outcome.err


def test_convert_quantises_on_request(cflow: Cflow, tmp_path: Path) -> None:
    from engine.enums import Role, Type

    source = LlamaGguf(kind=Type.F16).write(tmp_path / "m.gguf")
    target = tmp_path / "m.cflow"
    outcome = cflow("convert", source, target, "--quantize", "q4_0", "--tile-rows", 32, "--tile-cols", 64)
    assert outcome.code == 0
    assert "test model" in outcome.out
    file = read_file(target)
    assert (file.hparams.tile_rows, file.hparams.tile_cols) == (32, 64)
    entry = file.entry(Role.FFN_DOWN, 0)
    assert entry is not None
    assert entry.spec.kind is Type.Q4_0


def test_convert_prints_the_name_that_it_wrote(cflow: Cflow, tmp_path: Path) -> None:
    """A stranger's file may have any: control characters do not go into ours, nor to the terminal."""
    model = LlamaGguf()
    model.metadata["general.name"] = "a\x1b[2Jb"
    target = tmp_path / "m.cflow"
    outcome = cflow("convert", model.write(tmp_path / "m.gguf"), target)
    assert outcome.code == 0 and f"{target}: a[2Jb, architecture llama" in outcome.out
    assert "\x1b" not in outcome.out + outcome.err
    assert read_file(target).name == "a[2Jb"


def test_convert_notes_a_missing_tokenizer(cflow: Cflow, tmp_path: Path) -> None:
    model = LlamaGguf()
    model.metadata["tokenizer.ggml.model"] = "llama"
    outcome = cflow("convert", model.write(tmp_path / "m.gguf"), tmp_path / "m.cflow")
    assert outcome.code == 0
    assert "no tokenizer is carried along" in outcome.err
    assert "--token-ids" in outcome.err


@pytest.mark.parametrize(("quantize", "fault"), [("q5_0", "'q5_0' is unknown"), ("f16", "quantize is f16")])
def test_convert_refuses_and_leaves_nothing(cflow: Cflow, tmp_path: Path, quantize: str, fault: str) -> None:
    source = LlamaGguf().write(tmp_path / "m.gguf")
    outcome = cflow("convert", source, tmp_path / "m.cflow", "--quantize", quantize)
    assert outcome.code == 2
    assert fault in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_convert_of_something_else(cflow: Cflow, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"not a model at all")
    outcome = cflow("convert", tmp_path / "m.gguf", tmp_path / "m.cflow")
    assert outcome.code == 2
    assert "not a GGUF file" in outcome.err


def test_convert_back_to_gguf(cflow: Cflow, tmp_path: Path) -> None:
    source, model, back = (tmp_path / name for name in ("m.gguf", "m.cflow", "back.gguf"))
    LlamaGguf(**RELATIVES["qwen3moe"]).write(source)
    assert cflow("convert", source, model).code == 0
    outcome = cflow("convert", model, back)
    assert (outcome.code, "architecture qwen3moe" in outcome.out) == (0, True)
    assert "tokenizer is not carried along into GGUF" in outcome.err
    assert cflow("convert", back, tmp_path / "again.cflow").code == 0
    assert read_file(model).hparams.layers == read_file(tmp_path / "again.cflow").hparams.layers


def test_convert_to_a_folder_for_other_engines(cflow: Cflow, tmp_path: Path, moe: Path) -> None:
    model, folder = tmp_path / "m.cflow", tmp_path / "m"
    assert cflow("synth", model, "--geometry", "tiny_dense").code == 0
    outcome = cflow("convert", model, folder, "--hf", "int8")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"{folder}: LlamaForCausalLM in int8, " in outcome.out
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert cflow("convert", model, folder, "--hf", "bf16").code == 0
    outcome = cflow("convert", moe, tmp_path / "moe", "--hf", "bf16")
    assert (outcome.code, "only dense models are exported" in outcome.err) == (2, True)
    outcome = cflow("convert", model, tmp_path / "n", "--hf", "bf16", "--tile-rows", 32)
    assert (outcome.code, "--hf: takes no option beside it" in outcome.err) == (2, True)
    assert cflow("convert", model, folder, "--hf", "fp8").code == 2
    assert not (tmp_path / "moe").exists() and not (tmp_path / "n").exists()


def test_convert_to_gguf_refuses_and_leaves_nothing(cflow: Cflow, tmp_path: Path, moe: Path) -> None:
    target = tmp_path / "m.gguf"
    outcome = cflow("convert", moe, target)
    assert outcome.code == 2
    assert "no GGUF architecture describes this model" in outcome.err
    outcome = cflow("convert", moe, target, "--quantize", "q4_0", "--tile-cols", 64)
    assert outcome.code == 2
    assert "--quantize, --tile-cols: a GGUF file takes the blocks" in outcome.err
    outcome = cflow("convert", LlamaGguf().write(tmp_path / "s.gguf"), target)
    assert outcome.code == 2
    assert "both are GGUF" in outcome.err
    assert not target.exists()


def test_inspect_json(cflow: Cflow, moe: Path) -> None:
    shape = Geometry.named("tiny_arch2_4_combined")
    found = json.loads(cflow("inspect", moe, "--json").out)
    assert found["params"]["layers"] == shape.layers
    assert found["params"]["activation"] == "geglu"
    assert found["params"]["bos"] is None
    assert found["params"]["rms_eps"] == pytest.approx(1e-6)
    assert found["file_bytes"] == moe.stat().st_size
    assert found["tokenizer"] is False
    assert found["verified"] is False
    matrices = [tensor for tensor in found["tensors"] if tensor["columns"] > 1]
    assert sum(sum(t["rows"]) * t["columns"] for t in matrices) == shape.parameters
    assert {tensor["type"] for tensor in matrices} == {"q4_0", "f32"}


@pytest.mark.parametrize(
    ("relative", "found"),
    [
        ("llama with experts", []),
        ("qwen2", ["attn_qkv_bias"]),
        ("qwen3moe", ["attn_k_norm", "attn_q_norm"]),
    ],
)
def test_optional_tensors_are_told(cflow: Cflow, tmp_path: Path, relative: str, found: list[str]) -> None:
    model = LlamaGguf(**RELATIVES[relative])
    target = tmp_path / "m.cflow"
    outcome = cflow("convert", model.write(tmp_path / "m.gguf"), target)
    assert f"architecture {model.architecture}" in outcome.out
    assert json.loads(cflow("inspect", target, "--json").out)["optional_tensors"] == found
    text = cflow("inspect", target, "--tensors", "--verify").out
    assert f"optional tensors   {', '.join(found) or 'none'}" in text
    assert all(f"blk.1.{name} " in text for name in found)


def test_inspect_prints_parameters_and_tensors(cflow: Cflow, llama: Path) -> None:
    outcome = cflow("inspect", llama, "--tensors", "--verify")
    assert outcome.code == 0
    for text in (
        "test model",
        "d_model",
        "64",
        "tokenizer",
        "yes",
        "blk.1.ffn_gate_up",
        "96 + 96 x 64",
        "finite",
    ):
        assert text in outcome.out


def test_inspect_verify_finds_a_flipped_bit(cflow: Cflow, moe: Path, tmp_path: Path) -> None:
    entry = read_file(moe).tensors[-1]
    data = bytearray(moe.read_bytes())
    data[entry.offset + entry.length - 1] ^= 1
    bad = tmp_path / "bad.cflow"
    bad.write_bytes(data)
    assert cflow("inspect", bad).code == 0
    outcome = cflow("inspect", bad, "--verify")
    assert outcome.code == 2
    assert entry.spec.name in outcome.err


@pytest.mark.parametrize(
    ("target", "gguf", "fault"),
    [
        ("m.cflow", "m.cflow", "must end in .gguf"),
        ("m.cflow", "absent/m.gguf", "a folder that exists"),
        ("m.gguf", "n.gguf", "is written as .cflow"),
    ],
)
def test_synth_looks_at_both_targets_before_it_writes(
    cflow: Cflow, tmp_path: Path, target: str, gguf: str, fault: str
) -> None:
    outcome = cflow("synth", tmp_path / target, "--geometry", "tiny_dense", "--gguf", tmp_path / gguf)
    assert outcome.code == 2
    assert fault in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_convert_tells_gguf_by_any_case(cflow: Cflow, tmp_path: Path) -> None:
    source, target = tmp_path / "m.cflow", tmp_path / "m.GGUF"
    assert cflow("synth", source, "--geometry", "tiny_dense").code == 0
    assert cflow("convert", source, target).code == 0
    assert target.read_bytes()[:4] == b"GGUF"
    outcome = cflow("convert", target, tmp_path / "n.gguf")
    assert (outcome.code, "both are GGUF" in outcome.err) == (2, True)


def test_convert_to_stages_and_back(cflow: Cflow, tmp_path: Path, llama: Path) -> None:
    staged, by_kind, back, gguf = (tmp_path / n for n in ("m.vflow", "k.vflow", "back.cflow", "m.gguf"))
    assert cflow("convert", llama, staged).code == 0
    assert cflow("convert", staged, by_kind, "--stages", "kind").code == 0
    assert cflow("convert", by_kind, back).code == 0
    assert back.read_bytes() == llama.read_bytes()
    assert cflow("convert", by_kind, gguf).code == 0
    found = {
        path: json.loads(cflow("inspect", path, "--json").out)["order"] for path in (llama, staged, by_kind)
    }
    assert found == {llama: "layer", staged: "phase", by_kind: "kind"}
    assert "stage-major, by phase" in cflow("inspect", staged, "--verify").out
    assert cflow("convert", gguf, tmp_path / "direct.vflow", "--stages", "kind").code == 0
    assert read_file(tmp_path / "direct.vflow").tensors == read_file(by_kind).tensors


@pytest.mark.parametrize(
    ("target", "options", "fault"),
    [
        ("m.cflow", ["--stages", "kind"], "only a .vflow file has stages"),
        ("m.vflow", ["--stages", "layer"], "layer"),
        ("m.vflow", ["--quantize", "q8_0", "--tile-rows", "32"], "--quantize, --tile-rows: only for a GGUF"),
    ],
)
def test_convert_to_stages_refuses_and_leaves_nothing(
    cflow: Cflow, tmp_path: Path, moe: Path, target: str, options: list[str], fault: str
) -> None:
    outcome = cflow("convert", moe, tmp_path / target, *options)
    assert outcome.code == 2
    assert fault in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_convert_of_a_damaged_model_names_the_tensor(cflow: Cflow, tmp_path: Path, moe: Path) -> None:
    entry = read_file(moe).tensors[5]
    data = bytearray(moe.read_bytes())
    data[entry.offset] ^= 1
    (tmp_path / "bad.cflow").write_bytes(data)
    outcome = cflow("convert", tmp_path / "bad.cflow", tmp_path / "m.vflow")
    assert (outcome.code, entry.spec.name in outcome.err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.cflow"]


def test_synth_writes_stages(cflow: Cflow, tmp_path: Path) -> None:
    geometry = ("--geometry", "tiny_arch2_4_combined", "--seed", 3)
    for name, stages in (("m.cflow", ()), ("p.vflow", ()), ("k.vflow", ("--stages", "kind"))):
        assert cflow("synth", tmp_path / name, *geometry, *stages).code == 0
    for name, stages in (("p.vflow", ()), ("k.vflow", ("--stages", "kind"))):
        assert cflow("convert", tmp_path / "m.cflow", tmp_path / "again.vflow", *stages).code == 0
        assert (tmp_path / "again.vflow").read_bytes() == (tmp_path / name).read_bytes()
    outcome = cflow("synth", tmp_path / "n.cflow", *geometry, "--stages", "kind")
    assert (outcome.code, "only a .vflow file has stages" in outcome.err) == (2, True)


def test_convert_a_trained_model(cflow: Cflow, tmp_path: Path) -> None:
    folder = CheckpointFolder(TINY["arch4"], "arch4").write(tmp_path / "trained")
    target = tmp_path / "m.vflow"
    outcome = cflow("convert", folder, target, "--type", "q4_0,head=f32", "--stages", "kind")
    assert outcome.code == 0
    assert re.search(r"m.vflow: arch4, \d+ tensors", outcome.out)
    assert re.search(
        r"\n  expert +q4_0 error 0\.\d+ of the norm, at most 0\.\d+ in blocks\.\d\.moe\.", outcome.out
    )
    assert re.search(r"\n  head +f32 +exact\n", outcome.out)
    assert cflow("generate", "-m", target, "-p", "The tree", "-n", 2).code == 0


@pytest.mark.parametrize(
    ("target", "options", "fault"),
    [
        (
            "m.cflow",
            ["--type", "router=f32"],
            "'router=f32' must be a type, or CLASS=TYPE with a class of attention",
        ),
        ("m.cflow", ["--quantize", "q4_0"], "--quantize: only for a GGUF source"),
        ("m.gguf", [], "a trained model becomes .cflow or .vflow first"),
        ("m.cflow", ["--tile-rows", "10"], "tile_rows is 10"),
    ],
)
def test_convert_a_trained_model_refuses(
    cflow: Cflow, tmp_path: Path, target: str, options: list[str], fault: str
) -> None:
    folder = CheckpointFolder(TINY["arch4"]).write(tmp_path / "trained")
    outcome = cflow("convert", folder, tmp_path / target, *options)
    assert outcome.code == 2
    assert fault in outcome.err
    assert list(tmp_path.iterdir()) == [folder]


def test_type_is_for_trained_models(cflow: Cflow, tmp_path: Path, llama: Path) -> None:
    outcome = cflow("convert", llama, tmp_path / "m.cflow", "--type", "q4_0")
    assert outcome.code == 2
    assert "--type: only for the folder of a trained model" in outcome.err
