"""The claims of this installation."""

from importlib import resources
from pathlib import Path

from harness.registry import Registry, load_registry


def claims_path() -> Path:
    """Its claims.toml."""
    return Path(str(resources.files("claims") / "claims.toml"))


def registry() -> Registry:
    """Read and validated. Raises RegistryError."""
    return load_registry(claims_path())
