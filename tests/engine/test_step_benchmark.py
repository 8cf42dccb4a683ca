"""The benchmark of whole steps, tried on a small model with a made-up clock."""

import pytest
import torch
from benchmarks.kernels import step
from tests.kernels.benched import MadeUp, benched
from tests.kernels.conftest import CUDA

pytestmark = pytest.mark.kernels


def test_a_whole_step_is_judged_by_the_bytes_that_it_must_read() -> None:
    bench = benched(torch.device("cuda" if CUDA else "cpu"), MadeUp())
    [row] = step.measure(bench, [step.Decoded("batch 2", 2, 16, 0.8)])
    # two layers of 2 * 32 * (32 + 16) + 3 * 32 * 32 numbers and 64 * 32 of them, two bytes each
    # contexts: 2 * 16 tokens * 2 layers of 64 bytes
    most = 2 / ((2 * (2 * 6144 + 2048) + 4096) / 4.3e12)
    assert row.peer == pytest.approx(most)
    assert row.value == pytest.approx(2 / 1e-6)
    assert row.bar is not None
    assert row.bar.limit == pytest.approx(0.8 * most)
