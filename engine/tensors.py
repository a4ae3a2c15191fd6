"""Which tensors a .cflow file holds: roles, shapes and their order (comment "FILE FORMAT" of cflow.h)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine.enums import Architecture, Role, Type
from engine.errors import ArgumentError
from engine.hyperparameters import Hyperparameters
from engine.tiles import TileLayout, TileShape, align_up

DATA_ALIGN_BYTES = 64
MAX_TENSORS = 1 << 20

#: Roles of each unique block in file order, outside the expert bank: the order in which a token without
#: delays uses them (the router runs beside gate and up, the experts beside down).
BLOCK_ROLES = (
    Role.ATTN_NORM,
    Role.ATTN_QKV,
    Role.ATTN_QKV_BIAS,
    Role.ATTN_Q_NORM,
    Role.ATTN_K_NORM,
    Role.ATTN_OUTPUT,
    Role.REGISTER,
    Role.FFN_NORM,
    Role.MOE_NORM,
    Role.FFN_GATE_UP,
    Role.ROUTER,
    Role.FFN_DOWN,
)
EXPERT_ROLES = (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN)
QK_NORM_ROLES = (Role.ATTN_Q_NORM, Role.ATTN_K_NORM)
#: Tensors that a block may lack whatever the header says; the two norms come together.
OPTIONAL_ROLES = frozenset({Role.ATTN_QKV_BIAS, *QK_NORM_ROLES})
VECTOR_ROLES = OPTIONAL_ROLES | {
    Role.ATTN_NORM,
    Role.FFN_NORM,
    Role.MOE_NORM,
    Role.REGISTER,
    Role.OUTPUT_NORM,
}


def shape_of(hparams: Hyperparameters, role: Role) -> tuple[tuple[int, ...], int] | None:
    """Rows of each part and columns (1 for a vector) of a tensor; None when this model has no such tensor.

    The shape of an optional tensor is given although a model may lack it.
    """
    h = hparams
    queries, keys = h.heads * h.head_dim, h.kv_heads * h.head_dim
    dense, moe = h.ffn_hidden > 0, h.experts > 0
    vector = ((h.d_model,), 1)
    shapes: dict[Role, tuple[tuple[int, ...], int] | None] = {
        Role.EMBEDDING: ((h.vocab,), h.d_model),
        Role.ATTN_NORM: vector,
        Role.ATTN_QKV: ((queries, keys, keys), h.d_model),
        Role.ATTN_QKV_BIAS: ((queries + 2 * keys,), 1),
        Role.ATTN_Q_NORM: ((h.head_dim,), 1),
        Role.ATTN_K_NORM: ((h.head_dim,), 1),
        Role.ATTN_OUTPUT: ((h.d_model,), queries),
        Role.FFN_NORM: vector if dense else None,
        Role.FFN_GATE_UP: ((h.ffn_hidden, h.ffn_hidden), h.d_model) if dense else None,
        Role.FFN_DOWN: ((h.d_model,), h.ffn_hidden) if dense else None,
        Role.MOE_NORM: vector if moe else None,
        Role.ROUTER: ((h.experts,), h.d_model) if moe else None,
        Role.REGISTER: vector if h.architecture is Architecture.REGISTER else None,
        Role.OUTPUT_NORM: vector,
        Role.HEAD: None if h.tied_head else ((h.vocab,), h.d_model),
        Role.EXPERT_GATE_UP: ((h.expert_hidden, h.expert_hidden), h.d_model) if moe else None,
        Role.EXPERT_DOWN: ((h.d_model,), h.expert_hidden) if moe else None,
    }
    return shapes[role]


def tensor_name(role: Role, block: int | None, expert: int | None) -> str:
    """ "embedding", "blk.0.attn_qkv", "blk.3.exp.7.gate_up"."""
    if expert is not None:
        return f"blk.{block}.exp.{expert}.{role.name.lower().removeprefix('expert_')}"
    return role.name.lower() if block is None else f"blk.{block}.{role.name.lower()}"


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a file: what it is for, its type, its shape. `block`, `expert`: None if it has none."""

    role: Role
    block: int | None
    expert: int | None
    kind: Type
    part_rows: tuple[int, ...]
    columns: int

    @property
    def name(self) -> str:
        """Unique in the file."""
        return tensor_name(self.role, self.block, self.expert)

    @property
    def is_vector(self) -> bool:
        """Whether the data are `rows` f32 values and not tiles."""
        return self.role in VECTOR_ROLES

    def layout(self, shape: TileShape) -> TileLayout:
        """Tile layout of a matrix."""
        return TileLayout(self.kind, self.part_rows, self.columns, shape)

    def data_bytes(self, shape: TileShape) -> int:
        """Stored bytes, padding included."""
        if self.is_vector:
            return align_up(4 * self.part_rows[0], DATA_ALIGN_BYTES)
        return self.layout(shape).data_bytes

    @property
    def key(self) -> tuple[Role, int | None, int | None]:
        """Role, block and expert: what identifies a tensor."""
        return self.role, self.block, self.expert


