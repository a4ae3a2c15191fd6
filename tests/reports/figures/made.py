"""Runs made for the tests of figures, and what every drawing must hold to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from hypothesis import Phase, settings
from hypothesis import strategies as st

from harness.registry import parse_registry
from harness.results import Results
from reports.model import Figure

Json = Mapping[str, Any]

_REGISTRY = parse_registry((Path(__file__).parents[3] / "claims" / "claims.toml").read_text(encoding="utf-8"))
MAX_BYTES = 60_000

EVIL = '<script>alert("1")</script> $x_1$ & \u202e\x00\n' + "very long name " * 20
"""A label that HTML, XML, mathtext and layout would each trip over."""

FEW = settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.generate))
"""Each example draws two figures: few of them, and none to make a failure smaller."""

NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(min_value=1e-3, max_value=1e6),
    st.integers(min_value=0, max_value=10**9),
    st.sampled_from([0, 0.0, -1.0, None, "text", True, 1e300, 10**400, 5e-324]),
)
"""Whatever an observation may hold, sound or not."""


def cell(observations: Json, label: str = "", inputs: Json | None = None, **changes: Any) -> Json:
    """A cell with exact evidence."""
    evidence = {"kind": "counted", "method": "", "inputs": inputs or {}, "observations": observations}
    whole = {"label": label, "unit": "", "value": None, "low": None, "high": None, "paper": None}
    return whole | {"verdict": None, "evidence": evidence, "reason": "", "summary": None} | changes


def run(checks: Mapping[str, Sequence[Json]], machine: Json | None = None) -> Results:
    """A run of those checks and nothing else, with the registry of this checkout."""
    records = [{"id": name, "kind": "counted", "cells": list(cells)} for name, cells in checks.items()]
    data = {"checks": records, "machine": {"before": machine or {}, "after": None}}
    return Results(Path("made"), data, _REGISTRY)


def assert_sound(figure: Figure) -> None:
    """Both drawings are small, stand alone, mark nothing up from text, and place nothing at no place."""
    assert figure.title and figure.caption and figure.alt
    assert figure.table.rows
    assert all(len(row.cells) == len(figure.table.columns) for row in figure.table.rows)
    ids: list[str] = []
    for drawing in (figure.wide, figure.narrow):
        assert len(drawing.encode()) < MAX_BYTES
        root = ElementTree.fromstring(drawing)
        assert root.get("role") == "img"
        assert root[0].tag == "title" and root[1].tag == "desc"
        own = [one.attrib["id"] for one in root.iter() if "id" in one.attrib]
        assert root.get("aria-label") == root[0].text and root.get("aria-describedby") in own
        ids += own
        for one in root.iter():
            assert one.tag in {
                *("svg", "title", "desc", "defs", "g", "path", "text", "tspan", "use", "clipPath", "rect"),
            }, one.tag
            for name, value in one.attrib.items():
                assert "nan" not in value or name in ("id", "style"), (name, value)
                assert not re.search(r"#[0-9a-f]{6}", value), (name, value)
                for target in re.findall(r"#([\w-]+)", value):
                    assert target in own
    assert len(ids) == len(set(ids))
    assert all(one.startswith(figure.id) for one in ids)


def texts(figure: Figure) -> list[str]:
    """All text of the wide drawing that is seen."""
    root = ElementTree.fromstring(figure.wide)
    return ["".join(one.itertext()) for one in root.iter() if one.tag == "text"]


def arm(name: str, description: str = "", control_of: str | None = None) -> Json:
    """An arm of a timed cell."""
    return {"name": name, "description": description, "control_of": control_of}


def timed(
    samples: Mapping[str, Json], label: str = "", rounds: int = 15, void: bool = False, **changes: Any
) -> Json:
    """A timed cell whose rounds are all the same, with an arm for each sample."""
    one = {"samples": samples, "void": [{"rule": "steal", "arm": None}] if void else []}
    evidence = {
        "kind": "timed",
        "inputs": changes.pop("inputs", {}),
        "arms": changes.pop("arms", [arm(name) for name in samples]),
        "rounds": [one] * rounds,
        "roof": changes.pop("roof", None),
    }
    return cell({}, label, unit="ratio") | {"evidence": evidence} | changes


def sample(ns: Any, size: Any = 100, work: Any = 1, **counters: Any) -> Json:
    """What one arm did in a round."""
    return {"ns": ns, "bytes": size, "work": work, "counters": counters}
