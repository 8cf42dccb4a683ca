"""What a runner may count on, of a CPU and of a GPU alike: order by marks, copies beside the host, recorded work."""

import time

import pytest
import torch
from tests.kernels.conftest import CUDA

from paceline_workers.engine.backends.gpu.device import Device, HostDevice, Way, opened

pytestmark = pytest.mark.kernels
CYCLES = 1_000_000_000
"""Of a GPU: some tenths of a second."""


@pytest.fixture(params=["cpu", *(["cuda"] if CUDA else [])])
def device(request: pytest.FixtureRequest) -> Device:
    return opened(torch.device(request.param))


def test_what_was_recorded_is_done_again_with_what_its_tensors_hold_by_then(device: Device) -> None:
    given, made = (torch.zeros(5, device=device.where) for _ in range(2))

    def compute() -> None:
        torch.add(given, 1, out=made)

    compute()
    again = device.record(compute)
    for value in (3, 8):
        given.fill_(value)
        again()
        assert made.tolist() == [value + 1] * 5


@pytest.mark.parametrize("locked", [False, True])
def test_host_memory_goes_to_the_device_and_back(device: Device, locked: bool) -> None:
    def memory() -> torch.Tensor:
        size = (3, 1000)
        return device.lock(torch.zeros(size)) if locked else device.pinned(size, torch.float32)

    there, back = memory(), memory()
    there[:] = torch.arange(3000).view(3, 1000)
    there_now = there.to(device.where, non_blocking=True)
    back.copy_(there_now * 2, non_blocking=True)
    device.mark().wait()
    assert torch.equal(back, 2 * there)


@pytest.mark.parametrize("way", ["out", "back"])
def test_a_line_that_holds_a_mark_sees_what_stood_before_it(device: Device, way: Way) -> None:
    rounds, size = 30, 500
    made, seen = torch.eye(size, device=device.where), torch.zeros(size, size, device=device.where)
    for _ in range(rounds):
        made = made * 2 @ torch.eye(size, device=device.where)
    mark = device.mark()
    with device.beside(way):
        mark.hold()
        seen.copy_(made)
        copied = device.mark()
    copied.hold()
    made.zero_()
    device.finish()
    assert copied.over()
    assert float(seen[0, 0]) == 2**rounds


def test_marks_that_are_over_tell_the_time_between_them(device: Device) -> None:
    first = device.mark()
    torch.ones(1000, 100, device=device.where).sum()
    last = device.mark()
    device.finish()
    assert first.seconds_to(last) >= 0 >= last.seconds_to(first)


if CUDA:

    def test_the_host_uses_little_of_a_cpu_while_it_waits_for_a_gpu() -> None:
        """One that span would pass for work, and the watchdog find a kernel that hangs ten times as late."""
        device = opened(torch.device("cuda"))
        torch.cuda._sleep(CYCLES)  # type: ignore[no-untyped-call]
        mark = device.mark()
        began, used_before = time.perf_counter(), time.thread_time()
        mark.wait()
        assert time.thread_time() - used_before < (time.perf_counter() - began) / 4


def test_a_cpu_stands_in_where_there_is_no_gpu() -> None:
    assert isinstance(opened(torch.device("cpu")), HostDevice)
    assert opened(torch.device("cpu")).processors == 1
