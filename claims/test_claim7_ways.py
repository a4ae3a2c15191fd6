"""Claim 7, ways: decoding with cold experts by staged direct reads, and by what else there is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from claims.conftest import Measure
from claims.models import synthetic
from claims.overlap import follow, routed_bytes
from claims.overlap_shapes import SMALL
from claims.overlap_ways import WAYS, Way, cold_session, way_arm
from claims.run import SEED, ClaimsRun
from claims.timing import open_bench
from harness.cachestate import CacheStateError
from harness.evidence import Evidence, Kernel
from harness.paired import alike, run_pairs
from harness.reductions import Reduction
from harness.rounds import Figure, Side, Timed, views
from harness.verdict import NotMeasurable

WAYS_TOKENS = 2
WIDTHS = {"quick": 512, "full": 1024, "paper": 2048}
WAYS_LIMITS = (
    "A virtual machine's host may have the file in its memory, cold as it is for this system.",
    "Other weights are in the page cache or copied; the first touch of a mapped page is part of the time.",
    "The first tokens: with more of them a mapping finds experts in the page cache, up to the size of RAM.",
)


def ways_model(run: ClaimsRun) -> Path:
    width = WIDTHS[run.profile]
    return synthetic(run.cache, f"{SMALL.name}-{width}", SMALL.geometry(width))


@pytest.mark.check("7.ways_bytes")
def test_ways_bytes(measure: Measure, claims_run: ClaimsRun) -> None:
    def fetched(way: Way) -> Evidence | NotMeasurable:
        path, device, routed = ways_model(claims_run), 0, 0
        try:
            with cold_session(path, way, claims_run.threads, WAYS_TOKENS) as (session, share):
                course = follow(session, WAYS_TOKENS)
                device = session.counters()["device_bytes"]
                routed = routed_bytes(session.model, course.routing)
        except CacheStateError as error:
            return NotMeasurable(str(error))
        if device == 0:
            return NotMeasurable("the kernel does not count the bytes that this process fetches from storage")
        return Kernel(
            method="read_bytes of /proc/self/io around the tokens of a new session, experts cold",
            inputs={"way": way.name, "tokens": WAYS_TOKENS, "experts in the page cache before": share},
            observations={"device_bytes": device, "routed_bytes": routed},
            reduction=Reduction("ratio", ("device_bytes", "routed_bytes")),
        )

    measure(lambda: {way.name: fetched(way) for way in WAYS}, limits=WAYS_LIMITS)


@pytest.mark.check("7.ways")
def test_ways(measure: Measure, claims_run: ClaimsRun) -> None:
    def timed() -> Timed | NotMeasurable:
        path, threads = ways_model(claims_run), claims_run.threads
        try:
            with open_bench(threads) as bench:
                return run_pairs(
                    alike([way_arm(path, way, threads, WAYS_TOKENS) for way in WAYS]),
                    Figure(Side(WAYS[1].name, "speed"), Side(WAYS[0].name, "speed")),
                    bench.probes(),
                    control_of=WAYS[0].name,
                    seed=SEED,
                    rounds=claims_run.rounds("7.ways"),
                    inputs={"tokens": WAYS_TOKENS, "threads": threads, "model": path.stem},
                    progress=claims_run.progress(),
                )
        except CacheStateError as error:
            return NotMeasurable(str(error))

    def produce() -> Mapping[str, Timed | NotMeasurable]:
        others = [way.name for way in WAYS[1:]]
        found = timed()
        if isinstance(found, NotMeasurable):
            return dict.fromkeys(others, found)
        base = Side(WAYS[0].name, "speed")
        return views(found, "7.ways", {name: Figure(Side(name, "speed"), base) for name in others})

    measure(produce, limits=WAYS_LIMITS)
