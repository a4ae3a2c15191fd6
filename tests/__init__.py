"""Tests of all packages, mirroring their folders; helpers are imported as tests.<folder>.<module>."""
