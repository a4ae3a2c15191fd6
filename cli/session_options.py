"""Options of our session on the command line, the same for every command that has one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import typer

from cli.console import UsageError, mb
from engine.enums import Reader, ReadPath, Residency, Verify
from engine.errors import ArgumentError
from engine.session import OptionValue, Session, parse_options, size_bytes

OptionOption = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", help="NAME=VALUE of our session, e.g. residency=copy. Repeatable."),
]
ResidencyOption = Annotated[
    str | None,
    typer.Option(
        help="Where weights are read from: mmap (default), copy (all in memory), "
        "direct (experts stay on disk and are read when chosen)."
    ),
]
RamBudgetOption = Annotated[
    str | None,
    typer.Option(
        help="Memory the session may take, e.g. 4GiB or 2e9: what is left of it keeps experts. "
        "Implies --residency direct."
    ),
]
VerifyOption = Annotated[
    str | None,
    typer.Option(
        help="With --residency direct, check experts against their checksums: "
        f"{', '.join(word.name.lower() for word in Verify)}. Default: first."
    ),
]


def parse_size(name: str, text: str) -> int:
    """Bytes of "4GiB", "1.5 GB" or "2e9". Raises UsageError naming the option."""
    try:
        return size_bytes(name, text)
    except ArgumentError as error:
        raise UsageError(str(error)) from None


def session_options(
    pairs: Sequence[str] | None,
    *,
    isa: str | None = None,
    residency: str | None = None,
    ram_budget: str | None = None,
    verify: str | None = None,
) -> dict[str, OptionValue]:
    """Keyword options of `engine.Session` that the command line gave; the others keep their defaults.

    pairs: of `--option`; the options with names of their own come before them. Raises UsageError.
    """
    try:
        options = parse_options(pairs or [])
    except ArgumentError as error:
        raise UsageError(f"--{error}") from None
    named: dict[str, OptionValue | None] = {"isa": isa, "residency": residency, "verify": verify}
    if ram_budget is not None:
        named["ram_budget"] = parse_size("--ram-budget", ram_budget)
        named["residency"] = residency or "direct"
    for name, value in named.items():
        if value is not None:
            options[name] = value
    for name in ("ram_budget", "verify"):
        if named.get(name) is not None and not _is_direct(options.get("residency")):
            raise UsageError(f"--{name.replace('_', '-')} needs --residency direct")
    return options


def memory_note(session: Session) -> str:
    """What decoding will take: the file, keys and values for the whole context, and the rest."""
    kv_bytes, held_bytes = session.memory_bytes()
    positions = f"{session.context} position{'s' if session.context > 1 else ''}"
    return (
        f"{mb(session.model.file_bytes)} in the file, {mb(kv_bytes)} of keys and values for {positions}, "
        f"{mb(held_bytes - kv_bytes)} of other memory"
    )


def _is_direct(residency: OptionValue | None) -> bool:
    return residency == Residency.DIRECT or str(residency).lower() == "direct"


def reading_notes(resolved: Mapping[str, int], asked: Mapping[str, OptionValue]) -> Iterator[str]:
    """How experts come from disk, and loudly what is not as it should be.

    resolved: `Session.options`. asked: what it was made with. Nothing when no experts are read.
    """
    if resolved["residency"] != Residency.DIRECT or resolved["reader"] == Reader.AUTO:
        return
    reader = "io_uring" if resolved["reader"] == Reader.IO_URING else "a few threads"
    if resolved["read_path"] == ReadPath.DIRECT:
        yield f"experts are read from disk by {reader}, past the page cache (O_DIRECT)"
    elif asked.get("read_path") in (None, "direct", int(ReadPath.DIRECT)):
        yield (
            f"WARNING: experts are read by {reader} THROUGH the page cache, which grows with them: "
            "the file system of the model refuses O_DIRECT, or it means nothing there (tmpfs, FUSE)"
        )
    else:
        yield f"experts are read from disk by {reader}, through the page cache"
    if resolved["read_rate"]:
        yield f"the disk is emulated: {mb(resolved['read_rate'])}/s"
