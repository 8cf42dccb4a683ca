"""Attention of chunks of tokens to a paged context, their own tokens included."""

from paceline_kernels.paged_prefill.launch import paged_prefill
from paceline_kernels.paged_prefill.tiles import Tiles

__all__ = ["Tiles", "paged_prefill"]
