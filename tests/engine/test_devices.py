"""What an engine computes on: as asked, or a GPU wherever there is one that can; never another in silence."""

import logging

import pytest

from paceline_core.errors import InvalidInput
from paceline_workers.engine.devices import Gpu, Wanted, chosen

H100 = Gpu("NVIDIA H100 80GB HBM3", (9, 0))
AMPERE = Gpu("NVIDIA A10", (8, 6))
OLD = Gpu("Tesla T4", (7, 5))


@pytest.mark.parametrize("gpu", [H100, AMPERE])
@pytest.mark.parametrize("wanted", ["auto", "cuda"])
def test_a_gpu_that_can_is_taken_asked_for_or_not(wanted: Wanted, gpu: Gpu) -> None:
    assert chosen(wanted, gpu) is gpu


@pytest.mark.parametrize("gpu", [H100, OLD, None])
def test_who_asks_for_cpus_gets_them_beside_any_gpu(gpu: Gpu | None) -> None:
    assert chosen("cpu", gpu) is None


def test_where_there_is_no_gpu_cpus_compute_unless_one_is_asked_for() -> None:
    assert chosen("auto", None) is None
    with pytest.raises(InvalidInput, match="torch finds no CUDA GPU here; run where `nvidia-smi` lists one") as refused:
        chosen("cuda", None)
    assert refused.value.field == "engine.device"


def test_a_gpu_that_cannot_is_passed_over_aloud_and_refused_if_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert chosen("auto", OLD) is None
    (record,) = caplog.records
    assert record.getMessage() == "the GPU is not used"
    with pytest.raises(InvalidInput, match=r"engine\.device: Tesla T4 has compute capability 7\.5, below 8\.0; "):
        chosen("cuda", OLD)
