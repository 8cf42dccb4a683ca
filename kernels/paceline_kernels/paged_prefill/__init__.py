"""Attention of chunks of tokens to a paged context, including their own tokens."""

from paceline_kernels.paged_prefill.launch import paged_prefill
from paceline_kernels.paged_prefill.tiles import Tiles

__all__ = ["Tiles", "paged_prefill"]
