"""Makes the pinned traces of the parity claim: `python -m tools.pin_parity` (needs the extra `train`).

Each of the six architectures, with width 64 and a vocabulary of bytes, is trained for 120 steps on
claims/prompt.txt, stored in q4_0, and run by PyTorch over the first 512 bytes of claims/text.txt, which it
has not seen. Cross-entropy alone, without a loss for the balance of the experts: what counts here is weights
with the structure that training gives them, not how good they are. Another PyTorch gives other bytes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import tokenizers
import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from torch.nn import functional

from architectures.config import Config
from architectures.folder import save_model
from architectures.model import Decoder
from architectures.table import Preset, geometry
from claims.parity_torch import trace
from claims.parity_trace import PINNED, SIX, TEXT_TOKENS
from engine.convert_checkpoint import convert_checkpoint
from engine.tokenizer import Tokenizer

CLAIMS = Path(__file__).resolve().parent.parent / "claims"
STEPS, BATCH, LENGTH, RATE, SEED = 120, 8, 96, 3e-3, 20_260_824
KEPT_EVERY = 8
SEEDS, LEAST_ROUTER_GAP = 10, 3e-5
"""A near tie of experts that rounds otherwise changes every logit after it, not one choice."""
WIDTH, EXPERT_HIDDEN, DENSE_HIDDEN, EXPERTS = 64, 32, 128, 4


def byte_tokenizer() -> str:
    """tokenizer.json of a vocabulary of the 256 bytes and <|endoftext|>."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
    return str(inner.to_str())


def trained(name: str, ids: list[int], vocab: int, seed: int) -> Decoder:
    """A model that has read `ids` for a while. Equal seeds give equal weights."""
    sizes = Preset(WIDTH, heads=4, vocab=vocab, batch=BATCH, sequence=LENGTH, lr=RATE, experts=EXPERTS)
    shape = geometry(name, sizes)
    shape = replace(shape, ffn_hidden=DENSE_HIDDEN, expert_hidden=EXPERT_HIDDEN)
    torch.manual_seed(seed)
    model = Decoder(Config(name, shape, None, vocab - 1))
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    text = torch.tensor(ids)
    rng = np.random.default_rng(seed)
    for step in range(STEPS):
        starts = rng.integers(0, len(ids) - LENGTH - 1, BATCH)
        batch = torch.stack([text[start : start + LENGTH + 1] for start in starts])
        loss = functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0 or step + 1 == STEPS:
            print(f"{name}: step {step}, loss {loss.item():.3f}", flush=True)
    return model


def pin(name: str, out: Path) -> None:
    """Writes NAME.cflow and NAME.npz into `out`; the first seed whose routers decide clearly everywhere."""
    json = byte_tokenizer()
    tokenizer = Tokenizer.from_json(json)
    read = tokenizer.encode((CLAIMS / "prompt.txt").read_text())
    tokens = tokenizer.encode((CLAIMS / "text.txt").read_text())[: TEXT_TOKENS + 1]
    for seed in range(SEED, SEED + SEEDS):
        model = trained(name, read, tokenizer.vocab, seed)
        with tempfile.TemporaryDirectory() as folder:
            save_model(Path(folder), model, json)
            convert_checkpoint(Path(folder), out / f"{name}.cflow")
        made = trace(out / f"{name}.cflow", tokens, KEPT_EVERY)
        print(
            f"{name}: seed {seed}, perplexity {np.exp(made.nats.mean()):.3f}, {int(made.exempt.sum())} near "
            f"ties, least gap of a router {made.router_gaps.min():.2g}"
        )
        if made.router_gaps.min() >= LEAST_ROUTER_GAP:
            made.save(out / f"{name}.npz")
            return
    raise SystemExit(f"{name}: no seed of {SEEDS} keeps every choice of experts clear of rounding")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tools.pin_parity", description=__doc__)
    parser.add_argument("--out", type=Path, default=PINNED)
    parser.add_argument("--only", choices=SIX, default=None, help="one architecture")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in SIX if arguments.only is None else (arguments.only,):
        pin(name, arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
