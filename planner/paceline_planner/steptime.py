"""Seconds of one engine step from the roofline: each kind of work takes the longer of its arithmetic and its reading.

    matrices   max(2 * parameters * tokens / FLOP rate, weights / read rate), the output matrix apart, since only
               sampled positions pass it
    attention  prefill: max(4 * layers * heads * head size * tokens * context / FLOP rate, KV of the context / read
               rate); decode: KV tokens of all sequences / read rate
    link       two all-reduces a layer when several devices share it
    overhead   launches and sampling, from the accelerator's efficiency

Kinds of work run one after another, so they add up: a mixed step takes at least as long as each of its parts. Work per
device is the whole divided by `tensor`. Known hole: shapes that fill a device badly (a few tokens over a tile) and
overlap of link and arithmetic are not modelled; the worker's online fit corrects both.
"""

from dataclasses import dataclass

from paceline_core.errors import InvalidInput
from paceline_core.wire import StepTime
from paceline_planner.hardware import Accelerator, Dtype
from paceline_planner.shapes import ModelShape


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


def step_seconds(shape: ModelShape, accelerator: Accelerator, work: StepWork, tensor: int = 1) -> float:
    """Seconds of one step on `tensor` devices; 0 for a step without tokens. Raises InvalidInput as `step_parts`."""
    return step_parts(shape, accelerator, work, tensor).seconds


def step_parts(shape: ModelShape, accelerator: Accelerator, work: StepWork, tensor: int = 1) -> StepParts:
    """The step by kind of work; raises InvalidInput if the model cannot be split into `tensor` or computed there."""
    check_tensor(shape, accelerator, tensor)
    tokens = work.prefill_tokens + work.sequences
    if tokens == 0:
        return StepParts()
    sampled = work.sequences + (work.prefill_tokens > 0)  # only a prefill's last token passes the output matrix
    attention = work.prefill_tokens * work.context * _pair_seconds(shape, accelerator)
    reading = work.context * shape.kv_bytes_per_token / accelerator.read_rate if work.prefill_tokens else 0.0
    efficiency, link = accelerator.efficiency, 0.0
    if tensor > 1:  # two ring all-reduces of the activations (16 bit) a layer
        sent = 2 * (tensor - 1) / tensor * tokens * shape.hidden * 2
        link = 2 * shape.layers * (efficiency.latency + sent / (accelerator.link * efficiency.link))
    return StepParts(
        matrices=_product(shape, accelerator, shape.layers * shape.layer_matrices, tokens, tensor),
        output=_product(shape, accelerator, shape.vocabulary_matrix, sampled, tensor),
        prefill_attention=max(attention, reading) / tensor,
        decode_attention=work.kv_tokens * shape.kv_bytes_per_token / (accelerator.read_rate * tensor),
        link=link,
        overhead=efficiency.step + efficiency.layer * shape.layers + efficiency.sequence * work.sequences,
    )


def check_tensor(shape: ModelShape, accelerator: Accelerator, tensor: int) -> None:
    """Raises InvalidInput unless each device gets whole heads and the devices are linked."""
    if tensor < 1 or shape.kv_heads % tensor:
        raise InvalidInput("tensor", f"{tensor} devices cannot share the {shape.kv_heads} KV heads of {shape.name}")
    if tensor > 1 and not accelerator.link:
        raise InvalidInput("tensor", f"{accelerator.name} has no link to others of its node; use 1")


def _product(shape: ModelShape, accelerator: Accelerator, parameters: int, tokens: int, tensor: int) -> float:
    arithmetic = 2 * parameters * tokens / accelerator.compute_rate(shape.weight_dtype)
    reading = parameters * shape.weight_dtype.size / accelerator.read_rate
    return max(arithmetic, reading) / tensor


def _pair_seconds(shape: ModelShape, accelerator: Accelerator) -> float:
    """Seconds for one token to attend to one other in all layers."""
    flops = 4 * shape.layers * shape.heads * shape.head_dim
    computed = Dtype.BF16 if shape.kv_dtype.size == 1 else shape.kv_dtype  # 8-bit caches are widened first
    return flops / accelerator.attention_rate(computed)


def prior(shape: ModelShape, accelerator: Accelerator, *, caps: Caps = DEFAULT_CAPS, tensor: int = 1) -> StepTime:
    """The linear model nearest to the roofline for an engine with these caps; `observations` is 0.

    The roofline of the matrices is flat in tokens while reading dominates and rises once arithmetic does; the model is
    its chord from one token to a full step: exact at both ends, above it in between, most at the corner. With default
    caps on the catalogue's GPUs, decode matches within 0.1 %, steps that are at least half prefill within -5 % and
    +20 %; a small prefill may be overstated by up to 90 %, and nothing is understated by more than 10 %, so capacity is
    understated rather than overstated. More sequences than an eighth of `step_tokens` widen these bounds.
    If a full step takes no longer than one token, a prefill token costs its arithmetic.
    """
    one = step_seconds(shape, accelerator, StepWork(sequences=1), tensor)
    full_prefill = step_seconds(shape, accelerator, StepWork(prefill_tokens=caps.step_tokens), tensor)
    full_decode = step_seconds(shape, accelerator, StepWork(sequences=caps.sequences), tensor)
    arithmetic = 2 * shape.layers * shape.layer_matrices / accelerator.compute_rate(shape.weight_dtype)
    return StepTime(
        base=one,
        prefill=(full_prefill - one) / caps.step_tokens if full_prefill > one else arithmetic / tensor,
        sequence=(full_decode - one) / caps.sequences,
        kv=shape.kv_bytes_per_token / (accelerator.read_rate * tensor),
        context=_pair_seconds(shape, accelerator) / tensor,
    )
