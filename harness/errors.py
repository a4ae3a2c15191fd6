"""Errors of the harness.

HarnessError
├── RegistryError    claims.toml breaks a rule; names the key
├── EvidenceError    raw material that cannot be evidence; names the field
├── ResultsError     results.json is missing, damaged, or of another run; names the field
├── ComparisonError  runs that cannot be held against each other; names both
└── ProfileError     an unknown profile
"""

from __future__ import annotations


class HarnessError(Exception):
    """Base of every error that the harness raises on purpose."""


class RegistryError(HarnessError):
    """claims.toml breaks a rule."""


class EvidenceError(HarnessError):
    """Raw material that cannot be evidence."""


class ResultsError(HarnessError):
    """results.json is missing, damaged, or belongs to another run."""


class ProfileError(HarnessError):
    """A profile that does not exist."""


class ComparisonError(HarnessError):
    """Runs that cannot be held against each other."""
