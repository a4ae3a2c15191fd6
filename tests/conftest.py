"""Settings that hold for every test."""

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from harness.cachestate import CacheStateError, evict

# A shell ignores Ctrl-C for what it runs in the background, and programs inherit that. The tests of Ctrl-C
# start programs, so they could not pass there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Deterministic, and independent of how fast the machine is: the same examples every time, no deadline.
settings.register_profile(
    "deterministic",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("deterministic")
# For tools.mutation (--hypothesis-profile): a fault is seen as well, and not made smaller for a minute.
settings.register_profile(
    "no_shrinking",
    settings.get_profile("deterministic"),
    phases=[phase for phase in settings.default.phases if phase not in (Phase.shrink, Phase.explain)],
)


@pytest.fixture
def cold_folder(tmp_path: Path) -> Path:
    """Where files can leave the page cache: the file `probe` in it just has."""
    probe = tmp_path / "probe"
    probe.write_bytes(bytes(1 << 20))
    try:
        evict(probe)
    except CacheStateError as error:
        pytest.skip(str(error))  # tmpfs keeps what it holds
    return tmp_path
