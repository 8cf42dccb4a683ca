"""Workloads: rates and burstiness are what was asked for, seeds name them, copies never compress time."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from random import Random

import pytest

from paceline_core.errors import InvalidInput
from paceline_simulator import workloads as w
from paceline_simulator.traces import TraceRequest

PROCESSES: dict[str, Callable[[Random], Iterator[float]]] = {
    "poisson": lambda random: w.poisson(4.0, random),
    "bursty gamma": lambda random: w.gamma(4.0, 3.0, random),
    "even gamma": lambda random: w.gamma(4.0, 0.2, random),
    "mmpp": lambda random: w.mmpp((2.0, 6.0), 5.0, random),
    "square": lambda random: w.varying(w.square(2.0, 6.0, 10.0), 6.0, random),
    "ramp": lambda random: w.varying(w.ramp(0.0, 4.0, 50.0), 4.0, random),
}
LOG = [TraceRequest(float(at), 10, 3, (at,), "a") for at in range(10)]


@pytest.mark.parametrize("name", PROCESSES)
def test_arrivals_ascend_at_the_stated_rate_and_repeat_with_their_seed(name: str) -> None:
    times, again = (list(islice(PROCESSES[name](Random(1)), 4000)) for _ in range(2))
    assert times == again
    assert times != list(islice(PROCESSES[name](Random(2)), 4000))
    assert all(before <= after for before, after in pairwise(times))
    assert len(times) / times[-1] == pytest.approx(4.0, rel=0.1)


def test_gamma_gaps_have_the_stated_variation() -> None:
    for cv in (0.2, 1.0, 3.0):
        gaps = [after - before for before, after in pairwise(islice(w.gamma(4.0, cv, Random(3)), 8000))]
        mean = sum(gaps) / len(gaps)
        deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
        assert deviation / mean == pytest.approx(cv, rel=0.1)


def test_a_rate_is_high_for_its_share_of_the_period() -> None:
    rate = w.square(1.0, 9.0, 10.0, 0.2)
    assert [rate(at) for at in (0.0, 1.9, 2.0, 9.9, 10.0)] == [9.0, 9.0, 1.0, 1.0, 9.0]
    assert [w.ramp(2.0, 6.0, 10.0)(at) for at in (0.0, 5.0, 20.0)] == [2.0, 4.0, 6.0]


def test_lengths_are_drawn_for_the_arrivals_of_the_span() -> None:
    lengths = w.mixed(w.resampled([TraceRequest(0.0, 7, 2, (1,))]), w.fixed(9000, 1), 0.25)
    found = w.combine(w.poisson(10.0, Random(1)), lengths, Random(2), 100.0)
    kinds = Counter((request.prompt_tokens, request.blocks) for request in found)
    assert kinds.keys() == {(7, ()), (9000, ())}
    assert kinds[9000, ()] / len(found) == pytest.approx(0.25, abs=0.05)
    assert all(0.0 <= request.at < 100.0 for request in found)


@pytest.mark.parametrize("crowd", [None, 1.0])
def test_copies_repeat_the_log_at_its_own_pace_and_share_no_content(crowd: float | None) -> None:
    found = w.copies(LOG, 3, Random(1), span_s=20.0, crowd_s=crowd)
    assert len(found) == 3 * 20
    assert [request.at for request in found] == sorted(request.at for request in found)
    for number in range(3):
        own = [request for request in found if request.blocks[0] % 3 == number]
        assert {round(after.at - before.at, 6) for before, after in pairwise(own)} == {1.0}
        assert {request.blocks[0] // 3 for request in own} == set(range(10))


def test_a_crowd_starts_within_seconds_and_random_phases_do_not() -> None:
    def starts(crowd: float | None) -> list[float]:
        found = w.copies(LOG, 8, Random(5), crowd_s=crowd)
        return [min((r.at - r.blocks[0] // 8) % 10.0 for r in found if r.blocks[0] % 8 == n) for n in range(8)]

    assert all(min(phase, 10.0 - phase) < 0.5 for phase in starts(0.1))
    assert max(starts(None)) - min(starts(None)) > 3.0


def test_a_window_of_the_log_is_copied_alone() -> None:
    found = w.copies(LOG, 2, Random(1), start_s=4.0, end_s=8.0)
    assert {request.blocks[0] // 2 for request in found} == {4, 5, 6, 7}
    assert max(request.at for request in found) < 4.0


def test_impossible_workloads_are_refused_with_the_field() -> None:
    impossible: dict[str, Callable[[], object]] = {
        "rate": lambda: next(w.poisson(0.0, Random(1))),
        "cv": lambda: next(w.gamma(1.0, 0.0, Random(1))),
        "mean_s": lambda: next(w.mmpp((1.0,), 0.0, Random(1))),
        "over_s": lambda: w.ramp(0.0, 1.0, 0.0),
        "period_s": lambda: w.square(0.0, 1.0, 0.0),
        "lengths": lambda: w.resampled([]),
        "trace": lambda: w.copies(LOG, 1, Random(1), start_s=99.0),
    }
    for field, make in impossible.items():
        with pytest.raises(InvalidInput, match=f"^{field}"):
            make()
