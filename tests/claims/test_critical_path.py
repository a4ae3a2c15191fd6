"""The figures of claim 7 against an independent computation from the equations of the forward pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from claims.critical_path import MIB, law, longest_path, name_of, nominal_mib
from claims.models import schedule_session, undelayed
from engine.enums import Route, Stream
from engine.geometry import Geometry

DELAYS = [(0, 0), (1, 0), (1, 2), (0, 2), (2, 3), (3, 1)]


def path_from_the_equations(g: Geometry) -> float:
    """Longest chain of dependent bytes, MiB at 0.5 byte per weight: a time for each value of
    h[l] = x[l-1] + Attn, f[l] = Dense(u[l]), e[l] = Experts(r[l]), x[l] = h[l] + f[l] + e[l-de].

    The experts of a layer run side by side, so one of them counts, and the router before it.
    """

    def mib(weights: float) -> float:
        return weights * 0.5 / MIB

    attention = mib(4 * g.d_model**2)
    dense = mib(3 * g.d_model * g.ffn_hidden)
    expert = mib(g.experts * g.d_model + 3 * g.d_model * g.expert_hidden)
    x, e = [0.0], []
    for layer in range(g.layers):
        h = x[-1] + attention
        u = h if g.dd == 0 else x[max(layer - g.dd, -1) + 1]
        r = x[-1] if g.route is Route.PRE_DENSE else h
        e.append(r + expert)
        due = [e[layer - g.de]] if layer >= g.de else []
        x.append(max([h, u + dense, *due]))
    return max([x[-1], *e])


@pytest.mark.parametrize("name", ["arch2_4_combined", "tiny_standard"])
@pytest.mark.parametrize("route", list(Route))
@pytest.mark.parametrize(("dd", "de"), DELAYS)
def test_path_is_that_of_the_equations(tmp_path: Path, name: str, dd: int, de: int, route: Route) -> None:
    # Queries, keys, values and output of equal size: the closed form above counts 4 d^2.
    base = replace(Geometry.named(name), dd=dd, de=de, route=route)
    geometry = replace(base, kv_heads=base.heads)
    with schedule_session(geometry, tmp_path) as session:
        path = longest_path(session.schedule())
    assert sum(map(nominal_mib, path)) == pytest.approx(path_from_the_equations(geometry), rel=1e-12)


def test_the_figures_of_the_paper_and_of_the_path(tmp_path: Path) -> None:
    combined = Geometry.named("arch2_4_combined")
    assert path_from_the_equations(undelayed(combined)) == pytest.approx(12.00)
    assert path_from_the_equations(combined) == pytest.approx(9.00)


def test_every_step_of_a_path_is_a_dependency(tmp_path: Path) -> None:
    with schedule_session(Geometry.named("arch4"), tmp_path) as session:
        path = longest_path(session.schedule())
    assert len({name_of(piece) for piece in path}) == len(path)
    for before, after in zip(path, path[1:], strict=False):
        assert before.index in after.dependencies
        assert before.phase < after.phase


@pytest.mark.parametrize(
    ("name", "mib"),
    [
        ("arch1", 9.0),
        ("arch2_4_combined", 4.5),
        ("arch2_4_sync", 4.5),
        ("arch3", 9.0),
        ("arch4", 9.0),
        ("arch5", 14.0625),
    ],
)
def test_law_of_the_schedule_is_that_of_the_geometry(tmp_path: Path, name: str, mib: float) -> None:
    geometry = Geometry.named(name)
    with schedule_session(geometry, tmp_path) as session:
        found = law(session.schedule(), geometry.dd, geometry.de)
    assert found.mib == pytest.approx(mib)
    assert found.mib == pytest.approx(geometry.critical_path_bytes() / MIB)


def test_delays_merge_phases_and_keep_pieces(tmp_path: Path) -> None:
    combined = Geometry.named("arch2_4_combined")
    with schedule_session(undelayed(combined), tmp_path) as session:
        plain, plain_phases = session.schedule(), session.phase_count
    with schedule_session(combined, tmp_path) as session:
        delayed, delayed_phases = session.schedule(), session.phase_count
    assert delayed_phases < plain_phases
    assert sorted((name_of(p), p.weights) for p in plain) == sorted((name_of(p), p.weights) for p in delayed)
    assert sum(p.weights for p in plain if p.stream is Stream.EXPERT) == 6 * 2 * 3 * 512 * 512


def test_no_file_of_weights_is_left(tmp_path: Path) -> None:
    with schedule_session(Geometry.named("arch2_4_8k_16l"), tmp_path) as session:
        assert (
            sum(piece.weights for piece in session.schedule())
            == 16 * (4 * 8192**2 + 3 * 8192 * 32768 + 2 * 3 * 8192 * 4096 + 8 * 8192) + 50257 * 8192
        )
    assert not list(tmp_path.iterdir())
