"""The simplest honest decode benchmark: greedy tokens in C, the bytes that they read, and the roof.

A bench is no verdict: its rounds are not interleaved with anything. The claims use paired runs.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from engine.errors import ArgumentError
from engine.model import Model
from engine.probes import MIB, Arena, Pool, read_patterns
from engine.session import OptionValue, Session

ENGINE = "cflow"
#: Counters that are bytes of weights. The keys and values of attention are not weights.
WEIGHT_COUNTERS = (
    "attention_bytes",
    "dense_bytes",
    "expert_bytes",
    "router_bytes",
    "head_bytes",
    "embedding_bytes",
)
#: A share of the roof above this says that the roof was not found, not that it was beaten.
ROOF_TOLERANCE = 1.03

_MIN_ARENA_BYTES = 256 * MIB
_CACHE_FACTOR = 4
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class Roof:
    """Best read-only bandwidth over all patterns, and that of each pattern, in bytes per second."""

    bytes_per_s: float
    pattern: str
    by_pattern: dict[str, float]


@dataclass(frozen=True)
class Row:
    """One row of `cflow bench`. Roof and share are None when the share would be above `ROOF_TOLERANCE`."""

    engine: str
    threads: int
    tok_per_s: float
    weight_bytes_per_token: float
    bytes_per_s: float
    roof_bytes_per_s: float | None
    share_of_roof: float | None
    isa: str
    tokens: int
    rounds_tok_per_s: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """As a row of `cflow bench --json`."""
        return asdict(self)


def weight_bytes(counters: dict[str, int]) -> int:
    """Bytes of weights that a session read, padding included."""
    return sum(counters[name] for name in WEIGHT_COUNTERS)


def last_level_cache_bytes(caches: Path = _CACHES) -> int:
    """Size of the largest cache of CPU 0; 0 when the kernel does not say."""
    sizes = [_kib(path) for path in caches.glob("index*/size")]
    return max(sizes, default=0) * 1024


def measure_roof(threads: int, *, size_bytes: int | None = None, passes: int = 5) -> Roof:
    """Reads an arena with every pattern; the first pass of each is dropped, the best of the others counts.

    The arena has at least four times the last-level cache, so that nothing but memory can answer.
    """
    size = size_bytes or max(_MIN_ARENA_BYTES, _CACHE_FACTOR * last_level_cache_bytes())
    found: dict[str, float] = {}
    with Pool(threads) as pool, Arena(pool, size) as arena:
        for index, name in enumerate(read_patterns()):
            elapsed = [arena.read(index)[0] for _ in range(passes + 1)][1:]
            found[name] = size / min(elapsed) * 1e9
    best = max(found, key=lambda name: found[name])
    return Roof(found[best], best, found)


def measure_decode(
    model: Model,
    *,
    tokens: int = 64,
    rounds: int = 5,
    progress: Callable[[int, int], None] | None = None,
    **options: OptionValue,
) -> Row:
    """Greedy decode of `tokens` tokens a round, after a round that is dropped; then the roof, same threads.

    Every round starts from an empty context. `progress(done, total)` counts rounds. Raises ArgumentError when
    the tokens do not fit in the context.
    """
    if tokens < 1 or rounds < 1:
        raise ArgumentError(f"tokens and rounds are {tokens} and {rounds}, both must be at least 1")
    if tokens > model.context:
        raise ArgumentError(f"tokens is {tokens}, the context of the model has {model.context} positions")
    start = model.bos or 0
    speeds: list[float] = []
    with Session(model, context=tokens, **options) as session:
        for index in range(rounds + 1):
            session.reset()
            if index == 1:
                session.reset_counters()
            _, elapsed_ns = session.generate(start, tokens)
            speeds.append(tokens / int(elapsed_ns.sum()) * 1e9)
            if progress is not None:
                progress(index + 1, rounds + 1)
        counters = session.counters()
        threads, isa = session.threads, session.isa
    per_token = weight_bytes(counters) / counters["tokens"]
    speed = median(speeds[1:])
    roof = measure_roof(threads).bytes_per_s
    share = speed * per_token / roof
    sound = share <= ROOF_TOLERANCE
    return Row(
        engine=ENGINE,
        threads=threads,
        tok_per_s=speed,
        weight_bytes_per_token=per_token,
        bytes_per_s=speed * per_token,
        roof_bytes_per_s=roof if sound else None,
        share_of_roof=share if sound else None,
        isa=isa.name.lower(),
        tokens=tokens,
        rounds_tok_per_s=tuple(speeds[1:]),
    )


def _kib(path: Path) -> int:
    # The kernel writes "32768K".
    try:
        return int(path.read_text().strip().removesuffix("K"))
    except (OSError, ValueError):
        return 0
