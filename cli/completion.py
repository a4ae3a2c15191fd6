"""What a shell offers for arguments and options: names that exist and begin with what was typed.

typer writes the script of the shell (`cflow --install-completion`) and calls these for the words of a line.
"""

from collections.abc import Callable, Iterable

from architectures.sources import SOURCES
from architectures.table import ARCHITECTURES, PRESETS
from baselines.install import RECIPES
from cli.registry import registry
from engine.geometry import GEOMETRIES
from harness.errors import HarnessError
from harness.profiles import PROFILES

Offer = Callable[[str], list[str]]
"""Given what was typed of a word: the words that it may become."""


def profile_names(incomplete: str) -> list[str]:
    """Profiles of a run."""
    return _beginning((one.name for one in PROFILES), incomplete)


def claim_and_check_ids(incomplete: str) -> list[str]:
    """Claims and checks of this installation; none when its registry cannot be read."""
    try:
        found = registry()
    except HarnessError:
        return []
    return _beginning(found.ids, incomplete)


def geometry_names(incomplete: str) -> list[str]:
    """Geometries that have a name."""
    return _beginning(GEOMETRIES, incomplete)


def baseline_names(incomplete: str) -> list[str]:
    """Engines to compare with."""
    return _beginning(RECIPES, incomplete)


def text_names(incomplete: str) -> list[str]:
    """Texts of `cflow data get`."""
    return _beginning(SOURCES, incomplete)


def architecture_names(incomplete: str) -> list[str]:
    """Architectures that can be trained."""
    return _beginning(ARCHITECTURES, incomplete)


def preset_names(incomplete: str) -> list[str]:
    """Sizes of a training."""
    return _beginning(PRESETS, incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
