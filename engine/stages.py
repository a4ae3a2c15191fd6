"""The order of the tensors of a file that is yet to be written, from the schedule that its header gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.arrangement import LAYER_MAJOR, Arrangement, by_kind, by_phase
from engine.enums import Order
from engine.errors import FileError
from engine.held import temporary_folder
from engine.hyperparameters import Hyperparameters
from engine.layout import FileLayout, plan
from engine.model import Model
from engine.session import OptionValue, Session
from engine.tensors import TensorSpec


@contextmanager
def blank_session(layout: FileLayout, folder: Path, **options: OptionValue) -> Iterator[Session]:
    """A session of which only the schedule is used: header and tables over a sparse file without weights.

    folder: where the file lies meanwhile. options: of the session, beside one thread and a context of one.
    """
    try:
        with temporary_folder(folder, ".schedule-") as temporary:
            path = temporary / "schedule.cflow"
            with path.open("wb") as file:
                file.write(layout.front([0] * len(layout.specs), [0] * len(layout.expert_regions)))
                file.truncate(layout.file_bytes)
            with Model(path) as model, Session(model, threads=1, context=1, **options) as session:
                yield session
    except OSError as error:
        raise FileError(f"{folder}: cannot be written: {error.strerror}") from error


def arrangement_of(
    order: Order, hparams: Hyperparameters, specs: Sequence[TensorSpec], folder: Path
) -> Arrangement:
    """The arrangement of a model's tensors in that order.

    By phase it is read from the schedule of a session, for which a sparse file lies in `folder` meanwhile.
    Raises FileError when that cannot be written, and LibraryError.
    """
    if order is Order.LAYER:
        return LAYER_MAJOR
    if order is Order.KIND:
        return by_kind(hparams.tied_head)
    with blank_session(plan(hparams, specs), folder) as session:
        return by_phase(session.schedule(), hparams.blocks, hparams.tied_head)
