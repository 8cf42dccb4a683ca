"""KV memory as books: pages, the names of their contents, the tiers behind them. Pure: no clock, no I/O, no torch.

The bytes belong to the backend; it moves them as `Copy` actions say, in order, before it computes a step. Compaction
is left out: a block table makes any free page as good as any other, and attention over scattered pages takes less than
a hundredth longer than over pages in order (`python -m benchmarks.compaction`), which moving them does not earn back.
"""
