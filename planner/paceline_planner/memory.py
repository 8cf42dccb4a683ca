"""What fits: weights, memory for activations, and the KV tokens that the rest of the memory holds.

Plans with USABLE of each device; the remainder (4 GB of an 80 GB card) is for the driver's context, captured graphs and
fragmentation. Known hole: the whole reserve counts on each device, though parts of it shrink.
"""

from dataclasses import dataclass

from paceline_planner.hardware import Accelerator
from paceline_planner.shapes import ModelShape
from paceline_planner.steptime import DEFAULT_CAPS, Caps, check_tensor

USABLE = 0.95
"""The share of a device's memory that is planned with."""

_LOGIT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Fit:
    """The result, one sentence of reason, and the bytes behind it (over all devices of the replica)."""

    fits: bool
    reason: str
    weight_bytes: int
    reserve_bytes: int
    kv_bytes: int
    kv_tokens: int


def reserve_bytes(shape: ModelShape, caps: Caps = DEFAULT_CAPS) -> int:
    """Activations of one full step and the logits of all its sequences, on one device."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    widths = 3 * shape.hidden + queries + 2 * keys + 3 * shape.ffn
    return caps.step_tokens * widths * max(shape.weight_dtype.size, 2) + caps.sequences * shape.vocab * _LOGIT_BYTES


def kv_tokens(shape: ModelShape, accelerator: Accelerator, *, caps: Caps = DEFAULT_CAPS, tensor: int = 1) -> int:
    """Tokens of KV cache that a replica on `tensor` devices holds; 0 if the weights already fill them."""
    check_tensor(shape, accelerator, tensor)
    reserve = reserve_bytes(shape, caps) * tensor
    rest = int(accelerator.memory * USABLE) * tensor - shape.weight_bytes - reserve
    return max(rest // shape.kv_bytes_per_token, 0)


def fits(
    shape: ModelShape, accelerator: Accelerator, *, context: int, caps: Caps = DEFAULT_CAPS, tensor: int = 1
) -> Fit:
    """Whether a replica on `tensor` devices can hold at least one sequence of `context` tokens, and why not."""
    tokens = kv_tokens(shape, accelerator, caps=caps, tensor=tensor)
    reserve = reserve_bytes(shape, caps) * tensor
    needs = f"weights of {_gb(shape.weight_bytes)} and {_gb(reserve)} of activations"
    room = f"{_gb(int(accelerator.memory * USABLE) * tensor)} usable on {tensor} x {accelerator.name}"
    return Fit(
        fits=tokens >= context,
        reason=f"{shape.name}: {needs} in {room} {_verdict(tokens, context)}",
        weight_bytes=shape.weight_bytes,
        reserve_bytes=reserve,
        kv_bytes=tokens * shape.kv_bytes_per_token,
        kv_tokens=tokens,
    )


def _verdict(tokens: int, context: int) -> str:
    if tokens >= context:
        return f"leave room for {tokens:,} KV tokens, {tokens // context:,} sequences of {context:,}."
    fix = "use more devices, a larger one, or fewer bytes per weight"
    if tokens == 0:
        return f"leave no room for a KV cache; {fix}."
    return f"leave room for {tokens:,} KV tokens, less than one sequence of {context:,}; shorten maxModelLen or {fix}."


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
