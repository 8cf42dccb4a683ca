"""One pre-norm decoder for Llama, Mistral, Qwen2 and Qwen3, which differ in the tensors that a layer has.

In float32 everything is computed as in `transformers` with `dtype=float32`, so greedy tokens are the same wherever the
two best logits differ by more than rounding. With narrow weights only matrix products and attention are narrow: norms,
rotations and the residual sum stay in float32. All tokens of a step pass the linear layers as one ragged batch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import silu

from paceline_core.telemetry import get_logger
from paceline_planner.shapes import ModelShape
from paceline_workers.engine.backends.cpu.linear import Linear, LinearFactory
from paceline_workers.engine.model import invariant
from paceline_workers.engine.model.attention import PagedCache
from paceline_workers.engine.model.batch import Batch
from paceline_workers.engine.model.config import ModelConfig
from paceline_workers.engine.model.rope import rotate
from paceline_workers.engine.model.weights import Weights
from paceline_workers.engine.scheduling import StepPlan

_log = get_logger(__name__)
BUFFERS = ("rotary_emb.inv_freq",)
"""Tensors in old checkpoints that are not weights; they are computed from the config."""


@dataclass(frozen=True, slots=True)
class Norm:
    """Root mean square norm over the last dimension, in float32; the result is in `dtype`, for the products."""

    weight: Tensor
    eps: float
    dtype: torch.dtype

    def __call__(self, x: Tensor) -> Tensor:
        wide = x.float()
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        scale = torch.rsqrt(length.square_().div_(x.shape[-1]).add_(self.eps))
        return (wide * scale).mul_(self.weight).to(self.dtype)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer; query, key and value are one product, gate and up another."""

    attention_norm: Norm
    qkv: Linear
    out: Linear
    mlp_norm: Norm
    gate_up: Linear
    down: Linear
    query_norm: Norm | None
    key_norm: Norm | None


