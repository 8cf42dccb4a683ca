"""Where kernels run: on the GPU if there is one, else in Triton's interpreter, which is exact in float32 alone."""

import os
from collections.abc import Iterator
from typing import NoReturn

import pytest
import torch

CUDA = torch.cuda.is_available()
KEPT = 1 << 30
"""Bytes that a test may leave in torch's cache: the processes beside it need the GPU's memory too."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test in this folder runs kernels."""
    for item in items:
        if "tests/kernels" in item.path.as_posix():
            item.add_marker(pytest.mark.kernels)


@pytest.fixture(autouse=True)
def _ends_with_its_fault(request: pytest.FixtureRequest) -> Iterator[None]:
    """After an illegal access all later calls of the process fail: it ends here, and no other test is blamed."""
    yield
    if not CUDA:
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        _end(request, f"{request.node.nodeid}: {error}")
    if torch.cuda.memory_reserved() > KEPT:
        torch.cuda.empty_cache()


def _end(request: pytest.FixtureRequest, fault: str) -> NoReturn:
    """A worker of xdist dies, which names the test and starts another one; without xdist the run ends."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.exit(fault, returncode=1)
    request.config.pluginmanager.getplugin("capturemanager").suspend_global_capture()
    os.write(2, f"{fault}\n".encode())
    os._exit(1)


@pytest.fixture
def device() -> torch.device:
    """The GPU, or the CPU that stands in for it."""
    return torch.device("cuda" if CUDA else "cpu")


@pytest.fixture(params=[torch.float32, torch.bfloat16, torch.float16] if CUDA else [torch.float32], ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Types that a kernel is tried in; the interpreter computes bf16 wrongly."""
    kind: torch.dtype = request.param
    return kind
