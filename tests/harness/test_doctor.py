"""Findings about made-up machines: the right words, and never an exception."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.counters import CounterStatus
from harness.doctor import (
    Effect,
    Finding,
    effects,
    machine_findings,
    profile_finding,
    profile_rows,
)
from harness.errors import ProfileError
from harness.kinds import INCONCLUSIVE, NOT_MEASURABLE, PROFILE_NAMES
from harness.machine import machine_state
from harness.registry import load_registry
from tests.harness.make_sample import SAMPLE_DIR

REGISTRY = load_registry(SAMPLE_DIR / "claims.toml")
ALL = (CounterStatus("l1d_read_misses", True, ""),)
IDS = (
    "pmu", "device_bytes", "run_delay", "huge_pages", "governor", "boost", "smt", "numa", "quota", "steal",
    "load", "swap",
)  # fmt: skip
FILES = (
    "proc/cpuinfo",
    "proc/stat",
    "proc/uptime",
    "proc/self/io",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/thread-self/schedstat",
    "proc/pressure/cpu",
    "sys/devices/system/cpu/smt/active",
    "sys/devices/system/cpu/intel_pstate/no_turbo",
    "sys/devices/system/cpu/cpufreq/boost",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "sys/devices/system/cpu/cpu0/cache/index0/size",
    "sys/devices/system/node/node0/meminfo",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/fs/cgroup/cpu.max",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us",
)
CONTENTS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b"", b"\n", b"0", b"1", b"-1", b"max", b"max 100000", b"0 0", b"100000 0", b"[always] never",
         b"performance", b"0::/\n", b"0::/..\n", b"4:cpu:/\n", b"cpu  1 2 3 4 5 6 7 8\n", b"nan", b"1e999",
         b"read_bytes: 1\nwrite_bytes: 2\nrchar: 3", b"9" * 30]
    ),
)  # fmt: skip


def write(root: Path, path: str, text: str | bytes) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text if isinstance(text, bytes) else text.encode())


def found(root: Path, **changes: Any) -> dict[str, Finding]:
    """Findings by id of the machine below `root`; changes: of its state, as "cpu__governor"."""
    state = machine_state(root, root)
    # psutil reads this machine, not the one that is made up.
    state["load"]["average_1m"], state["memory"]["swap_used_bytes"] = 0.0, 0
    state["cpu"]["physical"], state["cpu"]["affinity"] = 2, [0, 1]
    for name, value in changes.items():
        group, _, key = name.partition("__")
        state[group][key] = value
    return {one.id: one for one in machine_findings(state, root, ALL)}


def test_a_machine_that_tells_nothing_has_no_bad_setting(tmp_path: Path) -> None:
    findings = found(tmp_path)
    assert tuple(findings) == IDS
    no = {name for name, one in findings.items() if one.state == "no"}
    assert no == {"device_bytes", "run_delay"}
    for name in ("governor", "boost", "smt", "numa", "quota", "steal", "huge_pages"):
        assert findings[name].state == "unknown", name
        assert findings[name].remedy == "" and "''" not in findings[name].detail


def test_an_empty_file_is_not_a_setting(tmp_path: Path) -> None:
    for path in FILES:
        write(tmp_path, path, "\n")
    findings = found(tmp_path)
    for name in ("governor", "boost", "smt", "steal", "huge_pages"):
        assert findings[name].state == "unknown", name


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(contents=st.dictionaries(st.sampled_from(FILES), CONTENTS))
def test_odd_contents_never_raise_and_always_say_something(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[str, bytes]
) -> None:
    root = tmp_path_factory.mktemp("root")
    for path, content in contents.items():
        write(root, path, content)
    findings = found(root)
    assert tuple(findings) == IDS
    for one in findings.values():
        assert one.detail
        assert (one.state == "no") or not one.remedy
        assert one.remedy or one.state != "no"


@pytest.mark.parametrize(
    ("name", "files", "state", "words"),
    [
        (
            "governor",
            {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"},
            "no",
            "powersave",
        ),
        ("governor", {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance"}, "yes", ""),
        ("boost", {"sys/devices/system/cpu/intel_pstate/no_turbo": "0"}, "yes", "on: "),
        ("boost", {"sys/devices/system/cpu/cpufreq/boost": "0"}, "yes", "off"),
        ("smt", {"sys/devices/system/cpu/smt/active": "1"}, "yes", "one worker per physical core"),
        (
            "huge_pages",
            {"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"},
            "no",
            "never",
        ),
        ("huge_pages", {"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never"}, "yes", ""),
        ("quota", {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000"}, "yes", "none"),
        ("quota", {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000"}, "no", "1.5 CPUs"),
        ("quota", {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "400000 100000"}, "yes", "4 CPUs"),
        ("quota", {"proc/self/cgroup": "0::/\n"}, "unknown", "not tell"),
        ("quota", {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "?"}, "unknown", "not tell"),
        (
            "quota",
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/j\n",
                "sys/fs/cgroup/cpu,cpuacct/j/cpu.cfs_quota_us": "50000",
                "sys/fs/cgroup/cpu,cpuacct/j/cpu.cfs_period_us": "100000",
            },
            "no",
            "0.5 CPUs of 2",
        ),
        ("steal", {"proc/stat": "cpu 10 0 10 970 0 0 0 10 0 0\n"}, "yes", "1.00%"),
        ("steal", {"proc/stat": "cpu 10 0 10 870 0 0 0 110 0 0\n"}, "no", "11.00%"),
        ("device_bytes", {"proc/self/io": "read_bytes: 1\nwrite_bytes: 2\nrchar: 3\n"}, "yes", ""),
        ("run_delay", {"proc/thread-self/schedstat": "5 6 7\n"}, "yes", ""),
        ("numa", {f"sys/devices/system/node/node{node}/x": "" for node in (0, 1)}, "yes", "2 nodes"),
    ],
)
def test_settings(tmp_path: Path, name: str, files: dict[str, str], state: str, words: str) -> None:
    for path, text in files.items():
        write(tmp_path, path, text)
    one = found(tmp_path)[name]
    assert one.state == state
    assert words in one.detail


@pytest.mark.parametrize(
    ("name", "changes", "state"),
    [
        ("load", {"load__average_1m": 1.01}, "no"),
        ("load", {"load__average_1m": 1.0}, "yes"),
        ("load", {"load__average_1m": None}, "unknown"),
        ("swap", {"memory__swap_used_bytes": 5_000_000}, "no"),
        ("swap", {"memory__swap_used_bytes": None}, "unknown"),
    ],
)
def test_what_psutil_tells(tmp_path: Path, name: str, changes: dict[str, Any], state: str) -> None:
    one = found(tmp_path, **changes)[name]
    assert one.state == state
    assert one.doubts is (state == "no")


def test_counters_are_told_once_per_reason(tmp_path: Path) -> None:
    statuses = (
        CounterStatus("cycles", True, ""),
        CounterStatus("l1d_read_misses", False, "not here"),
        CounterStatus("hits", False, "not here"),
    )
    one = machine_findings(machine_state(tmp_path, tmp_path), tmp_path, statuses)[0]
    assert (one.state, one.detail) == ("no", "cycles; l1d_read_misses, hits: not here")
    assert one.kinds == ("hardware",)
    useful = (CounterStatus("l1d_read_misses", True, ""), CounterStatus("hits", False, "not here"))
    assert machine_findings(machine_state(tmp_path, tmp_path), tmp_path, useful)[0].kinds == ()


# ---- what follows ----


def finding(**fields: Any) -> Finding:
    return Finding("x", "x", fields.pop("state", "no"), "said", "do", **fields)


def test_effects_follow_from_what_the_registry_declares() -> None:
    checks = [one for one in REGISTRY.checks if one.built and "quick" in one.budget_s]
    need = next(need for one in checks for need in one.needs)
    (effect,) = effects(finding(needs=(need,)), REGISTRY, "quick")
    assert effect == Effect(NOT_MEASURABLE, True, tuple(c.id for c in checks if need in c.needs), ())
    (effect,) = effects(finding(doubts=True), REGISTRY, "quick")
    timed = tuple(one.id for one in checks if "timed" in one.kinds)
    assert timed and effect == Effect(INCONCLUSIVE, False, timed, ())
    kind = checks[0].kinds[0]
    (effect,) = effects(finding(kinds=(kind,)), REGISTRY, "quick")
    assert effect.checks == tuple(one.id for one in checks if set(one.kinds) == {kind})


def test_rows_are_those_whose_label_has_the_word() -> None:
    check, cell = next(
        (one, cell)
        for one in REGISTRY.checks
        if one.built and "quick" in one.budget_s
        for cell in one.cells
        if cell.label
    )
    word = cell.label.split()[0].strip(",:()")
    (effect,) = effects(finding(rows=(word.upper(),)), REGISTRY, "quick")
    assert f"{check.id}: {cell.label}" in effect.rows
    assert effects(finding(rows=(word + "x",)), REGISTRY, "quick") == ()


@pytest.mark.parametrize("state", ["yes", "unknown"])
def test_nothing_follows_from_what_is_not_in_the_way(state: str) -> None:
    every = finding(state=state, kinds=("timed", "counted"), doubts=True)
    assert effects(every, REGISTRY, "quick") == ()


# ---- profiles ----


def state(ram_gb: float) -> dict[str, Any]:
    return {
        "cpu": {"affinity": [0, 1], "physical": 2, "quota_cpus": None},
        "memory": {"available_bytes": int(ram_gb * 1e9), "limit_bytes": None},
        "storage": {"free_bytes": 10**12},
    }


def test_all_profiles_stand_side_by_side() -> None:
    rows = profile_rows(REGISTRY, state(7))
    assert tuple(row.profile.name for row in rows) == PROFILE_NAMES
    assert [row.fits for row in rows] == [True, True, False, False]
    assert all(row.budget_s == REGISTRY.budget_s(row.profile.name) for row in rows)
    assert "12 GB of free RAM needed, 7.0 GB found" in rows[2].missing[0]


def test_the_profile_that_was_asked_for() -> None:
    fits = profile_finding("quick", state(7))
    assert (fits.state, fits.required, fits.remedy) == ("yes", True, "")
    missing = profile_finding("quick", state(2))
    assert (missing.state, missing.remedy) == ("no", "use --profile smoke")
    assert "6 GB of free RAM needed, 2.0 GB found" in missing.detail
    assert profile_finding("smoke", state(0.1)).remedy == "no smaller profile fits either"
    with pytest.raises(ProfileError, match="no profile 'huge'"):
        profile_finding("huge", state(7))
