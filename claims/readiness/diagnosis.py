"""All findings together, what follows from them, and how ready that makes the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from claims.readiness.engine import engine_findings, storage_findings
from claims.readiness.installed import installed_findings
from claims.readiness.noise import Noise, doubtful_checks, listen, needed_bytes, noise_finding
from claims.run import REGISTRY_PATH
from engine.errors import CflowError
from harness.doctor import (
    Effect,
    Finding,
    ProfileRow,
    effects,
    machine_findings,
    profile_finding,
    profile_rows,
)
from harness.kinds import INCONCLUSIVE
from harness.machine import machine_state, usable_memory_bytes
from harness.paired import Progress
from harness.profiles import profile as named_profile
from harness.registry import load_registry

FORM: Final = 1
"""Of the JSON: counts changes that a program could stumble over."""


@dataclass(frozen=True)
class Diagnosis:
    """findings: each with what follows from it, in the order of printing. noise: None = not measured."""

    profile: str
    findings: tuple[tuple[Finding, tuple[Effect, ...]], ...]
    profiles: tuple[ProfileRow, ...]
    noise: Noise | None
    state: Mapping[str, Any]

    @property
    def fits(self) -> bool:
        """Whether the profile can run here."""
        return all(finding.state == "yes" for finding, _ in self.findings if finding.required)

    @property
    def quiet(self) -> bool | None:
        """Whether timed checks could give verdicts now; None when that was not measured."""
        return None if self.noise is None else self.noise.quiet

    def to_json(self) -> dict[str, Any]:
        """For programs: see `form`."""
        return {
            "form": FORM,
            "profile": self.profile,
            "ready": self.fits and self.quiet is not False,
            "fits": self.fits,
            "quiet": self.quiet,
            "findings": [
                {
                    **{key: asdict(finding)[key] for key in _SHOWN},
                    "effects": [
                        {
                            "verdict": effect.verdict,
                            "certain": effect.certain,
                            "checks": list(effect.checks),
                            "rows": list(effect.rows),
                        }
                        for effect in found
                    ],
                }
                for finding, found in self.findings
            ],
            "profiles": [
                {
                    "name": row.profile.name,
                    "purpose": row.profile.purpose,
                    "fits": row.fits,
                    "missing": list(row.missing),
                    "budget_s": row.budget_s,
                    "limit_s": row.profile.time_s,
                    "ram_bytes": row.profile.ram_bytes,
                    "disk_bytes": row.profile.disk_bytes,
                    "cores": row.profile.cores,
                }
                for row in self.profiles
            ],
            "noise": None if self.noise is None else self.noise.to_json(),
            "machine": dict(self.state),
        }


_SHOWN: Final = ("id", "name", "state", "required", "detail", "remedy")


def diagnose(
    profile: str, folder: Path, *, measure: bool = True, progress: Progress | None = None
) -> Diagnosis:
    """Looks at everything. folder: where results would go. measure: five seconds of A/A; progress: of these.

    Raises ProfileError for a profile that does not exist, and KeyboardInterrupt.
    """
    named_profile(profile)
    registry = load_registry(REGISTRY_PATH)
    state = machine_state(folder)
    engine = engine_findings()
    loads = engine[0].state == "yes"
    findings = [*engine, *machine_findings(state)]
    if loads:
        findings += storage_findings(folder)
    findings += [*installed_findings(), profile_finding(profile, state)]
    noise, heard = _noise(state, measure=measure and loads, progress=progress)
    if noise is not None:  # what was measured goes before what a setting makes likely
        findings = [replace(finding, doubts=False) for finding in findings]
    judged = [(finding, effects(finding, registry, profile)) for finding in findings]
    doubtful = doubtful_checks(noise, registry, profile) if noise is not None else ()
    judged.append((heard, (Effect(INCONCLUSIVE, True, doubtful, ()),) if doubtful else ()))
    return Diagnosis(profile, tuple(judged), profile_rows(registry, state), noise, state)


def _noise(
    state: Mapping[str, Any], *, measure: bool, progress: Progress | None
) -> tuple[Noise | None, Finding]:
    """The A/A, or None, with what is to be said of it."""
    if not measure:
        return None, Finding("noise", "noisy neighbours", "unknown", "not measured")
    available, needed = usable_memory_bytes(state), 2 * needed_bytes()
    if available is not None and available < needed:
        said = f"not measured: {needed / 1e6:,.0f} MB of free memory needed, {available / 1e6:,.0f} MB found"
        return None, Finding("noise", "noisy neighbours", "unknown", said)
    try:
        noise = listen(progress)
    except CflowError as error:
        return None, Finding("noise", "noisy neighbours", "unknown", f"not measured: {error}")
    return noise, noise_finding(noise)
