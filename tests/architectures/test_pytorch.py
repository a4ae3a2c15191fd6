"""What the package is without PyTorch; these tests run where it is not installed, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import architectures
from architectures.errors import TorchMissingError


def test_without_torch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("architectures.pytorch.torch_installed", lambda: False)
    with pytest.raises(TorchMissingError, match=r"pip install '\.\[train\]'"):
        architectures.load(tmp_path)


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, architectures.config, architectures.table; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
