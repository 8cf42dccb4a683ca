import pytest
import torch
from tests.kernels.closeness import assert_as_exact
from torch import Tensor

from paceline_kernels.silu_mul import launch, reference


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # on purpose: its reciprocal is 0
def test_an_open_gate_lets_through_and_a_shut_one_nothing(device: torch.device) -> None:
    gate, up = [0.0, 1e4, -1e4, 1.0], [3.0, 2.0, 5.0, -2.0]
    out = launch.silu_mul(torch.tensor([gate + up], device=device))
    assert out.tolist() == [[0.0, 2e4, 0.0, pytest.approx(-2 / (1 + torch.e**-1))]]


@pytest.mark.parametrize("ffn", [1, 31, 1024, 1025, 2500])
@pytest.mark.parametrize("tokens", [0, 1, 3])
def test_the_product_is_as_exact_as_its_type_allows(
    tokens: int, ffn: int, dtype: torch.dtype, device: torch.device
) -> None:
    gate_up = torch.randn(tokens, 2 * ffn, device=device).mul(4).to(dtype)
    out = launch.silu_mul(gate_up)
    assert out.dtype == dtype
    assert out.shape == (tokens, ffn)
    if tokens:
        assert_as_exact(out, lambda kind: reference.silu_mul(gate_up.to(kind)))


def test_the_result_goes_where_it_is_wanted_and_nowhere_else(device: torch.device) -> None:
    gate_up, room = torch.randn(2, 60, device=device), torch.full((4, 30), 7.0, device=device)
    out = launch.silu_mul(gate_up, out=room[1:3], launch=launch.Launch(block=8, warps=1))
    assert torch.allclose(out, reference.silu_mul(gate_up), atol=1e-5)
    assert room[[0, 3]].eq(7).all()


@pytest.mark.parametrize(
    ("name", "gate_up", "out"),
    [
        ("gate_up", torch.zeros(2, 7), torch.zeros(2, 3)),
        ("gate_up", torch.zeros(8, 2).T, torch.zeros(2, 4)),
        ("out", torch.zeros(2, 8), torch.zeros(2, 8)),
    ],
)
def test_what_does_not_fit_is_named(name: str, gate_up: Tensor, out: Tensor) -> None:
    with pytest.raises(ValueError, match=f"^{name} "):
        launch.silu_mul(gate_up, out=out)
