"""Rows and ratios from made-up rounds."""

from __future__ import annotations

import pytest

from claims.speed import Row, merged, ratio, row, time_ratio
from claims.turns import STREAMS, Turn, prompt_view
from harness.paired import Arm, run_pairs
from harness.rounds import IDLE_CPU_COUNTER, Pattern, Roof, Sample, Timed
from tests.harness.fake import FakeMachine

TOKENS, PROMPT, BYTES = 8, 4, 80_000_000
ROOF = Roof(1, (Pattern("a", 100, (10, 5)), Pattern("b", 100, (2, 20))))


def turn_arm(machine: FakeMachine, name: str, ns: float, prompt_ns: float, ours: bool = False) -> Arm:
    """A turn of `TOKENS` tokens, every second one slower by half, after a prompt."""
    plain = machine.arm(name, ns).run

    def run() -> Sample:
        took = plain()
        machine.now_ns += round(prompt_ns)
        pair = took.ns // (TOKENS // 2)
        token_ns = (pair * 2 // 5, pair - pair * 2 // 5) * (TOKENS // 2)
        counters = {IDLE_CPU_COUNTER: 0}
        if ours:
            counters |= {f"{stream}_ns": 1000 * index for index, stream in enumerate(STREAMS)}
            counters |= {"wall_ns": 100_000}
        prompt = Sample(round(prompt_ns), 0, took.digest, PROMPT, 0, None, {IDLE_CPU_COUNTER: 0})
        delay = took.run_delay_ns
        return Turn(
            sum(token_ns), BYTES, took.digest, TOKENS, delay, None, counters, token_ns=token_ns, prompt=prompt
        )

    return Arm(name, run, "5f3c0a9d")


def rounds(incidents: dict[int, object] | None = None, theirs: float = 3e8) -> Timed:
    machine = FakeMachine(5, incidents or {})
    arms = [turn_arm(machine, "cflow", 2e8, 1e8, ours=True), turn_arm(machine, "other", theirs, 0.5e8)]
    figure = time_ratio("other", "cflow")
    return run_pairs(arms, figure, machine.probes(), control_of="cflow", seed=1, rounds=12, warmups=0)


def made(timed: Timed, engine: str = "cflow", threads: int = 1, roof: Roof = ROOF) -> Row:
    return row(timed, engine, threads, roof, "avx2", {"threads": threads})


def test_row() -> None:
    timed = rounds()
    found = made(timed, threads=2)
    assert found.tok_per_s == pytest.approx(40.0, rel=0.02)
    assert found.weight_bytes_per_token == BYTES / TOKENS
    assert found.bytes_per_s == found.tok_per_s * found.weight_bytes_per_token
    assert found.roof_bytes_per_s == 50e9
    assert found.share_of_roof == found.bytes_per_s / 50e9
    probes = [one.probe_bytes_per_ns for one in timed.rounds]
    assert (
        found.bytes_per_s / 1e9 / max(probes) <= found.share_of_probe <= found.bytes_per_s / 1e9 / min(probes)
    )
    assert found.prompt_tok_per_s == pytest.approx(40.0)
    assert (found.rounds, found.void, found.doubts) == (12, 0, ())
    ms = found.ms_per_token
    assert ms["p10"] == pytest.approx(20.0, rel=0.03)
    assert ms["p90"] == pytest.approx(30.0, rel=0.03)
    assert ms["p10"] < ms["median"] < ms["p90"]
    assert found.streams_ns_per_token == {
        name: 1000 * index / TOKENS / 2 for index, name in enumerate(STREAMS)
    }
    assert found.barrier_share == 1000 * STREAMS.index("barrier") / 100_000 / 2
    fixed = {"engine", "threads", "tok_per_s", "weight_bytes_per_token", "bytes_per_s", "roof_bytes_per_s"}
    assert fixed | {"share_of_roof", "isa"} <= found.to_json().keys()


def test_another_engine_has_no_streams() -> None:
    found = made(rounds(), "other")
    assert (found.streams_ns_per_token, found.barrier_share) == (None, None)
    assert found.tok_per_s == pytest.approx(26.7, rel=0.02)


def test_a_share_above_the_roof_voids_the_roof() -> None:
    found = made(rounds(), roof=Roof(1, (Pattern("a", 1, (10,)),)))
    assert (found.roof_bytes_per_s, found.share_of_roof) == (None, None)
    assert any("roof void" in doubt for doubt in found.doubts)


def test_void_rounds_do_not_count_unless_all_are() -> None:
    found = made(rounds({1: "steal", 4: "steal"}))
    assert (found.rounds, found.void) == (16, 2)
    nothing = made(rounds({index: "steal" for index in range(40)}))
    assert nothing.rounds == 0
    assert nothing.tok_per_s == pytest.approx(40.0, rel=0.02)
    assert any("0 valid rounds" in doubt for doubt in nothing.doubts)


@pytest.mark.parametrize(("theirs", "verdict"), [(3e8, "FASTER"), (1e8, "SLOWER"), (2e8, "INCONCLUSIVE")])
def test_verdicts_of_a_ratio(theirs: float, verdict: str) -> None:
    found = ratio(rounds(theirs=theirs), 2, "other", "cflow", "decode", True)
    assert found.median == pytest.approx(theirs / 2e8, rel=0.02)
    assert found.low is not None and found.high is not None
    assert found.low <= found.median <= found.high
    assert (found.verdict, found.reasons) == (verdict, ())
    assert (found.threads, found.against, found.what, found.tokens_equal) == (2, "other", "decode", True)
    assert found.a_a is not None and found.a_a[0] <= 1 <= found.a_a[1]


def test_evidence_that_does_not_hold_decides_nothing() -> None:
    found = ratio(rounds({index: "steal" for index in range(40)}), 1, "other", "cflow", "decode", True)
    assert (found.median, found.verdict, found.rounds) == (None, "INCONCLUSIVE", 0)
    assert found.reasons


def test_the_prompt_is_timed_on_its_own() -> None:
    timed = rounds({2: ("run_queue", "cflow")})
    assert timed.rounds[2].void
    prompts = prompt_view(timed, time_ratio("other", "cflow"))
    assert not prompts.rounds[2].void  # the worker waited in the tokens, not in the prompt
    found = ratio(prompts, 1, "other", "cflow", "prompt", True)
    assert found.median == pytest.approx(0.5)


def test_both_roofs_count() -> None:
    later = Roof(1, (Pattern("b", 100, (1, 30)), Pattern("a", 100, (9,))))
    both = merged(ROOF, later)
    assert both.bytes_per_ns == 100.0
    assert [(pattern.name, pattern.ns) for pattern in both.patterns] == [
        ("a", (10, 5, 9)),
        ("b", (2, 20, 1, 30)),
    ]
