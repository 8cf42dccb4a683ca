"""Where kernels run: on the GPU if there is one, else in Triton's interpreter, which is exact in float32 alone."""

import pytest
import torch

CUDA = torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test in this folder runs kernels."""
    for item in items:
        if "tests/kernels" in item.path.as_posix():
            item.add_marker(pytest.mark.kernels)


@pytest.fixture
def device() -> torch.device:
    """The GPU, or the CPU that stands in for it."""
    return torch.device("cuda" if CUDA else "cpu")


@pytest.fixture(params=[torch.float32, torch.bfloat16, torch.float16] if CUDA else [torch.float32], ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Types that a kernel is tried in; the interpreter computes bf16 wrongly."""
    kind: torch.dtype = request.param
    return kind
