"""Seconds of one engine step from the roofline: each kind of work takes the longer of its arithmetic and its reading.

    matrices   max(2 * active parameters * tokens / FLOP rate, weights / read rate), the output matrix apart, since
               only sampled positions pass it; of experts only those are read that some token chose
    attention  prefill: max(4 * layers * heads * head size * tokens * context / FLOP rate, KV of the context / read
               rate); decode: KV tokens of all sequences / read rate
    link       two all-reduces a layer when several devices share it, exchanges with experts, stage to stage
    overhead   launches and sampling, from the accelerator's efficiency

Kinds of work run one after another, so they add up: a mixed step takes at least as long as each of its parts. Work per
device is the whole divided by `tensor`. Known hole: shapes that fill a device badly (a few tokens over a tile) and
overlap of link and arithmetic are not modelled; the worker's online fit corrects both.
"""

from dataclasses import dataclass

from paceline_core.wire import StepTime
from paceline_planner.hardware import Accelerator, Dtype
from paceline_planner.shapes import ModelShape
from paceline_planner.splits import ONE_DEVICE, DeviceSplit, check_split


@dataclass(frozen=True, slots=True)
class Caps:
    """`step_tokens`: most tokens in one step; `sequences`: most requests running at once. Defaults as in manifests."""

    step_tokens: int = 2048
    sequences: int = 64


DEFAULT_CAPS = Caps()


@dataclass(frozen=True, slots=True)
class StepWork:
    """What one step computes. `context` is the mean number of tokens that each prefill token attends to.

    `sequences` decode one token each and together read `kv_tokens` cached tokens.
    """

    prefill_tokens: int = 0
    context: float = 0.0
    sequences: int = 0
    kv_tokens: int = 0


@dataclass(frozen=True, slots=True)
class StepParts:
    matrices: float = 0.0
    output: float = 0.0
    prefill_attention: float = 0.0
    decode_attention: float = 0.0
    link: float = 0.0
    overhead: float = 0.0

    @property
    def seconds(self) -> float:
        kernels = self.matrices + self.output + self.prefill_attention + self.decode_attention
        return kernels + self.link + self.overhead


def step_seconds(shape: ModelShape, accelerator: Accelerator, work: StepWork, split: DeviceSplit = ONE_DEVICE) -> float:
    """Seconds of one step; 0 for a step without tokens. Raises InvalidInput as `step_parts`."""
    return step_parts(shape, accelerator, work, split).seconds


def step_parts(
    shape: ModelShape, accelerator: Accelerator, work: StepWork, split: DeviceSplit = ONE_DEVICE
) -> StepParts:
    """The step of one batch by kind of work; raises InvalidInput if the model cannot be split so or computed there."""
    check_split(shape, accelerator, split)
    tokens = work.prefill_tokens + work.sequences
    if tokens == 0:
        return StepParts()
    sampled = work.sequences + (work.prefill_tokens > 0)  # only a prefill's last token passes the output matrix
    attention = work.prefill_tokens * work.context * _pair_seconds(shape, accelerator)
    reading = work.context * shape.kv_bytes_per_token / accelerator.read_rate if work.prefill_tokens else 0.0
    efficiency, tensor = accelerator.efficiency, split.tensor
    products = 2 * shape.active_matrices * tokens / _matrix_rate(shape, accelerator)
    logits = 2 * shape.vocabulary_matrix * sampled / accelerator.compute_rate(shape.weight_dtype)
    output_bytes = shape.vocabulary_matrix * shape.weight_dtype.size
    return StepParts(
        matrices=max(products, shape.step_matrix_bytes(tokens) / accelerator.read_rate) / tensor,
        output=max(logits, output_bytes / accelerator.read_rate) / tensor,
        prefill_attention=max(attention, reading) / tensor,
        decode_attention=work.kv_tokens * shape.kv_bytes_per_token / (accelerator.read_rate * tensor),
        link=_link_seconds(shape, accelerator, tokens, split),
        overhead=efficiency.step + efficiency.layer * shape.layers + efficiency.sequence * work.sequences,
    )


