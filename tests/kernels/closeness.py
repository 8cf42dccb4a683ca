"""How far a kernel may be off: FlashAttention's self-scaling rule.

The error against the float32 reference is at most twice that of the same formula in plain PyTorch of the kernel's own
type, and two rounding steps of the result. So the bound follows type, shape and inputs, and nobody tunes it.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def assert_as_exact(computed: Tensor, reference: Callable[[torch.dtype], Tensor]) -> None:
    """`reference(dtype)` computes the formula with inputs and sums of that type."""
    exact = reference(torch.float32).float()
    assert computed.shape == exact.shape
    plain = (
        (reference(computed.dtype).float() - exact).abs().max() if computed.dtype != torch.float32 else _noise(exact)
    )
    steps = 2 * ((exact + 0.3 - 0.3).to(computed.dtype).float() - exact).abs().max()
    error = (computed.float() - exact).abs().max()
    assert torch.isfinite(computed.float()).all()
    assert error <= 2 * plain + steps, f"off by {error:.3g}; {2 * plain + steps:.3g} is allowed"


def _noise(exact: Tensor) -> Tensor:
    """Sums of float32 in another order: what they may differ by."""
    return 1e-5 * exact.abs().max().clamp(min=1.0)
