"""Policies have names; a wrong one is refused with the fix, and a baseline stays within bounds and budget."""

from dataclasses import replace

import pytest
from tests.autoscaler.factories import goal, view
from tests.simulator.rivals import seen

from paceline_autoscaler.model.starts import start_s
from paceline_autoscaler.policies.constant import Constant
from paceline_autoscaler.policies.replica_policy import BaselinePolicy, ProductionPolicy
from paceline_core.errors import InvalidInput
from paceline_simulator.baselines.hpa import hpa_queue
from paceline_simulator.baselines.ray_serve import RayServe
from paceline_simulator.policies import BASELINES, policy_of, static_replicas


def baseline(text: str) -> object:
    policy = policy_of(text)
    assert isinstance(policy, BaselinePolicy)
    return policy.baseline


def test_ours_begins_with_the_starts_that_it_has_seen() -> None:
    policy = policy_of("slo", {"main": 90.0})
    assert isinstance(policy, ProductionPolicy)
    assert start_s(goal(), policy.state.learned, "main") == 90.0


def test_a_name_is_a_policy_as_its_source_delivers_it_and_a_number_sets_its_target() -> None:
    assert isinstance(policy_of("slo"), ProductionPolicy)
    assert [name for name, made in BASELINES.items() if baseline(name) != made] == []
    assert [baseline(text) for text in ("static:4", "hpa-queue:8", "ray:3.5")] == [
        Constant(4),
        hpa_queue(8),
        RayServe(target=3.5),
    ]


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("static", "give the number of replicas, such as static:4"),
        ("static:-1", "give the number of replicas"),
        ("hpa-queu:4", "use hpa-queue"),
        ("zebra", "use one of slo, static:N, hpa-queue"),
        ("slo:3", "slo takes no number; write slo"),
        ("wva:3", "wva takes no number; write wva"),
        ("keda:", "the number after the colon must be above 0"),
        ("keda:nan", "the number after the colon must be above 0"),
    ],
)
def test_a_wrong_name_is_refused_with_the_fix(text: str, fix: str) -> None:
    with pytest.raises(InvalidInput, match=f"^policy: is '{text}'.*{fix}"):
        policy_of(text)


def test_only_a_static_policy_has_replicas_of_its_own() -> None:
    assert [static_replicas(policy_of(text)) for text in ("static:4", "static:0", "keda", "slo")] == [4, 0, None, None]


def test_a_baseline_stays_within_bounds_and_budget() -> None:
    spec = goal(budget_gpus=6)
    (pool,) = spec.pools
    for wanted, least in ((0, pool.min), (99, min(pool.max, 6 // pool.gpus))):
        observation = replace(seen(view(2)), goal=spec)
        assert BaselinePolicy(Constant(wanted)).replicas(observation) == {pool.name: least}
