"""Installing a baseline: complete or absent, once, and a clear sentence when it fails."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from baselines import install
from baselines.errors import BaselineError
from tests.baselines.conftest import FakeNpm, package_files

NAME = install.LLAMACPP
MANIFEST = str(install.LLAMACPP_RECIPE.manifest)


def entries(folder: Path) -> set[str]:
    """What lies in the cache folder, but for the lock."""
    return {path.name for path in folder.iterdir()} - {f".{NAME}.lock"}


def test_installs_the_pinned_version(cache: Path, npm: FakeNpm) -> None:
    assert install.installed(NAME) is None
    path, fetched = install.install(NAME)
    assert (path, fetched) == (cache / NAME, True)
    assert install.installed(NAME) == path
    assert install.libraries(NAME) == path / "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
    assert entries(cache) == {NAME}
    [call] = npm.calls()
    assert call[-1] == "@node-llama-cpp/linux-x64@3.22.1"
    assert {"-E", "--ignore-scripts", "--no-audit", "--no-fund"} <= set(call)


def test_a_second_time_fetches_nothing(cache: Path, npm: FakeNpm) -> None:
    first, _ = install.install(NAME)
    assert install.install(NAME) == (first, False)
    assert len(npm.calls()) == 1


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        ("npm error code ENOTFOUND\nnpm error network request", r"cannot reach its registry \(ENOTFOUND\)"),
        ("npm error code EAI_AGAIN", r"cannot reach its registry \(EAI_AGAIN\)"),
        ("npm error code ENOSPC", r"no space is left on the disk"),
        ("npm error code EBADPLATFORM", r"x86-64 Linux"),
        ("npm error code E404\nnpm error 404 not found", r"npm failed with status 7: npm error code E404"),
        ("", r"npm failed with status 7: it printed nothing"),
    ],
)
def test_a_failure_is_one_sentence_and_leaves_nothing(
    cache: Path, npm: FakeNpm, printed: str, sentence: str
) -> None:
    npm.will(files=package_files(), status=7, message=printed)
    with pytest.raises(BaselineError, match=sentence) as raised:
        install.install(NAME)
    assert "\n" not in str(raised.value)
    assert raised.value.log == tuple(printed.splitlines())
    assert entries(cache) == set()
    assert install.installed(NAME) is None


@pytest.mark.parametrize(
    "files",
    [
        {},
        {MANIFEST: '{"version": "3.22.1"}'},
        {**package_files(), MANIFEST: "not JSON"},
        {**package_files(), MANIFEST: "[]"},
        package_files(version="3.22.2"),
        package_files(library="readme.txt"),
    ],
)
def test_an_incomplete_package_is_no_success(cache: Path, npm: FakeNpm, files: dict[str, str]) -> None:
    npm.will(files=files)
    with pytest.raises(BaselineError, match=r"@node-llama-cpp/linux-x64@3\.22\.1 is not complete"):
        install.install(NAME)
    assert entries(cache) == set()


def test_an_npm_that_hangs_is_ended(cache: Path, npm: FakeNpm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baselines.npm.TIMEOUT_S", 1)
    npm.will(files=package_files(), seconds=3600)
    with pytest.raises(BaselineError, match=r"npm took longer than 1 s"):
        install.install(NAME)
    assert entries(cache) == set()


def test_installations_at_once_fetch_once(cache: Path, npm: FakeNpm) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: install.install(NAME), range(4)))
    assert sorted(fetched for _, fetched in results) == [False, False, False, True]
    assert {path for path, _ in results} == {cache / NAME}
    assert len(npm.calls()) == 1


def test_what_a_killed_try_left_is_removed(cache: Path, npm: FakeNpm) -> None:
    left = cache / f".{NAME}.abc.tmp" / "new"
    left.mkdir(parents=True)
    (left / "part").write_text("half")
    other = cache / ".other.abc.tmp"
    other.mkdir()
    install.install(NAME)
    assert entries(cache) == {NAME, other.name}


def test_another_version_is_replaced(cache: Path, npm: FakeNpm) -> None:
    npm.will(files=package_files())
    path, _ = install.install(NAME)
    (path / MANIFEST).write_text('{"version": "3.0.0"}')
    (path / "old").write_text("")
    assert install.installed(NAME) is None
    assert install.install(NAME) == (path, True)
    assert not (path / "old").exists()
    assert entries(cache) == {NAME}


def test_a_failed_replacement_keeps_the_old_one(cache: Path, npm: FakeNpm) -> None:
    path, _ = install.install(NAME)
    (path / MANIFEST).write_text('{"version": "3.0.0"}')
    npm.will(files={}, status=1, message="npm error code ENOTFOUND")
    with pytest.raises(BaselineError):
        install.install(NAME)
    assert (path / MANIFEST).read_text() == '{"version": "3.0.0"}'
    assert entries(cache) == {NAME}


def test_without_npm_the_message_names_it(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("npm") is None
    with pytest.raises(BaselineError, match=r"npm, which fetches it, is missing"):
        install.install(NAME)
    assert entries(cache) == set()


def test_a_cache_that_cannot_be_made_is_named(cache: Path, npm: FakeNpm) -> None:
    cache.parent.parent.joinpath("cache").write_text("a file")
    with pytest.raises(BaselineError, match=r"cache.*: (Not a directory|File exists)"):
        install.install(NAME)
    assert npm.calls() == []


def test_unknown_names_are_refused(cache: Path) -> None:
    for function in (install.install, install.installed, install.libraries, install.remove):
        with pytest.raises(BaselineError, match=r"unknown baseline '\.\./x'; allowed: llama\.cpp, vllm"):
            function("../x")


def test_absent_libraries_say_how_to_install(cache: Path) -> None:
    with pytest.raises(BaselineError, match=r"run `cflow baseline install llama\.cpp`"):
        install.libraries(NAME)


def test_the_default_folder_is_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(install.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert install.folder() == tmp_path / ".cache/cflow-claims/baselines"


def test_removed_it_is_gone_and_can_come_back(cache: Path, npm: FakeNpm) -> None:
    assert install.remove(NAME) is False
    path, _ = install.install(NAME)
    (cache / f".{NAME}.abc.tmp").mkdir()
    assert install.remove(NAME) is True
    assert (path.exists(), entries(cache)) == (False, set())
    assert install.install(NAME) == (path, True)


def test_what_npm_does_is_told(cache: Path, npm: FakeNpm) -> None:
    npm.will(files=package_files(), message="added 1 package")
    told: list[str] = []
    install.install(NAME, told.append)
    assert told == ["npm fetches @node-llama-cpp/linux-x64@3.22.1", "added 1 package"]
