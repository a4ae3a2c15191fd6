"""Errors of training and of its files.

::

    ArchitectureError            a file, option or environment that training cannot work with; one sentence
    +-- TorchMissingError        PyTorch is not installed
    +-- DataError                text, tokens or a package of text that cannot be used; names the file
    +-- CheckpointError          a checkpoint or model folder is incomplete, damaged, or of another run
    |   +-- BusyError            another process trains in the folder
    +-- DivergedError            the loss is not finite; names the step and the checkpoint that was kept
"""

from engine.errors import CflowError


class ArchitectureError(CflowError):
    """A file, option or environment that training cannot work with."""


class TorchMissingError(ArchitectureError):
    """PyTorch is not installed."""


class DataError(ArchitectureError):
    """Text, tokens or a package of text that cannot be used."""


class CheckpointError(ArchitectureError):
    """A checkpoint or model folder is incomplete, damaged, or of another run."""


class BusyError(CheckpointError):
    """Another process trains in the folder."""


class DivergedError(ArchitectureError):
    """The loss or a gradient is not finite."""
