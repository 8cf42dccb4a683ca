"""The search for launch numbers, on a made-up landscape and on a kernel in the interpreter."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from benchmarks.kernels import small, sweep
from benchmarks.kernels.climb import climb, neighbours
from benchmarks.kernels.timing import Contestant
from tests.kernels.benched import benched

from paceline_kernels.paged_decode import launch as paged_decode
from paceline_kernels.paged_prefill import launch as paged_prefill
from paceline_kernels.sample import launch as sample


@dataclass(frozen=True, slots=True)
class Numbers:
    block: int
    warps: int


LADDERS = {"block": (64, 128, 256, 512), "warps": (1, 2, 4, 8)}


def test_neighbours_change_one_number_by_one_step() -> None:
    assert set(neighbours(Numbers(64, 2), LADDERS)) == {Numbers(128, 2), Numbers(64, 1), Numbers(64, 4)}


def test_from_a_number_that_is_no_step_the_ladder_is_entered_at_its_ends() -> None:
    found = set(neighbours(Numbers(96, 8), LADDERS))
    assert found == {Numbers(64, 8), Numbers(512, 8), Numbers(96, 4)}


def test_a_climb_ends_on_the_fastest_and_tells_all_that_it_tried() -> None:
    def seconds(numbers: Numbers) -> float:
        return 1.0 + abs(math.log2(numbers.block / 256)) + abs(math.log2(numbers.warps / 4))

    found = climb([Numbers(64, 1)], LADDERS, seconds)
    assert found.best == Numbers(256, 4)
    assert found.gain == 5.0
    assert found.tried[Numbers(64, 1)] == 5.0


def test_less_than_a_hundredth_is_noise_and_what_does_not_run_is_not_chosen() -> None:
    def seconds(numbers: Numbers) -> float:
        return math.inf if numbers.warps > 1 else {64: 1.0, 128: 0.995}.get(numbers.block, 2.0)

    assert climb([Numbers(64, 1)], LADDERS, seconds).best == Numbers(64, 1)


def test_several_starts_find_the_higher_of_two_hills() -> None:
    hills = {Numbers(64, 1): 2.0, Numbers(512, 8): 1.0}

    def seconds(numbers: Numbers) -> float:
        return hills.get(numbers, 3.0)

    alone = climb([Numbers(64, 1)], LADDERS, seconds)
    found = climb([Numbers(64, 1), Numbers(512, 4)], LADDERS, seconds)
    assert (alone.best, found.best) == (Numbers(64, 1), Numbers(512, 8))
    assert (found.start, found.gain) == (Numbers(64, 1), 2.0)


class ByWarps:
    """Times nothing: the launch that the newest contestant was made with says it."""

    def __init__(self) -> None:
        self.seconds = 1.0

    def prepare(self, contestant: Contestant) -> Callable[[], float]:
        return lambda: self.seconds


def test_a_sweep_runs_the_kernel_with_each_candidate_and_leaves_out_what_computes_something_else(
    device: torch.device,
) -> None:
    timer = ByWarps()
    run = benched(device, timer)
    start = small.launches(run)["silu_mul"]
    tried: list[int] = []

    def work(launch: object) -> list[Contestant]:
        warps = launch.warps  # type: ignore[attr-defined]
        tried.append(warps)
        timer.seconds = 1.0 / warps
        torch.manual_seed(0)
        [moved] = [one for one in small.kernels(run.model, 2) if one.name.startswith("silu_mul")]
        call = moved.make(run, launch)
        return [Contestant([lambda: call() if warps < 16 else torch.ones(2, 32, device=device)])]

    found = sweep.swept(run, sweep.Sweep("silu_mul", (start,), {"warps": sweep.WARPS}, work))
    assert start.warps == 4
    assert found.best.warps == 8
    assert tried == [4, 4, 2, 8, 16]
    assert [launch.warps for launch, seconds in found.tried.items() if math.isinf(seconds)] == [16]


def test_a_work_list_is_tried_with_as_few_tiles_a_program_as_one(device: torch.device) -> None:
    run = benched(device, ByWarps())
    [one] = [one for one in sweep.sweeps(run) if one.name == "work_list, 1 x 1k"]
    assert sweep.swept(run, one).tried == dict.fromkeys((sweep.Least(2), sweep.Least(1), sweep.Least(3)), 1.0)


def test_every_ladder_names_numbers_that_its_launch_has(device: torch.device) -> None:
    starts = small.launches(benched(device, ByWarps()))
    tables: dict[Any, Mapping[str, Sequence[Any]]] = {
        type(starts[name]): ladders for name, ladders in sweep.SMALL.items()
    }
    tables |= {paged_decode.Launch: sweep.DECODE, paged_prefill.Launch: sweep.PREFILL, sample.Launch: sweep.SAMPLE}
    tables[sweep.Least] = sweep.LEAST
    for launch, ladders in tables.items():
        assert ladders.keys() <= {field.name for field in fields(launch)}
