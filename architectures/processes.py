"""One training run in several processes: PyTorch's DistributedDataParallel over gloo, under torchrun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from architectures.errors import ArchitectureError


@dataclass(frozen=True)
class Processes:
    """This process among `world`; alone: rank 0 of 1."""

    rank: int
    world: int

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes files and reports."""
        return self.rank == 0

    def share(self, batch: Tensor) -> Tensor:
        """This process's rows of a batch. Raises ArchitectureError when they do not divide."""
        if len(batch) % self.world:
            raise ArchitectureError(
                f"batch is {len(batch)}, must be a multiple of the {self.world} processes"
            )
        return batch.chunk(self.world)[self.rank]

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as the training loop calls it: its gradients are means over the processes."""
        return DistributedDataParallel(model) if self.world > 1 else model

    def mean(self, value: Tensor) -> Tensor:
        """The mean over the processes, in place; without gradient."""
        if self.world > 1:
            distributed.all_reduce(value)
            value /= self.world
        return value

    def wait(self) -> None:
        """Until all processes are here."""
        if self.world > 1:
            distributed.barrier()


@contextmanager
def processes() -> Iterator[Processes]:
    """The processes that torchrun started, connected; this one alone without torchrun."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Processes(0, 1)
        return
    distributed.init_process_group("gloo")
    try:
        yield Processes(distributed.get_rank(), world)
    finally:
        distributed.destroy_process_group()


def use_threads(threads: int | None, world: int) -> None:
    """Sets PyTorch's threads; by default the cores are shared by the processes of this machine."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    if threads is not None or local > 1:
        torch.set_num_threads(threads or max((os.cpu_count() or 1) // local, 1))
