"""Which windows of the text a step sees: it depends on the seed and the step alone."""

from __future__ import annotations

import numpy as np
import xxhash
from numpy.typing import NDArray

from architectures.errors import DataError


class Batches:
    """Windows of `sequence` + 1 tokens that share no prediction; each epoch takes all of them in a new order.

    A step's `batch` windows come from the epochs laid end to end, so that a run can start at any step.
    Raises DataError when there are fewer windows than a step needs.
    """

    def __init__(self, tokens: NDArray[np.uint16], sequence: int, batch: int, seed: int) -> None:
        self._tokens, self._sequence, self._batch, self._seed = tokens, sequence, batch, seed
        self.windows = max(len(tokens) - 1, 0) // sequence
        if self.windows < batch:
            raise DataError(
                f"the training text is too short: {len(tokens)} tokens are {self.windows} windows of "
                f"{sequence}, a step needs {batch}"
            )

    def at(self, step: int) -> NDArray[np.int64]:
        """The windows of a step, `[batch, sequence + 1]`."""
        starts = self._starts(step * self._batch, (step + 1) * self._batch)
        windows = [self._tokens[start : start + self._sequence + 1] for start in starts]
        return np.stack(windows).astype(np.int64)

    def order_hash(self, steps: int) -> str:
        """XXH64 of where in the text the first `steps` steps read: equal when their windows are."""
        starts = np.asarray(self._starts(0, steps * self._batch), "<i8")
        return xxhash.xxh64(starts.tobytes()).hexdigest()

    def _starts(self, first: int, last: int) -> list[int]:
        """Where the windows `first` up to `last`, counted over all epochs, begin."""
        places = np.arange(first, last)
        epochs = (places // self.windows).tolist()
        orders = {epoch: self._order(epoch) for epoch in set(epochs)}
        within = (places % self.windows).tolist()
        return [
            int(orders[epoch][place]) * self._sequence for epoch, place in zip(epochs, within, strict=True)
        ]

    def _order(self, epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng([self._seed, epoch]).permutation(self.windows)
