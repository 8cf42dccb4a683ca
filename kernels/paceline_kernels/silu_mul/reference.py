"""The gate in plain PyTorch."""

from torch import Tensor
from torch.nn.functional import silu


def silu_mul(gate_up: Tensor) -> Tensor:
    """[tokens, 2 * ffn] (gate, up) -> [tokens, ffn], in the same type."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (silu(gate) * up).to(gate_up.dtype)
