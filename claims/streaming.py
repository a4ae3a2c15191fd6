"""Claim 8, beyond: decoding while the weights are streamed from the file, ahead of the computation."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from claims.arms import stored_arm
from claims.layouts import COPY, IDS, LAYER, STAGED, Layouts
from claims.overlap import refused
from claims.run import SEED
from claims.timing import Bench
from engine.enums import Option, Reader, ReadPath
from engine.errors import CflowError
from engine.model import Model
from engine.probes import MIB
from engine.session import Session
from harness.paired import Arm, Progress, alike, run_pairs
from harness.rounds import Figure, Side, Timed, views
from harness.verdict import NotMeasurable

RING_SHARE: Final = 4
"""The ring holds a quarter of the file: more than any phase reads, and much less than a token."""
TOKENS: Final = 2


def _session(model: Model, ring_bytes: int, threads: int) -> Session:
    """Nothing in memory but norms and a row of the embedding: matrices and routed experts are read at use."""
    return Session(
        model,
        threads=threads,
        context=len(IDS) + TOKENS,
        residency="direct",
        stream_bytes=ring_bytes,
        verify="never",
    )


def _arm(layout: str, session: Session) -> Arm:
    description = f"{TOKENS} tokens, weights streamed from the {layout} file"
    return stored_arm(layout, session, IDS[-1] % session.model.vocab, TOKENS, description)


def streamed(
    files: Layouts,
    bench: Bench,
    threads: int,
    check_id: str,
    wanted: int,
    progress: Progress | None = None,
) -> dict[str, Timed | NotMeasurable]:
    """Tokens per second of either stage-major layout over layer-major, from the same rounds.

    Cells labelled with the layout. The control arm is the fresh copy. wanted: valid rounds.
    """
    ring_bytes = files.file_bytes // RING_SHARE // MIB * MIB
    try:
        with ExitStack() as opened:
            sessions = {
                layout: opened.enter_context(_session(_opened(opened, path), ring_bytes, threads))
                for layout, path in files.files.items()
            }
            one = sessions[LAYER]
            reason = refused(one)
            if reason is not None:
                return dict.fromkeys(STAGED, reason)
            # The same weights in every file.
            made = alike([_arm(layout, sessions[layout]) for layout in (LAYER, COPY, *STAGED)])
            arms = {arm.name: arm for arm in made}
            rounds = run_pairs(
                [arms[LAYER], *(arms[layout] for layout in STAGED)],
                Figure(Side(STAGED[0], "speed"), Side(LAYER, "speed")),
                bench.probes(),
                control_of=LAYER,
                control=arms[COPY],
                seed=SEED,
                rounds=wanted,
                inputs={
                    "model": files.geometry,
                    "file_bytes": files.file_bytes,
                    "ring_bytes": ring_bytes,
                    "threads": threads,
                    "reader": Reader(one.option(Option.READER)).name.lower(),
                    "read_path": ReadPath(one.option(Option.READ_PATH)).name.lower(),
                    "request_bytes": one.option(Option.READ_BYTES),
                },
                progress=progress,
            )
    except CflowError as error:
        return dict.fromkeys(STAGED, NotMeasurable(str(error)))
    chosen = {layout: Figure(Side(layout, "speed"), Side(LAYER, "speed")) for layout in STAGED}
    return dict(views(rounds, check_id, chosen))


def _opened(stack: ExitStack, path: Path) -> Model:
    return stack.enter_context(Model(path))
