"""What fits: weights, memory for activations, and the KV tokens that the rest of the memory holds.

Plans with USABLE of each device; the remainder (4 GB of an 80 GB card) is for the driver's context, captured graphs and
fragmentation. Known hole: the whole reserve counts on each device, though parts of it shrink.
"""

from dataclasses import dataclass

from paceline_planner.hardware import Accelerator
from paceline_planner.shapes import ModelShape
from paceline_planner.splits import ONE_DEVICE, DeviceSplit, check_split, stage_kv_bytes_per_token, stage_weight_bytes
from paceline_planner.steptime import DEFAULT_CAPS, Caps

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
    widths = 3 * shape.hidden + queries + 2 * keys + 3 * shape.mlp_width
    return caps.step_tokens * widths * max(shape.weight_dtype.size, 2) + caps.sequences * shape.vocab * _LOGIT_BYTES


def kv_tokens(
    shape: ModelShape, accelerator: Accelerator, *, caps: Caps = DEFAULT_CAPS, split: DeviceSplit = ONE_DEVICE
) -> int:
    """Tokens of KV cache that a replica holds, by its largest stage; 0 if the weights already fill it."""
    check_split(shape, accelerator, split)
    reserve = reserve_bytes(shape, caps) * split.tensor
    rest = int(accelerator.memory * USABLE) * split.tensor - stage_weight_bytes(shape, split) - reserve
    return max(rest // stage_kv_bytes_per_token(shape, split), 0)


def fits(
    shape: ModelShape,
    accelerator: Accelerator,
    *,
    context: int,
    caps: Caps = DEFAULT_CAPS,
    split: DeviceSplit = ONE_DEVICE,
) -> Fit:
    """Whether a replica can hold at least one sequence of `context` tokens, and why not."""
    tokens = kv_tokens(shape, accelerator, caps=caps, split=split)
    reserve = reserve_bytes(shape, caps) * split.devices
    needs = f"weights of {gigabytes(shape.weight_bytes)} and {gigabytes(reserve)} of activations"
    usable = int(accelerator.memory * USABLE) * split.devices
    room = f"{gigabytes(usable)} usable on {split.devices} x {accelerator.name}"
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


def gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB"
