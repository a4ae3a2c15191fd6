"""CMakeLists.txt: each option does what it says, and a wrong value stops the configuration with its name."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.build_engine import ROOT, BuildError, build_engine

pytestmark = [
    pytest.mark.no_sanitizer,
    pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed"),
]


def compile_flags(build_dir: Path, options: dict[str, str]) -> dict[str, list[str]]:
    """Source file name -> the flags that it is compiled with."""
    build_engine(build_dir, options, configure_only=True)
    commands = json.loads((build_dir / "compile_commands.json").read_text())
    return {Path(entry["file"]).name: shlex.split(entry["command"]) for entry in commands}


X86 = {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": "x86_64"}


def test_each_instruction_set_has_its_own_flags(tmp_path: Path) -> None:
    flags = compile_flags(tmp_path, X86)
    assert {"-O2", "-fno-tree-vectorize"} <= set(flags["kernels_scalar.c"])
    assert flags["kernels_scalar.c"].index("-O2") > max(
        i for i, flag in enumerate(flags["kernels_scalar.c"]) if flag != "-O2" and flag.startswith("-O")
    )
    assert {"-mavx2", "-mfma", "-mf16c"} <= set(flags["kernels_avx2.c"])
    assert {"-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq"} <= set(flags["kernels_avx512.c"])
    assert "-mavx512vnni" not in flags["kernels_avx512.c"]
    assert {"-mavx512f", "-mavx512vnni"} <= set(flags["kernels_avx512vnni.c"])
    assert [name for name in flags if "neon" in name] == []
    portable = [name for name in flags if "avx" not in name]
    assert [name for name in portable if any(flag.startswith("-mavx") for flag in flags[name])] == []
    assert [name for name in flags if "-ffp-contract=off" not in flags[name]] == []
    assert [name for name in flags if "-fvisibility=hidden" not in flags[name]] == []


def test_what_watches_or_spoils_is_compiled_twice(tmp_path: Path) -> None:
    build_engine(tmp_path, X86, configure_only=True)
    commands = json.loads((tmp_path / "compile_commands.json").read_text())
    flags: dict[str, list[list[str]]] = {}
    for entry in commands:
        words = shlex.split(entry["command"])
        flags.setdefault(Path(entry["file"]).name, []).append(words[: words.index("-o")])
    twice = {name: copies for name, copies in flags.items() if len(copies) == 2}
    kernels = {f"kernels_{isa}.c" for isa in ("scalar", "avx2", "avx512", "avx512vnni")}
    recorded = {"exec_matrix.c", "exec_batch_matrix.c", "record.c"} | kernels
    assert set(twice) == recorded | {"fault.c", "reader.c"}
    for name, copies in twice.items():
        macro = "-DCFLOW_RECORD" if name in recorded else "-DCFLOW_FAULTS"
        plain, changed = sorted(copies, key=len)
        # Apart from the macro the two differ in nothing, so that what is recorded, or fails, is what runs.
        assert [flag for flag in changed if flag != macro] == plain
        assert macro not in plain
    once = [flag for name, copies in flags.items() if name not in twice for flag in copies[0]]
    assert not {"-DCFLOW_RECORD", "-DCFLOW_FAULTS"} & set(once)


def test_arm_has_its_own_sources(tmp_path: Path) -> None:
    flags = compile_flags(tmp_path, {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": "aarch64"})
    assert [name for name in flags if "avx" in name] == []
    dotprod = {name for name in flags if any("dotprod" in flag for flag in flags[name])}
    assert dotprod == {"attention_neondot.c", "kernels_neondot.c"}, "the rest runs on every aarch64"


def test_other_processors_build_the_scalar_path(tmp_path: Path) -> None:
    flags = compile_flags(tmp_path, {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": "riscv64"})
    assert "kernels_scalar.c" in flags
    assert [name for name in flags if "avx" in name or "neon" in name] == []
    assert [name for name in flags if any(flag.startswith("-march") for flag in flags[name])] == []


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize(
    ("macro", "value", "message"),
    [
        ("__BYTE_ORDER__", "__ORDER_BIG_ENDIAN__", "big-endian processors are not supported"),
        ("__SIZEOF_POINTER__", "4", "32-bit processors are not supported"),
    ],
)
def test_processors_that_cannot_read_the_format_are_refused(macro: str, value: str, message: str) -> None:
    """As such a compiler would see it: the macro alone differs."""
    source = ROOT / "engine/src/kernels.c"
    command = ["gcc", "-E", f"-I{ROOT / 'engine/include'}", str(source)]
    assert subprocess.run(command, capture_output=True).returncode == 0
    refused = subprocess.run([*command, f"-U{macro}", f"-D{macro}={value}"], capture_output=True, text=True)
    assert refused.returncode != 0 and message in refused.stderr


def test_simde_emulates_avx512_on_avx2(tmp_path: Path) -> None:
    try:
        flags = compile_flags(tmp_path, {"CFLOW_SIMDE": "ON", **X86})
    except BuildError as error:
        assert "libsimde-dev" in str(error)
        pytest.skip("the SIMDe headers are not installed; the message says so")
    for name in ("kernels_avx512.c", "kernels_avx512vnni.c"):
        assert {"-mavx2", "-DCFLOW_SIMDE"} <= set(flags[name])
        assert [flag for flag in flags[name] if flag.startswith("-mavx512")] == []


def test_mutant_defines_its_macro_and_its_name(tmp_path: Path) -> None:
    flags = compile_flags(tmp_path, {"CFLOW_MUTANT": "drop_last_columns"})
    assert {"-DCFLOW_MUTANT_DROP_LAST_COLUMNS", '-DCFLOW_MUTANT="drop_last_columns"'} <= set(flags["error.c"])
    narrow = compile_flags(tmp_path, {"CFLOW_MUTANT": "unfused"})
    assert "-DCFLOW_MUTANT_UNFUSED" in narrow["exec_matrix.c"]
    assert [flag for flag in narrow["plan.c"] if "MUTANT" in flag] == [], "it would be compiled for nothing"
    plain = compile_flags(tmp_path, {})
    assert [flag for flag in plain["error.c"] if "MUTANT" in flag] == [], (
        "options must not outlive their build"
    )


def test_build_info_names_the_compiler(tmp_path: Path) -> None:
    flags = compile_flags(tmp_path, {"CFLOW_SANITIZE": "address,undefined"})
    (info,) = [flag for flag in flags["error.c"] if flag.startswith("-DCFLOW_BUILD_INFO=")]
    assert "-fsanitize=address,undefined" in info and "-ffp-contract=off" in info
    assert "-fsanitize=address,undefined" in flags["error.c"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"CFLOW_MUTANT": "drop_last_column"},
            "CFLOW_MUTANT='drop_last_column' is not a known mutant",
        ),
        ({"CFLOW_SANITIZE": "address;-O0"}, "CFLOW_SANITIZE='address;-O0'"),
        (
            {"CFLOW_SIMDE": "ON", "CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": "aarch64"},
            "CFLOW_SIMDE=ON needs an x86-64 target",
        ),
        ({"CFLOW_FUZZ": "ON", "CMAKE_C_COMPILER": "gcc"}, "CFLOW_FUZZ=ON needs clang"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(BuildError) as caught:
        build_engine(tmp_path, options, configure_only=True)
    assert message in " ".join(str(caught.value).split())


def test_unknown_mutant_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        build_engine(tmp_path, {"CFLOW_MUTANT": "no_such"}, configure_only=True)
    for name in ("drop_last_columns", "delay_off_by_one", "read_all_experts"):
        assert name in str(caught.value)


def test_a_forgotten_source_stops_the_configuration(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for part in ("cmake", "engine/src", "engine/include"):
        shutil.copytree(ROOT / part, tree / part)
    shutil.copy(ROOT / "CMakeLists.txt", tree)
    build_engine(tmp_path / "build", source_dir=tree, configure_only=True)
    (tree / "engine/src/stray.c").write_text("int stray;\n")
    with pytest.raises(BuildError, match=r"engine/src/stray\.c"):
        build_engine(tmp_path / "build", source_dir=tree, configure_only=True)


def test_build_error_shows_the_compiler_message(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no-such-compiler"):
        build_engine(tmp_path, compiler="no-such-compiler", configure_only=True)
