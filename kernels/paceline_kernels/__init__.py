"""Triton kernels, one folder each: `reference` says it in plain PyTorch, `kernel` does it, `launch` calls it.

Every tensor is on one device and contiguous unless its own docstring says otherwise. A launch chooses its numbers from
a committed table, allocates nothing that it is not asked to return, and reads nothing back, so that it can be recorded
into a CUDA graph. In Triton's interpreter (TRITON_INTERPRET=1 before the first import) the same code runs on CPUs.
"""
