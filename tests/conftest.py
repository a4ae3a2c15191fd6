"""Settings that hold for every test."""

from hypothesis import HealthCheck, settings

# Deterministic, and independent of how fast the machine is: the same examples every time, no deadline.
settings.register_profile(
    "deterministic",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("deterministic")