def tensor_spec(
    hparams: Hyperparameters, role: Role, kind: Type, block: int | None = None, expert: int | None = None
) -> TensorSpec:
    """The spec of a tensor, with the shape that `hparams` gives.

    Raises ArgumentError when a model with these parameters has no such tensor.
    """
    shape = shape_of(hparams, role)
    if shape is None:
        raise ArgumentError(
            f"{tensor_name(role, block, expert)}: a model with these parameters has no such tensor"
        )
    return TensorSpec(role, block, expert, kind, *shape)


def model_specs(
    hparams: Hyperparameters,
    kind_of: Callable[[Role], Type],
    qkv_bias: bool = False,
    qk_norm: bool = False,
) -> list[TensorSpec]:
    """All tensors of a model in file order, matrices in the type that `kind_of(role)` gives.

    Vectors and the router are always f32, whatever `kind_of` says. `qkv_bias`, `qk_norm`: whether the blocks
    have biases of q, k and v, and norms of the heads of q and k.
    """
    present = [Role.ATTN_QKV_BIAS] * qkv_bias + [*QK_NORM_ROLES] * qk_norm
    absent = OPTIONAL_ROLES - set(present)

    def spec(role: Role, block: int | None = None, expert: int | None = None) -> TensorSpec:
        plain = role in VECTOR_ROLES or role is Role.ROUTER
        return tensor_spec(hparams, role, Type.F32 if plain else kind_of(role), block, expert)

    keys = _keys_in_file_order(hparams)
    return [spec(*key) for key in keys if key[0] not in absent]


def _keys_in_file_order(hparams: Hyperparameters) -> list[tuple[Role, int | None, int | None]]:
    """Role, block and expert of all tensors that the model can have, the optional ones among them."""
    table: tuple[Role, int | None, int | None] = (Role.EMBEDDING, None, None)
    # A token reads one row of the embedding first; a tied one is read whole as the head, last of all.
    keys = [] if hparams.tied_head else [table]
    keys += [(role, block, None) for block in range(hparams.blocks) for role in BLOCK_ROLES]
    keys += [(Role.OUTPUT_NORM, None, None), table if hparams.tied_head else (Role.HEAD, None, None)]
    keys += [
        (role, block, expert)
        for block in range(hparams.blocks)
        for expert in range(hparams.experts)
        for role in EXPERT_ROLES
    ]
    return [key for key in keys if shape_of(hparams, key[0]) is not None]


def checked_specs(hparams: Hyperparameters, specs: Iterable[TensorSpec]) -> tuple[TensorSpec, ...]:
    """`specs` in file order. Raises ArgumentError naming the tensor that is missing or not as it must be."""
    given: dict[tuple[Role, int | None, int | None], TensorSpec] = {}
    for spec in specs:
        if spec.key in given:
            raise ArgumentError(f"{spec.name}: is given twice")
        given[spec.key] = spec
    given_kind: dict[tuple[Role, int | None], TensorSpec] = {}
    ordered = []
    for key in _keys_in_file_order(hparams):
        found = given.pop(key, None)
        if found is None:
            if key[0] in OPTIONAL_ROLES:
                continue
            raise ArgumentError(f"{tensor_name(*key)}: is missing")
        wanted = tensor_spec(hparams, key[0], found.kind, key[1], key[2])
        if found != wanted:
            raise ArgumentError(
                f"{found.name}: rows and columns are {found.part_rows} and {found.columns}, "
                f"must be {wanted.part_rows} and {wanted.columns}"
            )
        if found.kind is not Type.F32 and (found.is_vector or found.role is Role.ROUTER):
            raise ArgumentError(f"{found.name}: is {found.kind.name.lower()}, must be f32")
        first = given_kind.setdefault((found.role, found.block), found) if found.expert is not None else found
        if found.kind is not first.kind:
            raise ArgumentError(
                f"{found.name}: is {found.kind.name.lower()}, {first.name} is {first.kind.name.lower()}; "
                "the experts of a block have one type"
            )
        ordered.append(found)
    _check_pairs_of_norms(hparams, {spec.key for spec in ordered})
    if given:
        unexpected = next(iter(given.values()))
        raise ArgumentError(f"{unexpected.name}: a model with these parameters has no such tensor")
    if len(ordered) > MAX_TENSORS:
        raise ArgumentError(f"tensor_count is {len(ordered)}, must be at most {MAX_TENSORS}")
    return tuple(ordered)


def _check_pairs_of_norms(hparams: Hyperparameters, keys: set[tuple[Role, int | None, int | None]]) -> None:
    for block in range(hparams.blocks):
        found = [role for role in QK_NORM_ROLES if (role, block, None) in keys]
        if len(found) == 1:
            raise ArgumentError(
                f"{tensor_name(found[0], block, None)}: comes without its pair; a block has both or none"
            )
