"""Ways of decoding with the experts on disk: read by the session, or mapped and left to the kernel."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from claims.arms import DECODE_COUNTERS, decode_sample
from claims.experts import ExpertBank
from claims.overlap import COLD, START, empty_bank, refused
from engine.enums import Advice, Option, Residency
from engine.model import Model
from engine.session import OptionValue, Session
from harness.cachestate import CacheStateError, residency
from harness.paired import Arm
from harness.rounds import Sample

_CHUNK_BYTES: Final = 1 << 20
_KEPT: Final = (*DECODE_COUNTERS, "device_bytes", "io_wait_ns")
"""Not the bytes asked: where the kernel reads ahead, the device gives others, and no round is void for it."""


@dataclass(frozen=True)
class Way:
    """Options of the session, and how the mapping is said to be read."""

    name: str
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    advice: Advice = Advice.NORMAL


_DIRECT: Final[Mapping[str, OptionValue]] = {"residency": "direct", "verify": "never"}
WAYS: Final = (
    Way("direct, staged", _DIRECT),
    Way("direct, sync", {**_DIRECT, "expert_reads": "sync"}),
    Way("buffered, staged", {**_DIRECT, "read_path": "buffered"}),
    Way("mapped"),
    Way("mapped, MADV_RANDOM", advice=Advice.RANDOM),
    Way("mapped, MADV_RANDOM, MADV_WILLNEED", {"expert_advice": "willneed"}, Advice.RANDOM),
)


@contextmanager
def cold_session(path: Path, way: Way, threads: int, tokens: int) -> Iterator[tuple[Session, float]]:
    """A new session with all weights but the experts in memory: it, and the bank's share in the page cache.

    Raises CacheStateError when the bank cannot be evicted, or reads that should pass the page cache do not.
    """
    with (
        Model(path) as model,
        Session(model, threads=threads, context=tokens, prompt_batch=1, **way.options) as session,
    ):
        if session.option(Option.RESIDENCY) == Residency.DIRECT and "read_path" not in way.options:
            reason = refused(session)
            if reason is not None:
                raise CacheStateError(reason.reason)
        model.advise(way.advice)
        offset = ExpertBank(model).offset
        empty_bank(path, offset)
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # nothing ahead
            left = offset
            while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
                left -= len(chunk)
        yield session, residency(path, offset).share


def way_arm(path: Path, way: Way, threads: int, tokens: int) -> Arm:
    """Decodes the first `tokens` tokens of a new session, the experts cold."""

    def run() -> Sample:
        with cold_session(path, way, threads, tokens) as (session, share):
            return decode_sample(session, START, tokens, keep=_KEPT, resident=share)

    return Arm(way.name, run, run().digest, way.name, COLD)
