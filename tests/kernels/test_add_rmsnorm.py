import pytest
import torch
from tests.kernels.closeness import assert_as_exact
from torch import Tensor

from paceline_kernels.add_rmsnorm import launch, reference

EPS = 1e-5


def test_a_row_is_added_then_divided_by_its_root_mean_square(device: torch.device) -> None:
    x, residual = torch.tensor([[1.0, 5.0]], device=device), torch.tensor([[2.0, -1.0]], device=device)
    out = launch.add_rmsnorm(x, residual, torch.tensor([1.0, 10.0], device=device), 0.0)
    assert residual.tolist() == [[3.0, 4.0]]
    assert out.tolist() == [pytest.approx([3 / 12.5**0.5, 40 / 12.5**0.5], rel=1e-5)]


@pytest.mark.parametrize("hidden", [1, 7, 64, 896, 1025])
@pytest.mark.parametrize("tokens", [0, 1, 3])
def test_the_norm_is_as_exact_as_its_type_allows(
    tokens: int, hidden: int, dtype: torch.dtype, device: torch.device
) -> None:
    x = torch.randn(tokens, hidden, device=device).to(dtype)
    before, weight = torch.randn(tokens, hidden, device=device), torch.randn(hidden, device=device)
    residual = before.clone()
    out = launch.add_rmsnorm(x, residual, weight, EPS)
    assert out.dtype == dtype
    assert torch.equal(residual, before + x.float())
    if tokens:
        assert_as_exact(out, lambda kind: reference.add_rmsnorm(x.to(kind), before.to(kind), weight.to(kind), EPS))


def test_without_x_the_sum_is_only_read(dtype: torch.dtype, device: torch.device) -> None:
    residual, weight = torch.randn(3, 100, device=device), torch.randn(100, device=device)
    before, out = residual.clone(), torch.empty(3, 100, dtype=dtype, device=device)
    assert launch.add_rmsnorm(None, residual, weight, EPS, out=out) is out
    assert torch.equal(residual, before)

    def plain(kind: torch.dtype) -> Tensor:
        return reference.add_rmsnorm(None, before.to(kind), weight.to(kind), EPS)

    assert_as_exact(out, plain)


def test_rows_of_zeros_stay_zeros(device: torch.device) -> None:
    residual, weight = torch.zeros(2, 5, device=device), torch.ones(5, device=device)
    assert launch.add_rmsnorm(None, residual, weight, EPS).tolist() == [[0.0] * 5] * 2


@pytest.mark.parametrize("warps", [1, 16])
def test_every_number_of_warps_gives_the_same(warps: int, device: torch.device) -> None:
    residual, weight = torch.randn(2, 300, device=device), torch.randn(300, device=device)
    out = launch.add_rmsnorm(None, residual, weight, EPS, launch=launch.Launch(warps))
    assert_as_exact(out, lambda kind: reference.add_rmsnorm(None, residual.to(kind), weight.to(kind), EPS))


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("residual", torch.zeros(2, 4, dtype=torch.float16)),
        ("residual", torch.zeros(4)),
        ("x", torch.zeros(3, 4)),
        ("x", torch.zeros(4, 2).T),
        ("weight", torch.zeros(2)),
        ("weight", torch.zeros(4, dtype=torch.float16)),
        ("out", torch.zeros(2, 8)),
    ],
)
def test_what_does_not_fit_is_named(name: str, tensor: Tensor) -> None:
    given = {"x": torch.zeros(2, 4), "residual": torch.zeros(2, 4), "weight": torch.zeros(4), "out": torch.zeros(2, 4)}
    given[name] = tensor
    with pytest.raises(ValueError, match=f"^{name} "):
        launch.add_rmsnorm(given["x"], given["residual"], given["weight"], EPS, out=given["out"])
