"""What is run again and again: turns of a bench, or sessions that are opened, used and closed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from claims.arms import read_whole
from claims.models import synthetic
from claims.timing import digest
from claims.turns import engine_arm, greedy_course
from engine.enums import Isa, Reader
from engine.geometry import Geometry
from engine.kernels import isa_supported
from engine.model import Model
from engine.session import OptionValue, Session
from tools.load.loop import Turn

PROMPT: Final = tuple(range(1, 17))
START: Final = 11
WAYS: Final[dict[str, dict[str, OptionValue]]] = {
    "memory": {"residency": "mmap"},
    "direct": {"residency": "direct", "expert_reads": "staged"},
}
SMALL: Final = Geometry.parse(
    "d=128,layers=4,ffn=256,vocab=512,experts=8,experts_per_token=2,expert_hidden=64"
)

Body = Callable[[int], Turn]


@contextmanager
def decoding(path: Path, way: str, threads: int, tokens: int) -> Iterator[Body]:
    """Turns of `cflow bench` in one session: a prompt, then tokens. way: one of WAYS."""
    read_whole(path)
    with (
        Model(path) as model,
        Session(model, threads=threads, context=len(PROMPT) + tokens, **WAYS[way]) as session,
    ):
        arm = engine_arm(way, session, greedy_course(session, PROMPT, tokens))

        def turn(_number: int) -> Turn:
            sample = arm.run()
            return Turn(way, sample.digest, sample.work, sample.ns)

        yield turn


def small_model(folder: Path) -> Path:
    """The model of the sessions: few megabytes, experts, delays."""
    return synthetic(folder, "load-small", SMALL)


def session_options(rng: random.Random, threads: int) -> dict[str, OptionValue]:
    """Options of one session, any that change what it allocates, starts or opens."""
    chosen: dict[str, OptionValue] = {
        "threads": rng.randint(1, threads),
        "context": rng.choice((4, 32, 200)),
        "residency": rng.choice(("mmap", "copy", "direct")),
        "q8_activations": rng.randint(0, 1),
        "fused": rng.randint(0, 1),
        "kv_f32": rng.randint(0, 1),
        "pin": rng.randint(0, 1),
        "prompt_batch": rng.choice((1, 8, 32)),
        "prefetch_hint": rng.choice(("none", "t0", "nta")),
        "isa": rng.choice([isa.name.lower() for isa in Isa if isa_supported(isa)]),
    }
    if chosen["residency"] == "direct":
        chosen["reader"] = rng.choice([reader.name.lower() for reader in Reader])
        chosen["expert_reads"] = rng.choice(("sync", "staged"))
        chosen["read_path"] = rng.choice(("direct", "buffered"))
        chosen["read_bytes"] = rng.choice((1 << 16, 1 << 20))
    return chosen


@contextmanager
def sessions(path: Path, threads: int, seed: int) -> Iterator[Body]:
    """Each run opens the model and a session with options of its own, decodes two tokens, closes both."""

    def turn(number: int) -> Turn:
        options = session_options(random.Random(f"{seed} {number}"), threads)
        with Model(path) as model, Session(model, **options) as session:
            chosen, elapsed = session.generate(START, 2)
            counted = ("isa", "q8_activations", "kv_f32")
            key = ", ".join(f"{name} {options[name]}" for name in counted)
            return Turn(key, digest(chosen), 2, max(1, int(elapsed.sum())))

    yield turn
