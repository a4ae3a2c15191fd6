"""What a run records of its machine and its settings, as named facts that can be held against each other.

Only what stays as it is for a whole run: load, free memory and frequencies are left out. None means that the
run does not tell; an unknown is never a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from harness.results import Results
from harness.statistics import median
from reports import format as fmt

Json = Mapping[str, Any]
Value = str | int | float | bool | None

NATIVE: Final = "native"
"""The tier of a figure whose reads came from the device as it is."""
_READ_ONLY: Final = "read only"
_MEMORY_TOLERANCE: Final = 0.02
"""Kernels keep some of a machine's memory for themselves, not always as much."""


@dataclass(frozen=True)
class Fact:
    """One thing that a run records. hardware: no run on the same machine can have another value. measured: it
    varies from run to run on one machine. text: the value for people.
    """

    name: str
    read: Callable[[Results], Value]
    hardware: bool = False
    measured: bool = False
    text: Callable[[Any], str] = str


def _at(data: object, *path: str) -> Any:
    """A leaf of nested data, None where the path ends early."""
    for key in path:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def _machine(*path: str, kind: type[str | float | bool] = str) -> Callable[[Results], Value]:
    """A leaf of the machine's state, None when it is not of that kind; lists of names become one text."""

    def read(results: Results) -> Value:
        value = _at(results.data["machine"]["before"], *path)
        if isinstance(value, list):
            return " ".join(sorted(map(str, value))) or None
        return _only(value, kind)

    return read


def _only(value: Any, kind: type[str | float | bool]) -> Value:
    if kind is float:
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return value if isinstance(value, kind) else None


def _option(name: str) -> Callable[[Results], Value]:
    def read(results: Results) -> Value:
        value = results.run["options"].get(name)
        return value if isinstance(value, str | int) else None

    return read


def _cache(level: int, key: str) -> Callable[[Results], Value]:
    def read(results: Results) -> Value:
        caches = _at(results.data["machine"]["before"], "cpu", "caches")
        for cache in caches if isinstance(caches, list) else ():
            if _at(cache, "level") == level and _at(cache, "type") in ("data", "unified"):
                return _only(_at(cache, key), float)
        return None

    return read


def _allowed_cpus(results: Results) -> Value:
    allowed = _at(results.data["machine"]["before"], "cpu", "affinity")
    return len(allowed) if isinstance(allowed, list) else None


def _kernel(results: Results) -> Value:
    parts = (_at(results.data["machine"]["before"], "kernel", key) for key in ("system", "release"))
    return " ".join(str(part) for part in parts if part) or None


def _build(results: Results) -> Value:
    known = {name: value for name, value in results.data["build"].items() if name != "library_sha256"}
    return "; ".join(str(value) for value in known.values() if value is not None) or None


def _commit(results: Results) -> Value:
    commit = results.run["commit"]
    return None if commit is None else str(commit)[:12]


def _timed(results: Results) -> Iterator[Json]:
    for record in results.checks:
        for cell in record["cells"]:
            if (cell["evidence"] or {}).get("kind") == "timed":
                yield cell["evidence"]


def _roof(results: Results) -> Value:
    """GB/s: the best of the roofs that the most threads reached."""
    roofs = [evidence["roof"] for evidence in _timed(results) if evidence["roof"] is not None]
    most = max((roof["threads"] for roof in roofs), default=0)
    return max((roof["bytes_per_ns"] for roof in roofs if roof["threads"] == most), default=None)


def _storage_rate(results: Results) -> Value:
    """GB/s: median of the rounds that read experts alone from the device as it is."""
    rates = [
        sample["bytes"] / sample["ns"]
        for evidence in _timed(results)
        if evidence["inputs"].get("tier") == NATIVE
        for one in evidence["rounds"]
        if not one["void"] and (sample := one["samples"].get(_READ_ONLY)) is not None
    ]
    return median(rates) if rates else None


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _gb_per_s(value: float) -> str:
    return f"{fmt.fixed(value, 2)}{fmt.NBSP}GB/s"


FACTS: Final = (
    Fact("processor", _machine("cpu", "model"), hardware=True),
    Fact("architecture", _machine("cpu", "architecture"), hardware=True),
    Fact("instruction sets", _machine("cpu", "isa"), hardware=True),
    Fact("physical cores", _machine("cpu", "physical", kind=float), hardware=True),
    Fact("logical CPUs", _machine("cpu", "logical", kind=float), hardware=True),
    Fact("NUMA nodes", _machine("cpu", "numa_nodes", kind=float), hardware=True),
    Fact("L1 data cache", _cache(1, "size_bytes"), hardware=True, text=fmt.bytes_text),
    Fact("L1 data ways", _cache(1, "ways"), hardware=True),
    Fact("L2 cache", _cache(2, "size_bytes"), hardware=True, text=fmt.bytes_text),
    Fact("L2 ways", _cache(2, "ways"), hardware=True),
    Fact("L3 cache", _cache(3, "size_bytes"), hardware=True, text=fmt.bytes_text),
    Fact("L3 ways", _cache(3, "ways"), hardware=True),
    Fact("memory", _machine("memory", "total_bytes", kind=float), hardware=True, text=fmt.bytes_text),
    Fact("page size", _machine("memory", "page_bytes", kind=float), hardware=True, text=fmt.bytes_text),
    Fact("virtual machine", _machine("cpu", "virtualised", kind=bool), hardware=True, text=_yes),
    Fact("read bandwidth, measured", _roof, measured=True, text=_gb_per_s),
    Fact("storage read rate, measured", _storage_rate, measured=True, text=_gb_per_s),
    Fact("huge pages", _machine("memory", "transparent_huge_pages")),
    Fact("memory limit", _machine("memory", "limit_bytes", kind=float), text=fmt.bytes_text),
    Fact("CPUs allowed", _allowed_cpus),
    Fact("CPU quota", _machine("cpu", "quota_cpus", kind=float), text=fmt.plain),
    Fact("SMT", _machine("cpu", "smt", kind=bool), text=_yes),
    Fact("governor", _machine("cpu", "governor")),
    Fact("boost", _machine("cpu", "boost", kind=bool), text=_yes),
    Fact("file system", _machine("storage", "filesystem")),
    Fact("readahead, KiB", _machine("storage", "read_ahead_kb", kind=float)),
    Fact("rotational disk", _machine("storage", "rotational", kind=bool), text=_yes),
    Fact("kernel", _kernel),
    Fact("threads", _option("threads")),
    Fact("instruction set used", _option("isa")),
    Fact("build of the engine", _build),
    Fact("commit", _commit),
)


def read_facts(results: Results) -> dict[str, Value]:
    """Every fact of a run by name, in the order of FACTS."""
    return {fact.name: fact.read(results) for fact in FACTS}


def value_text(name: str, value: Value) -> str:
    """A fact's value for people."""
    if value is None:
        return "not recorded"
    return next(fact.text for fact in FACTS if fact.name == name)(value)


def differ(name: str, one: Value, other: Value) -> bool:
    """Whether two runs record different values; memory may differ by what kernels keep for themselves."""
    if one is None or other is None:
        return False
    if name == "memory" and isinstance(one, int) and isinstance(other, int):
        return abs(one - other) > _MEMORY_TOLERANCE * max(one, other)
    return one != other


def hardware_differences(one: Mapping[str, Value], other: Mapping[str, Value]) -> tuple[str, ...]:
    """Names of the facts that say that two runs were not on the same machine; empty: they may have been."""
    return tuple(
        fact.name for fact in FACTS if fact.hardware and differ(fact.name, one[fact.name], other[fact.name])
    )
