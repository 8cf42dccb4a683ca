"""Ray Serve's autoscaler against its source, ray 2.60.0 (b7f4259e), python/ray/serve/autoscaling_policy.py."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.autoscaler.factories import view
from tests.simulator.rivals import differences, follow, seen, series

from paceline_autoscaler.types import Demand
from paceline_simulator.baselines.ray_serve import RayServe, RayServeState

LOOPS = [
    # autoscaler, open requests, running replicas, ordered replicas (10*3 is thrice 10) every 10 s from 2, at most 40;
    # _core_replica_queue_length_policy wrapped by _apply_autoscaling_config, run on random loads
    (
        RayServe(2.0),
        "10*3 40*7 90 0 3*9 10*3 0*6 3*5 0*13 40*11 10",
        "2*4 20*11 19*2 20*28 19*2 20*7 19 20*5",
        "2*3 20*57",
    ),
    (
        RayServe(16.0, downscale_delay_s=120.0),
        "10*4 90*20 3*4 40*8 90*2 0*20 3*2",
        "2*9 5*4 6*5 5*2 6*7 5*5 6*15 5*2 6*2 1*9",
        "2*7 6*43 1*10",
    ),
    (
        RayServe(4.0, 30.0, 10.0, 60.0, 0.5, 0.3),
        "10*13 40*11 3*19 0*3 90 3*10 90 0 40",
        "2*4 3*11 7*3 9*3 10*5 9 10*6 8*9 6*7 5 6*5 5*5",
        "2 3*13 7*2 9*3 10*11 8*9 6*14 5*7",
    ),
    (
        RayServe(4.0, 30.0, 0.0, 30.0, 2.0, 1.0),
        "10*4 40*2 3*8 0*4 40*5 90*4 40*7 3*8 10*6 40*2 10*10",
        "2*3 3*4 16*2 17*8 1 0*3 2*6 40*4 10*10 1*2 4*13 3*4",
        "3*4 17*5 1*8 0 2*3 18*2 40*7 10*7 1*5 4*4 3*2 16*5 3*7",
    ),
]


def test_ten_minutes_of_loops_order_what_the_source_orders() -> None:
    for ray, loads, ready, expected in LOOPS:
        state, ordered, targets = ray.initial_state(), 2, []
        for step, (load, running) in enumerate(zip(series(loads), series(ready), strict=True)):
            wanted, direction, since = ray.scale(load, running, ordered, 10.0 * step, state)
            state = RayServeState((), direction, since)
            ordered = min(wanted, 40)
            targets.append(ordered)
        assert differences(targets, series(expected)) == []


def test_requests_are_averaged_over_the_look_back_period() -> None:
    ray = RayServe()
    state = ray.initial_state()
    for at, running in [(0, 90), (10, 10), (20, 20), (30, 30)]:
        _, state = ray.decide(seen(view(1), at, queued=running // 2, running=running - running // 2), state)
    assert [point.value for point in state.requests] == [10, 20, 30]
    silent = replace(seen(view(1), 35), demand=Demand(1, 0))
    assert [point.value for point in ray.decide(silent, state)[1].requests] == [10, 20, 30]


def test_without_replicas_a_request_starts_one_at_once() -> None:
    ray = RayServe()
    assert ray.decide(seen(view(0), queued=1), ray.initial_state())[0] == {"main": 1}
    assert ray.decide(seen(view(0, 3), queued=1), ray.initial_state())[0] == {"main": 3}
    assert ray.decide(seen(view(0)), ray.initial_state())[0] == {"main": 0}


@settings(max_examples=15)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=10), st.integers(0, 60), st.integers(1, 40))
def test_a_flat_load_settles_at_its_replicas(loads: list[int], delay: int, target: int) -> None:
    ray = RayServe(target, look_back_s=10.0, upscale_delay_s=delay, downscale_delay_s=delay, period_s=5.0)
    loads += [loads[-1]] * 50
    ordered = follow(ray, lambda at, n: seen(view(n), at, running=loads[round(at / 5)]), len(loads))
    assert ordered[-1] == min(max(-(-loads[-1] // target), 1), 40)
