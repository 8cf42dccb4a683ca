"""The catalogue: every number has a source, and a driver's names find their accelerator."""

import pytest
from tests.every import cases, every

from paceline_core.errors import InvalidInput
from paceline_planner.accelerators import (
    A100,
    B200,
    CATALOGUE,
    H100,
    H200,
    L4,
    L40S,
    RTX_4090,
    RTX_6000_ADA,
    RTX_PRO_6000,
    accelerator,
    by_device_name,
)
from paceline_planner.hardware import Accelerator, Dtype


@every(CATALOGUE.values(), lambda device: device.name)
def test_every_accelerator_is_possible(device: Accelerator) -> None:
    assert device.flops[Dtype.BF16] > 0
    assert 0 < device.efficiency.compute < 1
    assert 0 < device.efficiency.bandwidth < 1
    assert device.price is None or 0 < device.price < 100
    whole_read_s = device.memory / device.bandwidth
    assert 0.005 < whole_read_s < 1, "no device reads its memory in less than 5 ms or more than 1 s"


def test_every_accelerator_is_found_by_its_own_name() -> None:
    assert all(accelerator(name).name == name for name in CATALOGUE)


def test_an_unknown_accelerator_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="accelerator: 'b300' is not known; use one of a100, b200, h100, "):
        accelerator("b300")


@cases(
    ("name", "found"),
    [
        ("NVIDIA H100 80GB HBM3", H100),
        ("NVIDIA H100 PCIe", H100),
        ("NVIDIA H200", H200),
        ("NVIDIA L4", L4),
        ("NVIDIA L40S", L40S),
        ("NVIDIA A100-SXM4-80GB", A100),
        ("NVIDIA B200", B200),
        ("NVIDIA GeForce RTX 4090", RTX_4090),
        ("NVIDIA RTX 6000 Ada Generation", RTX_6000_ADA),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", RTX_PRO_6000),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA RTX A6000", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("", None),
    ],
)
def test_an_accelerator_is_found_by_what_its_driver_calls_it(name: str, found: object) -> None:
    assert by_device_name(name) is found


def test_accelerators_can_be_keys() -> None:
    assert len(set(CATALOGUE.values())) == len(CATALOGUE)