def _matrix_rate(shape: ModelShape, accelerator: Accelerator) -> float:
    """FLOP/s of the layers' products; weights in a type that the device does not compute in are widened to bf16."""
    if shape.quantization is None:
        return accelerator.compute_rate(shape.weight_dtype)
    own = shape.quantization.computed
    return accelerator.compute_rate(own if own in accelerator.flops else Dtype.BF16)


def _link_seconds(shape: ModelShape, accelerator: Accelerator, tokens: int, split: DeviceSplit) -> float:
    """Ring all-reduces of the activations (16 bit), exchanges with experts in place of one, and stage to stage."""
    state, tensor = tokens * shape.hidden * 2, split.tensor
    latency, rate = accelerator.efficiency.latency, accelerator.link * accelerator.efficiency.link
    seconds = 0.0
    if tensor > 1:
        reduce = latency + 2 * (tensor - 1) / tensor * state / rate
        seconds = 2 * shape.layers * reduce
        if shape.experts is not None and split.expert > 1:
            sent = min(shape.experts.active, split.expert) * (split.expert - 1) / split.expert * state / tensor
            mixed = shape.layers - shape.experts.dense_layers
            seconds += mixed * (2 * (latency + sent / rate) - reduce)
    if split.pipeline > 1:
        seconds += (split.pipeline - 1) * (latency + state / tensor / rate)
    return seconds


def _pair_seconds(shape: ModelShape, accelerator: Accelerator) -> float:
    """Seconds for one token to attend to one other in all layers."""
    flops = 4 * shape.layers * shape.heads * shape.head_dim
    computed = Dtype.BF16 if shape.kv_dtype.size == 1 else shape.kv_dtype  # 8-bit caches are widened first
    return flops / accelerator.attention_rate(computed)


def prior(
    shape: ModelShape, accelerator: Accelerator, *, caps: Caps = DEFAULT_CAPS, split: DeviceSplit = ONE_DEVICE
) -> StepTime:
    """The linear model nearest to the roofline for an engine with these caps; `observations` is 0.

    The roofline of the matrices is flat in tokens while reading dominates and rises once arithmetic does; the model is
    its chord from one token to a full step: exact at both ends, above it in between, most at the corner. For dense
    models from 8B on, with default caps on Hopper and the L4, decode matches within 0.1 %, steps that are at least half
    prefill within -5 % and +20 %; a small prefill may be overstated by up to 90 %, and nothing is understated by more
    than 10 %, so capacity is understated rather than overstated. More sequences than an eighth of `step_tokens` widen
    these bounds, and so do experts: a step of few tokens reads few of them.
    If a full step takes no longer than one token, a prefill token costs its arithmetic.
    """
    one = step_seconds(shape, accelerator, StepWork(sequences=1), split)
    full_prefill = step_seconds(shape, accelerator, StepWork(prefill_tokens=caps.step_tokens), split)
    full_decode = step_seconds(shape, accelerator, StepWork(sequences=caps.sequences), split)
    arithmetic = 2 * shape.active_matrices / _matrix_rate(shape, accelerator)
    return StepTime(
        base=one,
        prefill=(full_prefill - one) / caps.step_tokens if full_prefill > one else arithmetic / split.tensor,
        sequence=(full_decode - one) / caps.sequences,
        kv=shape.kv_bytes_per_token / (accelerator.read_rate * split.tensor),
        context=_pair_seconds(shape, accelerator) / split.tensor,
    )


def prior_within(
    shape: ModelShape,
    accelerator: Accelerator,
    tpot_s: float,
    *,
    caps: Caps = DEFAULT_CAPS,
    split: DeviceSplit = ONE_DEVICE,
) -> StepTime:
    """The prior of an engine whose steps take `tpot_s` at most: its chord ends where they do.

    A worker fits its model to such steps alone, so it predicts those better than the prior of full steps does.
    """
    low, high = 1, caps.step_tokens
    while low < high:
        middle = (low + high + 1) // 2
        within = step_seconds(shape, accelerator, StepWork(prefill_tokens=middle), split) <= tpot_s
        low, high = (middle, high) if within else (low, middle - 1)
    return prior(shape, accelerator, caps=Caps(low, caps.sequences), split=split)
