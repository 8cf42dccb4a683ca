"""Decode steps of sequences with a common prefix, which is read once for all of them."""

from paceline_kernels.cascade.groups import Groups
from paceline_kernels.cascade.launch import cascade_decode

__all__ = ["Groups", "cascade_decode"]
