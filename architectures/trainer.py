"""The training loop: from arguments and tokens to the trained model in its folder."""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from architectures.arguments import Arguments, Options, cpu_name
from architectures.atomic import write_atomically
from architectures.batches import Batches
from architectures.checkpoint import CHECKPOINT_NAME, read_checkpoint, restore, save_checkpoint
from architectures.config import Config
from architectures.errors import DivergedError
from architectures.evaluation import evaluate
from architectures.folder import save_model
from architectures.metrics import Metrics, Progress, plot_loss
from architectures.model import Decoder, Trace
from architectures.moe import choices, load_balancing_loss
from architectures.prepared import Prepared
from architectures.processes import Processes, use_threads
from architectures.pytorch import keep_freed_memory
from architectures.run_folder import RESULT_NAME, claimed
from architectures.stories import Part
from architectures.table import geometry, preset

_VALIDATION_TOKENS = 16384  # of a validation on the way


@dataclass(frozen=True)
class StepLosses:
    """Of one step: cross entropy in nats per token, balancing loss, norm of the gradient before clipping."""

    loss: float
    balance: float
    gradient_norm: float


class Trainer:
    """Model, optimiser and batches of one run; `step` counts the steps done."""

    def __init__(self, arguments: Arguments, data: Prepared, group: Processes) -> None:
        torch.manual_seed(arguments.seed)
        shape = geometry(arguments.architecture, preset(arguments.preset), data.vocab)
        self.arguments, self.group = arguments, group
        self.model = Decoder(Config(arguments.architecture, shape, eos=data.eos))
        self._called = group.wrap(self.model)
        self._batches = Batches(data.tokens[Part.TRAIN], arguments.sequence, arguments.batch, arguments.seed)
        parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(
            [
                {"params": [p for p in parameters if p.dim() > 1], "weight_decay": arguments.weight_decay},
                {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
            ],
            lr=arguments.lr,
            betas=(arguments.beta1, arguments.beta2),
            fused=True,
        )
        self.step = 0

    def one_step(self) -> StepLosses:
        """Raises DivergedError, before the weights change, when the loss or a gradient is not finite."""
        windows = self.group.share(torch.from_numpy(self._batches.at(self.step)))
        loss, balance = self._losses(windows)
        (loss + self.arguments.balance_weight * balance).backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.arguments.clip_norm)
        seen = self.group.mean(torch.stack([loss.detach(), balance.detach(), norm.detach()])).tolist()
        losses = StepLosses(*seen)
        for name, value in asdict(losses).items():
            if not math.isfinite(value):
                raise DivergedError(f"{name} is {value} at step {self.step + 1}")
        for group in self.optimizer.param_groups:
            group["lr"] = self.arguments.lr_at(self.step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return losses

    def _losses(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        trace = Trace()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.arguments.precision == "bf16"):
            logits = self._called(windows[:, :-1], trace)
        loss = functional.cross_entropy(logits.float().flatten(0, 1), windows[:, 1:].flatten())
        chosen = self.model.config.geometry.experts_per_token
        # Shares of all processes: then the mean of their gradients is the gradient of the whole batch.
        shares = self.group.mean(torch.stack([choices(logits, chosen) for logits in trace.router_logits]))
        return loss, load_balancing_loss(trace.router_logits, shares)


def train(
    arguments: Arguments,
    options: Options,
    data: Prepared,
    group: Processes,
    report: Callable[[Progress], None] = lambda progress: None,
) -> dict[str, Any]:
    """Trains to the end, or goes on where the checkpoint in `options.out` is; the content of result.json.

    Raises CheckpointError for a folder that holds another run or a damaged checkpoint, DataError for a text
    that is too short, DivergedError naming the step and the checkpoint that is left.
    """
    use_threads(options.threads, group.world)
    torch.use_deterministic_algorithms(True)
    keep_freed_memory()
    with claimed(arguments, options, data, group) as complete:
        if complete is not None:
            return complete
        trainer = Trainer(arguments, data, group)
        path = options.out / CHECKPOINT_NAME
        if path.exists():
            saved = read_checkpoint(path)
            restore(saved, trainer.model, trainer.optimizer)
            trainer.step = saved.step
        started_s = time.monotonic()
        _loop(trainer, options, data, path, report)
        return _finish(trainer, options, data, time.monotonic() - started_s)


def _loop(
    trainer: Trainer, options: Options, data: Prepared, path: Path, report: Callable[[Progress], None]
) -> None:
    arguments, leads = trainer.arguments, trainer.group.leads
    metrics = Metrics(options.out, trainer.step) if leads else None
    first, started_s = trainer.step, time.monotonic()
    while trainer.step < arguments.steps:
        try:
            losses = trainer.one_step()
        except DivergedError as error:
            kept = (
                f"the checkpoint before it is kept: {path}"
                if path.exists()
                else "there was no checkpoint yet"
            )
            raise DivergedError(f"{error}; {kept}") from None
        if metrics is None:
            continue
        step = trainer.step
        last = step == arguments.steps
        if step % options.log_every == 0 or last:
            metrics.add(step=step, **asdict(losses), lr=arguments.lr_at(step - 1))
            per_step_s = (time.monotonic() - started_s) / (step - first)
            speed = arguments.batch * arguments.sequence / per_step_s
            report(Progress(step, arguments.steps, losses.loss, speed, per_step_s * (arguments.steps - step)))
        if step % options.validate_every == 0 or last:
            seen = evaluate(
                trainer.model, data.tokens[Part.VALIDATION], arguments.sequence, _VALIDATION_TOKENS
            )
            metrics.add(step=step, validation_log_perplexity=seen.log_perplexity)
        if step % options.checkpoint_every == 0 or last:
            save_checkpoint(path, step, asdict(arguments), trainer.model, trainer.optimizer)


def _finish(trainer: Trainer, options: Options, data: Prepared, elapsed_s: float) -> dict[str, Any]:
    arguments, out = trainer.arguments, options.out
    test = evaluate(trainer.model, data.tokens[Part.TEST], arguments.sequence)
    result = {
        "arguments": asdict(arguments),
        "data": data.hashes,
        "parameters": trainer.model.config.geometry.parameters,
        "test_log_perplexity": test.log_perplexity,
        "test_perplexity": math.exp(test.log_perplexity),
        "test_top1": test.top1,
        "test_tokens": test.tokens,
        "elapsed_s": elapsed_s,
        "torch": torch.__version__,
        "machine": platform.machine(),
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
        "processes": trainer.group.world,
    }
    if trainer.group.leads:
        save_model(out, trainer.model, data.tokenizer_json)
        plot_loss(out, f"{arguments.architecture}, {arguments.preset}, seed {arguments.seed}")
        write_atomically(out / RESULT_NAME, (json.dumps(result, indent=2) + "\n").encode())
        (out / CHECKPOINT_NAME).unlink(missing_ok=True)
    trainer.group.wait()
    return result
