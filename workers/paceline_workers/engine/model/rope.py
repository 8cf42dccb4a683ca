"""Rotary position embedding: frequencies with the scalings `linear` and `llama3`, and the rotation itself.

A head's two halves are rotated against each other (the layout of Hugging Face's weights).
Sources: Su et al., arXiv 2104.09864; linear: Chen et al., arXiv 2306.15595; llama3: the Llama 3.1 release.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Rope:
    """`frequencies`: radians a position, one per pair of dimensions, in float32 as `transformers` computes them."""

    frequencies: tuple[float, ...]

    @classmethod
    def of(cls, kind: str, head_dim: int, theta: float, scaling: Mapping[str, Any]) -> "Rope":
        """From a config's fields; raises KeyError, TypeError or ValueError on those it cannot use."""
        plain = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        if kind == "default":
            scaled = plain
        elif kind == "linear":
            scaled = plain / float(scaling["factor"])
        elif kind == "llama3":
            scaled = _llama3(plain, scaling)
        else:
            raise ValueError("supported are default, linear and llama3")
        return cls(tuple(scaled.tolist()))

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine for `positions` [tokens]: each [tokens, 1, head_dim / 2], to broadcast over heads."""
        angles = positions.float()[:, None] * torch.tensor(self.frequencies)
        return angles.cos()[:, None], angles.sin()[:, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate [tokens, heads, head_dim] by its positions' angles."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def _llama3(plain: Tensor, scaling: Mapping[str, Any]) -> Tensor:
    """Divide low frequencies by `factor`, keep high ones, and blend linearly between the two bounds."""
    factor, context = float(scaling["factor"]), float(scaling["original_max_position_embeddings"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = context * plain / (2 * math.pi)
    share = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - share) * plain / factor + share * plain
