"""An npm that is none, and the baseline as it is installed on this machine."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from baselines import install
from baselines.llamacpp import LlamaCpp

# What it does comes from the file beside it; how it was called goes there, too.
_NPM = """#!{python}
import json, sys, time
from pathlib import Path
here = Path(__file__).parent
with (here / "calls").open("a") as calls:
    print(json.dumps(sys.argv[1:]), file=calls)
plan = json.loads((here / "plan.json").read_text())
prefix = Path(sys.argv[sys.argv.index("--prefix") + 1])
for name, text in plan["files"].items():
    path = prefix / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
time.sleep(plan["seconds"])
print(plan["message"], file=sys.stderr)
sys.exit(plan["status"])
"""


@dataclass(frozen=True)
class FakeNpm:
    """An npm on PATH that does what it is told."""

    folder: Path

    def will(self, *, files: dict[str, str], status: int = 0, message: str = "", seconds: float = 0) -> None:
        """From now on it writes these files below its prefix, waits, prints `message` to stderr and exits."""
        plan = {"files": files, "status": status, "message": message, "seconds": seconds}
        (self.folder / "plan.json").write_text(json.dumps(plan))

    def calls(self) -> list[list[str]]:
        """The arguments of each call so far."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def package_files(version: str | None = None, library: str = "libllama.v0.5.0.so") -> dict[str, str]:
    """Files of llama.cpp's package, with libraries that hold nothing."""
    recipe = install.LLAMACPP_RECIPE
    return {
        str(recipe.manifest): json.dumps({"version": version or recipe.version}),
        str(recipe.libraries / library): "",
    }


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the baselines, not made yet."""
    path = tmp_path / "cache" / "baselines"
    monkeypatch.setenv(install.ENVIRONMENT_VARIABLE, str(path))
    return path


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNpm:
    """A fake npm that installs well unless told otherwise."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "npm"
    program.write_text(_NPM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    fake = FakeNpm(folder)
    fake.will(files=package_files())
    return fake


@pytest.fixture(scope="session")
def llamacpp_installed() -> None:
    """Skips a test where llama.cpp is not installed."""
    if install.installed(install.LLAMACPP) is None:
        pytest.skip("llama.cpp is not installed: run `cflow baseline install llama.cpp`")


@pytest.fixture
def llamacpp(llamacpp_installed: None) -> LlamaCpp:
    """The real baseline; the caller closes it."""
    return LlamaCpp()
