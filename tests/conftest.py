"""Settings that hold for every test."""

import signal

from hypothesis import HealthCheck, settings

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
