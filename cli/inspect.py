"""`cflow inspect`: what a .cflow or .vflow file holds."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.console import JsonOption, mb, print_json
from engine.enums import Activation, Architecture, Order, Route
from engine.model import Model, Tensor
from engine.tensors import OPTIONAL_ROLES

_WORDS = {"architecture": Architecture, "route": Route, "activation": Activation}

_ORDERS = {
    Order.LAYER: "layer-major",
    Order.PHASE: "stage-major, by phase of the schedule",
    Order.KIND: "stage-major, by kind of matrix",
}


def inspect(
    path: Annotated[Path, typer.Argument(help="A .cflow or .vflow model.")],
    verify: Annotated[bool, typer.Option("--verify", help="Read all data and check every hash.")] = False,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    json: JsonOption = False,
) -> None:
    """Show the parameters and tensors of a model. Header and tables are always verified."""
    with Model(path) as model:
        if verify:
            model.verify()
        found = model.tensors
        params = _params(model)
        if json:
            print_json(
                {
                    "path": str(path),
                    "name": model.name,
                    "file_bytes": model.file_bytes,
                    "order": model.order.name.lower(),
                    "verified": verify,
                    "tokenizer": model.tokenizer_json is not None,
                    "optional_tensors": _optional(found),
                    "params": params,
                    "weights": sum(tensor.weights for tensor in found),
                    "tensors": [_tensor_json(tensor) for tensor in found],
                }
            )
            return
        print(f"{path}: {model.name or 'unnamed'}, {mb(model.file_bytes)}, {len(found)} tensors")
        print(f"  {'order':<18} {_ORDERS[model.order]}")
        for name, value in params.items():
            print(f"  {name:<18} {value}")
        print(f"  {'tokenizer':<18} {'yes' if model.tokenizer_json else 'no'}")
        print(f"  {'optional tensors':<18} {', '.join(_optional(found)) or 'none'}")
        _print_types(found)
        if tensors:
            for tensor in found:
                print(_line(tensor))
        if verify:
            print("all hashes are right, all scales and values finite")


def _params(model: Model) -> dict[str, Any]:
    """Parameters by name: floats and words in place of bits and numbers, None for absent ids."""
    params: dict[str, Any] = dict(model.params)
    for name, words in _WORDS.items():
        params[name] = words(params[name]).name.lower()
    del params["rms_eps_bits"], params["rope_base_bits"]
    return {
        **params,
        "rms_eps": model.rms_eps,
        "rope_base": model.rope_base,
        "bos": model.bos,
        "eos": model.eos,
    }


def _optional(tensors: list[Tensor]) -> list[str]:
    """Roles of tensors that no parameter announces: biases of q, k and v; norms of q and k."""
    return sorted({tensor.role.name.lower() for tensor in tensors if tensor.role in OPTIONAL_ROLES})


def _tensor_json(tensor: Tensor) -> dict[str, Any]:
    names = {
        "role": tensor.role.name.lower(),
        "type": tensor.type.name.lower(),
        "hash": f"{tensor.hash:016x}",
    }
    return {**asdict(tensor), **names}


def _print_types(tensors: list[Tensor]) -> None:
    weights: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        weights[tensor.type.name.lower()] += tensor.weights
        sizes[tensor.type.name.lower()] += tensor.bytes
    for name in weights:
        print(f"  {name:<18} {weights[name] / 1e6:.2f} M weights, {mb(sizes[name])}")


def _line(tensor: Tensor) -> str:
    rows = " + ".join(str(rows) for rows in tensor.rows)
    kind = tensor.type.name.lower()
    return f"  {tensor.name:<28} {kind:<5} {rows} x {tensor.columns}  {tensor.bytes} B at {tensor.offset}"
