"""Rotary position embedding: frequencies with their scalings (linear, dynamic, llama3, yarn), and the rotation itself.

A head's two halves are rotated against each other (the layout of Hugging Face's weights). A token's angles depend only
on its position, so keys may be cached, shared and computed in any chunks. For `dynamic`, whose frequencies change with
the length of the sequence, the length is the token's own position + 1: `transformers` does the same when it decodes
token by token; it rotates a prompt longer than the original context by its whole length instead.
Sources: Su et al., arXiv 2104.09864; linear: Chen et al., arXiv 2306.15595; llama3: the Llama 3.1 release; yarn:
Peng et al., arXiv 2309.00071; dynamic: bloc97 and emozilla, 2023.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SCALINGS = ("default", "linear", "dynamic", "llama3", "yarn")


@dataclass(frozen=True, slots=True)
class Dynamic:
    """Frequencies with a base that grows with the length, from `context` tokens on."""

    theta: float
    factor: float
    context: int
    head_dim: int

    def frequencies(self, positions: Tensor, plain: Tensor) -> Tensor:
        """[tokens, head_dim / 2]; `plain` within the original context."""
        lengths = (positions + 1).clamp(min=self.context)
        growth = self.factor * lengths / self.context - (self.factor - 1)
        base = self.theta * growth ** (self.head_dim / (self.head_dim - 2))
        grown = 1.0 / base[:, None] ** _exponents(self.head_dim)
        return torch.where((positions < self.context)[:, None], plain, grown)


@dataclass(frozen=True, slots=True)
class Rope:
    """`frequencies`: radians a position, one for each pair of dimensions, in float32 as `transformers` computes them.

    `attention` multiplies cosine and sine; `context` is the most tokens that the model can serve.
    """

    frequencies: tuple[float, ...]
    context: int
    attention: float = 1.0
    dynamic: Dynamic | None = None

    @classmethod
    def of(cls, kind: str, head_dim: int, theta: float, context: int, scaling: Mapping[str, Any]) -> "Rope":
        """From a config's fields; raises KeyError, TypeError or ValueError on those it cannot use.

        `context` is the config's max_position_embeddings. It counts tokens before `dynamic` scales them; with yarn,
        configs disagree, so the greater reading counts; with linear, it is taken as given.
        """
        if not 1 < theta < math.inf:
            raise ValueError("rope_theta must be a number above 1")
        plain = 1.0 / theta ** _exponents(head_dim)
        match kind:
            case "default":
                return cls(_tuple(plain), context)
            case "linear":
                return cls(_tuple(plain / _positive(scaling, "factor")), context)
            case "llama3":
                return cls(_tuple(_llama3(plain, context, scaling)), context)
            case "dynamic":
                return _dynamic(plain, head_dim, theta, context, scaling)
            case "yarn":
                return _yarn(plain, theta, context, scaling)
        raise ValueError(f"supported are {', '.join(SCALINGS)}")

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine for `positions` [tokens]: each [tokens, 1, head_dim], to broadcast over heads.

        They cover both halves; the sine is negative in the first, as `rotate` expects it.
        """
        frequencies = torch.tensor(self.frequencies)
        if self.dynamic is not None:
            frequencies = self.dynamic.frequencies(positions, frequencies)
        angles = positions.float()[:, None] * frequencies
        cos, sin = angles.cos() * self.attention, angles.sin() * self.attention
        return torch.cat((cos, cos), dim=-1)[:, None], torch.cat((-sin, sin), dim=-1)[:, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate [tokens, heads, head_dim] by its positions' angles; keeps the type, computes in the angles' type."""
    wide = x.float()
    return torch.addcmul(wide * cos, wide.roll(x.shape[-1] // 2, -1), sin).to(x.dtype)


def _exponents(head_dim: int) -> Tensor:
    return torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim


def _tuple(frequencies: Tensor) -> tuple[float, ...]:
    return tuple(frequencies.tolist())


def _positive(scaling: Mapping[str, Any], field: str) -> float:
    value = float(scaling[field])
    if not 0 < value < math.inf:
        raise ValueError(f"{field} must be a positive number")
    return value


def _original(context: int, scaling: Mapping[str, Any]) -> float:
    """Tokens that the model was trained on before its context was extended."""
    return _positive({"original_max_position_embeddings": context, **scaling}, "original_max_position_embeddings")


def _llama3(plain: Tensor, context: int, scaling: Mapping[str, Any]) -> Tensor:
    """Divide low frequencies by `factor`, keep high ones, and blend linearly between the two bounds."""
    factor = _positive(scaling, "factor")
    low, high = _positive(scaling, "low_freq_factor"), _positive(scaling, "high_freq_factor")
    if high <= low:
        raise ValueError("high_freq_factor must be greater than low_freq_factor")
    turns = _original(context, scaling) * plain / (2 * math.pi)
    share = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - share) * plain / factor + share * plain


def _dynamic(plain: Tensor, head_dim: int, theta: float, context: int, scaling: Mapping[str, Any]) -> Rope:
    factor = _positive(scaling, "factor")
    if factor < 1 or head_dim <= 2:
        raise ValueError("factor must be at least 1, and head_dim greater than 2")
    return Rope(_tuple(plain), int(factor * context), dynamic=Dynamic(theta, factor, context, head_dim))


def _yarn(plain: Tensor, theta: float, context: int, scaling: Mapping[str, Any]) -> Rope:
    """Keep frequencies that turn often within the original context, divide those that hardly turn, blend between."""
    original = _original(context, scaling)
    factor = context / original if scaling.get("factor") is None else _positive(scaling, "factor")
    low, high = _yarn_bounds(2 * len(plain), theta, original, scaling)
    share = ((torch.arange(len(plain), dtype=torch.float32) - low) / (high - low)).clamp(0.0, 1.0)
    frequencies = share * plain / factor + (1 - share) * plain
    return Rope(_tuple(frequencies), max(context, int(factor * original)), _yarn_attention(factor, scaling))


def _yarn_bounds(head_dim: int, theta: float, original: float, scaling: Mapping[str, Any]) -> tuple[float, float]:
    """The pairs of dimensions between which the blend goes; never an empty range."""

    def pair(turns: float) -> float:
        return head_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair(scaling.get("beta_fast") or 32), pair(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    return low, high + 0.001 if low == high else high


def _yarn_attention(factor: float, scaling: Mapping[str, Any]) -> float:
    """The given attention factor, else the paper's, else the ratio of two of them (DeepSeek)."""
    if scaling.get("attention_factor") is not None:
        return _positive(scaling, "attention_factor")
    top, bottom = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if top and bottom:
        return _mscale(factor, top) / _mscale(factor, bottom)
    return _mscale(factor, 1.0)


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0
