"""One pre-norm decoder for Llama, Mistral, Qwen2 and Qwen3: what differs is which tensors a layer has.

Everything is computed in float32, like `transformers` with `dtype=float32`, so greedy tokens are the same wherever the
two best logits differ by more than rounding. All tokens of a step pass the linear layers as one ragged batch.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from paceline_planner.shapes import ModelShape
from paceline_workers.engine.model.attention import PagedCache
from paceline_workers.engine.model.batch import Batch
from paceline_workers.engine.model.config import ModelConfig
from paceline_workers.engine.model.rope import rotate
from paceline_workers.engine.model.weights import Weights
from paceline_workers.engine.scheduling import Plan


@dataclass(frozen=True, slots=True)
class Linear:
    """weight [out, in], bias [out] or None."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Norm:
    """Root mean square norm over the last dimension."""

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


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
    """The whole model. `head` is the output matrix, the embedding itself when tied."""

    config: ModelConfig
    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Norm
    head: Tensor

    def lay_out(self, plan: Plan, page_tokens: int) -> Batch:
        """The plan as this model's layers need it."""
        return Batch.of(plan, page_tokens, set(self.config.windows))

    @torch.inference_mode()
    def __call__(self, batch: Batch, cache: PagedCache) -> Tensor:
        """Compute a step, write its keys and values; logits [sampled rows, vocabulary]."""
        step = _Step(batch, cache, *self.config.rope.angles(batch.positions))
        x = self.embedding[batch.tokens]
        for index, layer in enumerate(self.layers):
            x = x + self._attention(index, layer.attention_norm(x), step)
            gate, up = layer.gate_up(layer.mlp_norm(x)).chunk(2, dim=-1)
            x = x + layer.down(silu(gate) * up)
        return linear(self.norm(x[batch.sampled]), self.head)

    def _attention(self, index: int, x: Tensor, step: "_Step") -> Tensor:
        layer, shape = self.layers[index], self.config.shape
        heads = layer.qkv(x).view(len(x), -1, shape.head_dim)
        queries, keys, values = torch.split(heads, [shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            queries, keys = layer.query_norm(queries), layer.key_norm(keys)
        queries, keys = rotate(queries, step.cos, step.sin), rotate(keys, step.cos, step.sin)
        step.cache.write(index, step.batch.slots, keys, values)
        layout = step.batch.layouts[self.config.windows[index]]
        return layer.out(step.cache.attend(index, queries, layout).flatten(1))


@dataclass(frozen=True, slots=True)
class _Step:
    """What all layers of one forward pass share."""

    batch: Batch
    cache: PagedCache
    cos: Tensor
    sin: Tensor


def load(config: ModelConfig, weights: Weights, progress: Callable[[], None]) -> Decoder:
    """Build the decoder from a folder's tensors; `progress` is called after each layer and may raise."""
    shape = config.shape
    embedding = weights.take("model.embed_tokens.weight", shape.vocab, shape.hidden)
    layers = []
    for index in range(shape.layers):
        layers.append(_layer(config, weights, f"model.layers.{index}."))
        progress()
    return Decoder(
        config,
        embedding,
        tuple(layers),
        Norm(weights.take("model.norm.weight", shape.hidden), config.norm_eps),
        embedding if shape.tied else weights.take("lm_head.weight", shape.vocab, shape.hidden),
    )


def _layer(config: ModelConfig, weights: Weights, prefix: str) -> Layer:
    shape = config.shape

    def norm(name: str, size: int) -> Norm:
        return Norm(weights.take(f"{prefix}{name}.weight", size), config.norm_eps)

    return Layer(
        attention_norm=norm("input_layernorm", shape.hidden),
        qkv=_qkv(shape, weights, prefix),
        out=_linear(
            weights, f"{prefix}self_attn.o_proj", shape.hidden, shape.heads * shape.head_dim, bias=shape.output_bias
        ),
        mlp_norm=norm("post_attention_layernorm", shape.hidden),
        gate_up=_joined(
            _linear(weights, f"{prefix}mlp.{name}_proj", shape.ffn, shape.hidden, bias=shape.mlp_bias)
            for name in ("gate", "up")
        ),
        down=_linear(weights, f"{prefix}mlp.down_proj", shape.hidden, shape.ffn, bias=shape.mlp_bias),
        query_norm=norm("self_attn.q_norm", shape.head_dim) if shape.qk_norm else None,
        key_norm=norm("self_attn.k_norm", shape.head_dim) if shape.qk_norm else None,
    )


def _qkv(shape: ModelShape, weights: Weights, prefix: str) -> Linear:
    heads = {"q": shape.heads, "k": shape.kv_heads, "v": shape.kv_heads}
    return _joined(
        _linear(weights, f"{prefix}self_attn.{name}_proj", count * shape.head_dim, shape.hidden, bias=shape.qkv_bias)
        for name, count in heads.items()
    )


def _linear(weights: Weights, name: str, rows: int, columns: int, *, bias: bool) -> Linear:
    return Linear(weights.take(f"{name}.weight", rows, columns), weights.take(f"{name}.bias", rows) if bias else None)


def _joined(linears: Iterable[Linear]) -> Linear:
    """Several products of the same input as one."""
    parts = list(linears)
    biases = [part.bias for part in parts if part.bias is not None]
    return Linear(torch.cat([part.weight for part in parts]), torch.cat(biases) if biases else None)
