"""NumPy reference of the forward pass, written from the equations: slow, plain, independent of the C code."""

from engine.reference.forward import Reference
from engine.reference.weights import Weights, load_weights

__all__ = ["Reference", "Weights", "load_weights"]
