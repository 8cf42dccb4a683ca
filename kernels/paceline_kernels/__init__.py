"""Triton kernels, one folder each: `reference` in plain PyTorch, `kernel` in Triton, `launch` calls the kernel.

Every tensor is on one device and contiguous unless its docstring says otherwise. A launch takes its sizes from a
committed table, allocates only what it returns, and reads nothing back, so that it can be recorded into a CUDA graph.
In Triton's interpreter (TRITON_INTERPRET=1 before the first import) the same code runs on CPUs.
"""
