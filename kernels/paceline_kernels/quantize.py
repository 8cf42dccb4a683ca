"""How 8-bit pages store numbers: one symmetric scale for each token and head, with the largest number at the limit."""

import torch
from torch import Tensor

LIMITS = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}
"""The value of a head's largest number."""
LEAST = 1e-30
"""The smallest maximum that is scaled; it keeps a scale from being 0, so zeros stay zeros."""


def quantize(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """[..., head_dim] -> numbers of `dtype` and their scales [...]: x = numbers * scales, but for rounding."""
    most = x.float().abs().amax(-1).clamp(min=LEAST)
    numbers = x.float() * (LIMITS[dtype] / most)[..., None]
    return (numbers.round() if dtype == torch.int8 else numbers).to(dtype), most / LIMITS[dtype]


def dequantize(numbers: Tensor, scales: Tensor) -> Tensor:
    """The reverse, in float32."""
    return numbers.float() * scales[..., None]
