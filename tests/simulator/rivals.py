"""Observations for the baselines: one service, one pool, everything heard; and the loop that calls a baseline."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from tests.autoscaler.factories import NOW, goal, view

from paceline_autoscaler.policies.replica_policy import Baseline
from paceline_autoscaler.types import ClassSignals, Demand, Observation, PoolStatus, RateWindow
from paceline_core.registry.enums import RequestClass

S = TypeVar("S")


def seen(pool: PoolStatus, at: float = 0.0, queued: int = 0, running: int = 0, **changes: Any) -> Observation:
    """What an autoscaler observes `at` seconds after the start."""
    classes = (ClassSignals(RequestClass.INTERACTIVE, queued=queued, in_flight=running),)
    return replace(Observation(NOW + at, goal(), Demand(1, 1, classes), (pool,), None), **changes)


def with_rate(observation: Observation, requests: float, prompt: float, output: float) -> Observation:
    """The same, with `requests` a second of these lengths over the last minute."""
    flows = tuple(RateWindow(s, requests * s, requests * s * prompt) for s in (5.0, 15.0, 60.0))
    classes = tuple(replace(cls, flows=flows, output_tokens=output) for cls in observation.demand.classes)
    return replace(observation, demand=replace(observation.demand, classes=classes))


def loaded(ready: int, starting: int = 0, **load: Any) -> PoolStatus:
    """A pool whose ready replicas all report this load; starting ones have a node."""
    pool = view(ready, starting)
    replicas = tuple(replace(replica, node="node-1") for replica in pool.replicas)
    return replace(pool, replicas=replicas, loads=tuple(replace(one, **load) for one in pool.loads))


def follow(
    baseline: Baseline[S], observe: Callable[[float, int], Observation], steps: int, replicas: int = 2, most: int = 40
) -> list[int]:
    """Decisions of `steps` periods; what is decided, from 1 to `most`, is ready in the next period."""
    state, ordered = baseline.initial_state(), []
    for step in range(steps):
        counts, state = baseline.decide(observe(step * baseline.period_s, replicas), state)
        [wanted] = counts.values()
        assert wanted >= 0
        replicas = min(max(wanted, 1), most)
        ordered.append(replicas)
    return ordered


def differences(got: Iterable[object], expected: Iterable[object]) -> list[tuple[int, object, object]]:
    """Where two series differ: index, got, expected."""
    return [(index, a, b) for index, (a, b) in enumerate(zip(got, expected, strict=True)) if a != b]


def series(runs: str) -> list[int]:
    """The numbers of "3*2 5": 3, 3, 5."""
    pairs = [run.partition("*") for run in runs.split()]
    return [int(value) for value, _, times in pairs for _ in range(int(times or 1))]
