"""Machine, run and build as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reports import exact
from reports import format as fmt
from reports.model import Column, Row, Table

Json = Mapping[str, Any]


def flatten(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """(name, value) of every leaf of nested data, names as words; a list of plain values is a leaf."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flatten(inner, f"{name} {exact.words(str(key))}".strip())
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        for index, inner in enumerate(value, 1):
            yield from flatten(inner, f"{name} {index}")
    else:
        yield name, value


def leaf(name: str, value: object) -> str:
    """A leaf as text; names that end in `bytes` are sizes."""
    if isinstance(value, list):
        return ", ".join(exact.scalar(item) for item in value) or "none"
    if name.endswith("bytes") and isinstance(value, int) and not isinstance(value, bool):
        return fmt.bytes_text(value)
    return exact.scalar(value)


def _title(name: str) -> str:
    return "CPU" if name == "cpu" else name[:1].upper() + exact.words(name[1:])


def machine_tables(machine: Json) -> tuple[Table, ...]:
    """One table per group of the machine's state, before the run and after it, with what changed."""
    before, after = _grouped(machine["before"]), _grouped(machine["after"] or {})
    columns = (Column("Property"), Column("Before", wide=True), Column("After", wide=True))
    made = []
    for name, group in before.items():
        then = dict(flatten(after.get(name, {})))
        rows = []
        for key, value in flatten(group):
            first, second = leaf(key, value), leaf(key, then[key]) if key in then else "not recorded"
            rows.append(Row((key, first, "the same" if first == second else second)))
        if rows:
            made.append(Table(_title(name), columns, tuple(rows)))
    return tuple(made)


def _grouped(state: Json) -> dict[str, Json]:
    """The groups of a machine state; values that belong to none come first, as `general`."""
    loose = {key: value for key, value in state.items() if not isinstance(value, Mapping)}
    return {"general": loose} | {key: value for key, value in state.items() if isinstance(value, Mapping)}


def pairs_table(title: str, items: Sequence[tuple[str, object]]) -> Table:
    """A table of names and values."""
    rows = tuple(Row((name, "not set" if value is None else leaf(name, value))) for name, value in items)
    return Table(title, (Column("Property"), Column("Value", wide=True)), rows)


def machine_line(before: Json) -> str:
    """The machine in one line: processor, cores, instruction sets, memory, kernel; unknown parts left out."""
    cpu, memory, kernel = (before.get(key) or {} for key in ("cpu", "memory", "kernel"))
    parts = [str(cpu["model"])] if cpu.get("model") else []
    cores, threads = cpu.get("physical"), cpu.get("logical")
    if cores:
        text = f"{cores} core{'s' if cores != 1 else ''}"
        parts.append(f"{text}, {threads} threads" if threads and threads != cores else text)
    if cpu.get("isa"):
        parts.append(" ".join(str(name).upper().replace("_", "-") for name in _strongest(cpu["isa"])))
    if memory.get("total_bytes"):
        parts.append(f"{fmt.fixed(memory['total_bytes'] / 2**30, 1)}{fmt.NBSP}GiB")
    if kernel.get("system"):
        parts.append(f"{kernel['system']} {kernel.get('release', '')}".strip())
    if cpu.get("virtualised"):
        parts.append("virtual machine")
    return " \u00b7 ".join(parts) or "not recorded"


def _strongest(names: Sequence[str]) -> list[str]:
    wide = [name for name in names if name.startswith(("avx512f", "avx512_vnni", "avx_vnni", "amx"))]
    return wide or [name for name in names if name in ("avx2", "asimd", "asimddp", "sve")] or list(names)[-1:]
