"""The bookkeeping of KV memory: pages, digests of their contents, tiers behind them. Pure: no clock, no I/O, no torch.

The backend owns the bytes; it executes `Copy` actions, in order, before it computes a step. There is no compaction: a
block table makes any free page as good as any other, and attention over scattered pages takes less than a hundredth
longer than over pages in order (`python -m benchmarks.compaction`), so moving them does not pay off.
"""
