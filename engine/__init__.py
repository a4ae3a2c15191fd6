"""The decode engine: a C library, its ctypes wrapper, file writers and converters, and a NumPy reference.

Importing this package loads no C library; the first call that needs it does.
"""

from engine.errors import CflowError
from engine.kernels import Kernel, kernels
from engine.model import Model, Tensor
from engine.probes import Arena, Pool
from engine.session import Piece, Sampler, Session

__all__ = [
    "Arena",
    "CflowError",
    "Kernel",
    "Model",
    "Piece",
    "Pool",
    "Sampler",
    "Session",
    "Tensor",
    "kernels",
]
