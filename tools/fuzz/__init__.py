"""Fuzzing the readers of model files: `python -m tools.fuzz TARGET` (docs/develop/fuzzing.md)."""