@dataclass(frozen=True, slots=True)
class Decoder:
    """The whole model. `head` multiplies with the output matrix, which is the embedding itself when tied."""

    config: ModelConfig
    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Norm
    head: Linear
    activation: Callable[[Tensor], Tensor] = silu

    def lay_out(self, plan: StepPlan, page_tokens: int) -> Batch:
        """The plan as this model's layers need it."""
        return Batch.of(plan, page_tokens, self.config.shape.kv_heads, set(self.config.attention_windows))

    @torch.inference_mode()
    def __call__(self, batch: Batch, cache: PagedCache) -> Tensor:
        """Compute a step, write its keys and values; logits [sampled rows, vocabulary]."""
        return self.logits(self.states(batch, cache))

    @torch.inference_mode()
    def logits(self, states: Tensor) -> Tensor:
        """The logits of hidden states: [rows, vocabulary]."""
        return self.head(states).float()

    @torch.inference_mode()
    def states(self, batch: Batch, cache: PagedCache) -> Tensor:
        """Compute a step, write its keys and values; hidden states after the final norm [sampled rows, hidden]."""
        step = _Step(batch, cache, *self.config.rope.angles(batch.positions))
        x = self.embedding[batch.tokens].float()
        for index, layer in enumerate(self.layers):
            x += self._attention(index, layer.attention_norm(x), step)
            gate, up = layer.gate_up(layer.mlp_norm(x)).chunk(2, dim=-1)
            x += layer.down(self.activation(gate).mul_(up))
        return self.norm(x[batch.sampled])

    def _attention(self, index: int, x: Tensor, step: "_Step") -> Tensor:
        layer, shape = self.layers[index], self.config.shape
        heads = layer.qkv(x).view(len(x), -1, shape.head_dim)
        both, values = heads.split_with_sizes([shape.heads + shape.kv_heads, shape.kv_heads], dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            both = torch.cat((layer.query_norm(both[:, : shape.heads]), layer.key_norm(both[:, shape.heads :])), dim=1)
        queries, keys = rotate(both, step.cos, step.sin).split_with_sizes([shape.heads, shape.kv_heads], dim=1)
        step.cache.write(index, step.batch.slots, keys, values)
        layout = step.batch.layouts[self.config.attention_windows[index]]
        return layer.out(step.cache.attend(index, queries, layout).flatten(1))


@dataclass(frozen=True, slots=True)
class _Step:
    """What all layers of one forward pass share."""

    batch: Batch
    cache: PagedCache
    cos: Tensor
    sin: Tensor


def load(config: ModelConfig, weights: Weights, products: LinearFactory, progress: Callable[[], None]) -> Decoder:
    """Build the decoder from a folder's tensors; calls `progress` after each layer, which may raise."""
    shape, source = config.shape, _Source(config, weights, products)
    embedding, head = _vocabulary(weights, shape)
    layers = []
    for index in range(shape.layers):
        layers.append(_layer(source, f"model.layers.{index}."))
        progress()
    norm = source.norm("model.norm", shape.hidden)
    weights.check_others(BUFFERS)
    tied = head is embedding
    config = replace(config, shape=replace(shape, tied=tied))
    activation = invariant.silu if products.batch_invariant else silu
    return Decoder(config, embedding, tuple(layers), norm, products.linear(head, shared=tied), activation)


def _vocabulary(weights: Weights, shape: ModelShape) -> tuple[Tensor, Tensor]:
    """Embedding and output matrix; one tensor if they are tied.

    As in `transformers`, files with two different matrices override `tie_word_embeddings`, and files with only one of
    the two names have the tied matrix there.
    """
    names, size = ("model.embed_tokens.weight", "lm_head.weight"), (shape.vocab, shape.hidden)
    if shape.tied and not all(map(weights.has, names)):
        only = weights.take(names[0] if weights.has(names[0]) else names[1], *size)
        return only, only
    embedding, head = (weights.take(name, *size) for name in names)
    if shape.tied and torch.equal(embedding, head):
        return embedding, embedding
    if shape.tied:
        _log.warning("tie_word_embeddings is true, but lm_head.weight is another matrix; it is used")
    return embedding, head


@dataclass(frozen=True, slots=True)
class _Source:
    """Makes modules from tensors by name."""

    config: ModelConfig
    weights: Weights
    products: LinearFactory

    def norm(self, name: str, size: int) -> Norm:
        weight = self.weights.take(f"{name}.weight", size, dtype=torch.float32)
        return Norm(weight, self.config.norm_eps, self.weights.dtype)

    def linear(self, names: Mapping[str, int], columns: int, *, bias: bool) -> Linear:
        """The projections with these names and row counts, which have the same input, as one product."""
        weight = torch.cat([self.weights.take(f"{name}.weight", rows, columns) for name, rows in names.items()])
        biases = [self.weights.take(f"{name}.bias", rows) for name, rows in names.items() if bias]
        return self.products.linear(weight, torch.cat(biases) if biases else None)


def _layer(source: _Source, prefix: str) -> Layer:
    shape, attention, mlp = source.config.shape, f"{prefix}self_attn.", f"{prefix}mlp."
    heads = {"q_proj": shape.heads, "k_proj": shape.kv_heads, "v_proj": shape.kv_heads}
    qkv = {f"{attention}{name}": count * shape.head_dim for name, count in heads.items()}
    gate_up = {f"{mlp}gate_proj": shape.ffn, f"{mlp}up_proj": shape.ffn}
    out = {f"{attention}o_proj": shape.hidden}
    return Layer(
        attention_norm=source.norm(f"{prefix}input_layernorm", shape.hidden),
        qkv=source.linear(qkv, shape.hidden, bias=shape.qkv_bias),
        out=source.linear(out, shape.heads * shape.head_dim, bias=shape.output_bias),
        mlp_norm=source.norm(f"{prefix}post_attention_layernorm", shape.hidden),
        gate_up=source.linear(gate_up, shape.hidden, bias=shape.mlp_bias),
        down=source.linear({f"{mlp}down_proj": shape.hidden}, shape.ffn, bias=shape.mlp_bias),
        query_norm=source.norm(f"{attention}q_norm", shape.head_dim) if shape.qk_norm else None,
        key_norm=source.norm(f"{attention}k_norm", shape.head_dim) if shape.qk_norm else None,
    )
