"""The fixed vocabulary of the evidence: verdicts, kinds of evidence, claim ids, profile names."""

from __future__ import annotations

from typing import Final, Literal, get_args

Kind = Literal["counted", "kernel", "simulated", "hardware", "timed", "derived"]
Verdict = Literal["SUPPORTED", "REFUTED", "INCONCLUSIVE", "NOT MEASURABLE HERE"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
SUPPORTED: Final[Verdict] = "SUPPORTED"
REFUTED: Final[Verdict] = "REFUTED"
INCONCLUSIVE: Final[Verdict] = "INCONCLUSIVE"
NOT_MEASURABLE: Final[Verdict] = "NOT MEASURABLE HERE"

CLAIM_IDS: Final = ("1", "2", "3", "4", "5", "6", "7", "8", "end_to_end", "quality", "parity")
PROFILE_NAMES: Final = ("smoke", "quick", "full", "paper")

Target = tuple[float, float]
"""[low, high], both ends included; an open end is -inf or inf."""
