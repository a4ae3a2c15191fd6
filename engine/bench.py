"""What a bench counts and how large its arrays must be; the rounds themselves are the harness's."""

from pathlib import Path

#: Counters that are bytes of weights. The keys and values of attention are not weights.
WEIGHT_COUNTERS = (
    "attention_bytes",
    "dense_bytes",
    "expert_bytes",
    "router_bytes",
    "head_bytes",
    "embedding_bytes",
)

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def weight_bytes(counters: dict[str, int]) -> int:
    """Bytes of weights that a session read, padding included."""
    return sum(counters[name] for name in WEIGHT_COUNTERS)


def last_level_cache_bytes(caches: Path = _CACHES) -> int:
    """Size of the largest cache of CPU 0; 0 when the kernel does not say."""
    sizes = [_kib(path) for path in caches.glob("index*/size")]
    return max(sizes, default=0) * 1024


def _kib(path: Path) -> int:
    # The kernel writes "32768K".
    try:
        return int(path.read_text().strip().removesuffix("K"))
    except (OSError, ValueError):
        return 0
