"""The paper's six architectures in PyTorch: definitions, training, and the folders that hold a trained model.

The table of what makes each of them is in `table.py`, the equations are in `combine.py`, `layers.py` and
`moe.py`. PyTorch is an optional extra, `pip install '.[train]'`; this package imports without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from architectures.pytorch import require_torch

if TYPE_CHECKING:
    from architectures.model import Decoder


def load(folder: Path, **changes: Any) -> Decoder:
    """The trained model of `folder` in evaluation mode, in f32.

    changes: fields of its geometry to replace, as `dd=1` for a delay that it was not trained with.
    Raises TorchMissingError, and CheckpointError naming the file and the field or tensor.
    """
    require_torch()
    from architectures.folder import load_model

    return load_model(folder, changes)
