"""A llama.cpp that is our own engine under its interface: the comparison is tested without the real one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from baselines.errors import BaselineError
from baselines.llamacpp import Decoded, Followed, Info
from engine.convert_gguf import convert
from engine.model import Model
from engine.session import Session

NO_PROCESS = 1 << 22
"""Above the largest process id of Linux."""


_TOKEN_NS = 100_000


class FakeLlamaCpp:
    """Decodes a GGUF with our engine. The class attributes are what a test changes."""

    repack_mib = 0.0
    shuffled = False
    """Whether its logits belong to other ids: it computes something else."""
    nudge = 0.0
    """Added to the logit of its second choice."""
    prompt_slower = 1.0
    """How much longer a prompt takes with flash attention."""
    loads: list[dict[str, Any]] = []
    slept = 0

    def __init__(self, *, huge_pages: bool = False) -> None:
        self._huge_pages_mib = 1.0 if huge_pages else 0.0
        self._model: Model | None = None
        self._session: Session | None = None
        self.pid = NO_PROCESS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._model is not None:
            self._model.close()

    def load(self, gguf: Path, threads: int, **settings: Any) -> None:
        type(self).loads.append({"threads": threads, **settings})
        target = gguf.with_suffix(".fake.cflow")
        if not target.exists():
            convert(gguf, target)
        self.__exit__()
        self._model = Model(target)
        self._session = Session(self._model, threads=threads, context=settings["context"])
        self._settings = {"threads": threads, **settings}

    def _loaded(self) -> Session:
        if self._session is None:
            raise BaselineError("no model is loaded")
        return self._session

    def _logits(self, tokens: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float32]]:
        logits = self._loaded().decode(tokens)
        logits[np.argsort(logits)[-2]] += self.nudge
        return logits[::-1] if self.shuffled else logits

    def decode(self, tokens: Sequence[int], *, logits_of: Sequence[int] = ()) -> Decoded:
        logits = self._logits(tokens)
        best = int(np.argmax(logits))
        # Made up, so that no test depends on which of two settings was faster.
        slower = self.prompt_slower if len(tokens) > 1 and self._settings["flash_attention"] else 1.0
        return Decoded(
            argmax=best,
            top=((best, float(logits[best])),),
            logits=tuple(float(logits[token]) for token in logits_of),
            finite=True,
            ns=round(_TOKEN_NS * len(tokens) * slower),
            run_delay_ns=0,
        )

    def follow(self, tokens: Sequence[int]) -> Followed:
        answers = [self.decode([token]) for token in tokens]
        argmax = tuple(answer.argmax for answer in answers)
        return Followed(argmax, tuple(answer.ns for answer in answers), 0)

    def rest(self) -> None:
        type(self).slept += 1

    def reset(self) -> None:
        self._loaded().reset()

    def info(self) -> Info:
        settings = self._settings
        return Info(
            version="fake",
            ggml_version="fake",
            commit="fake",
            back_end="fake",
            features="",
            model="",
            model_bytes=0,
            threads=settings["threads"],
            cpus=tuple(settings["cpus"]),
            poll=settings["poll"],
            repack_allowed=settings["repack"],
            repack_mib=self.repack_mib if settings["repack"] else 0.0,
            buffers_mib={},
            huge_pages_mib=self._huge_pages_mib,
            mmap=settings["mmap"],
            flash_attention_asked=settings["flash_attention"],
            flash_attention=settings["flash_attention"],
            kv_type="f16",
            context=settings["context"],
        )
