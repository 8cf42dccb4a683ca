"""What kernels are judged by computes what the decoder on CPUs does."""

import torch
from torch.nn.functional import silu

from paceline_kernels.add_rmsnorm.reference import add_rmsnorm
from paceline_kernels.rope_append import reference
from paceline_kernels.silu_mul.reference import silu_mul
from paceline_workers.engine.model import rope
from paceline_workers.engine.model.decoder import Norm

EPS = 1e-5


def test_the_kernels_norm_is_the_decoders() -> None:
    x, weight = torch.randn(3, 96), torch.randn(96)
    theirs = Norm(weight, EPS, torch.float32)(x)
    assert torch.allclose(add_rmsnorm(None, x, weight, EPS), theirs, atol=1e-5)


def test_the_kernels_norm_and_rotation_of_heads_are_the_decoders() -> None:
    x, weight, positions = torch.randn(3, 5, 16), torch.randn(16), torch.tensor([0, 7, 100])
    cos, sin = rope.Rope.of("default", 16, 1e4, 128, {}).angles(positions)
    theirs = rope.rotate(Norm(weight, EPS, torch.float32)(x), cos, sin)
    ours = reference.rotate(reference.norm(x, weight, EPS), cos[:, 0, 8:], sin[:, 0, 8:])
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_the_kernels_gate_is_the_decoders() -> None:
    both = torch.randn(3, 20)
    gate, up = both.chunk(2, dim=-1)
    assert torch.allclose(silu_mul(both), silu(gate).mul_(up), atol=1e-5)
