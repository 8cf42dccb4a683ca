"""What users read: the status, its conditions, and when it is worth a write."""

from dataclasses import replace
from typing import Any

import pytest
from tests.autoscaler.factories import (
    INTERACTIVE,
    NOW,
    answered,
    attainment,
    decide,
    demand,
    goal,
    load,
    measured,
    observation,
    pool,
    seasoned,
    view,
)

from paceline_autoscaler.model.history import learn
from paceline_autoscaler.output.status import StatusInput, Transitions, rounded, status_of
from paceline_autoscaler.state import BlockedPool, LearnedState, State
from paceline_autoscaler.types import Decision, Observation, ScalingSpec, SloTarget
from paceline_core.objects.status import ServiceStatus
from paceline_core.registry.enums import QueryResult

SINCE, NOW_TEXT = "2027-01-15T07:00:00Z", "2027-01-15T08:00:00Z"
TTFT = SloTarget(INTERACTIVE, "ttft", 0.95, 0.5)


def told(seen: Observation, turned: Transitions | None = None, **changes: Any) -> dict[str, Any]:
    decision: Decision = decide(seen, seasoned(seen, 60))[0]
    standing = StatusInput(SINCE, decision, decision, seen, LearnedState())
    return status_of(replace(standing, **changes), turned or {}, 7, NOW_TEXT)


def condition(status: dict[str, Any], kind: str) -> tuple[str, str]:
    (found,) = [row for row in status["conditions"] if row["type"] == kind]
    return found["status"], found["reason"]


def message(status: dict[str, Any], kind: str) -> str:
    return next(str(row["message"]) for row in status["conditions"] if row["type"] == kind)


@pytest.mark.parametrize("seen", [0.0, 0.0042, 0.42, 2.3, 75.0, 5400.0])
def test_the_status_is_one_that_the_objects_model_takes(seen: float) -> None:
    status = told(observation(attainment=attainment(80, 20), latencies=measured(seen)))
    assert ServiceStatus.model_validate(status).scaling.desired == 1


def test_a_service_that_keeps_its_slo() -> None:
    status = told(observation())
    assert status["scaling"] == {
        "desired": 1,
        "pools": [{"name": "main", "desired": 1}],
        "promise": "ttft p95 420ms/500ms",
        "burn": 0.0,
        "decision": "holds 1: demand 0.50 replica-s/s fits capacity 0.97; 1 ready",
        "reason": "steady",
        "limit": "none",
        "time": SINCE,
    }
    assert status["slo"] == [
        {
            "class": "interactive",
            "metric": "ttft",
            "quantile": "p95",
            "target": "500ms",
            "observed": "420ms",
            "burn": 0.0,
        }
    ]
    assert status["cost"] == {"perHour": "4.00"}
    assert {row["type"]: row["status"] for row in status["conditions"]} == {
        "SLOMet": "True",
        "SLOFeasible": "Unknown",
        "MetricsFresh": "True",
        "ScalingActive": "True",
        "ScalingLimited": "False",
        "CapacityBlocked": "False",
        "Paused": "False",
    }


def test_replicas_that_start_or_drain_cost_money_too() -> None:
    assert told(observation(pools=(view(ready=1, starting=2, draining=1),)))["cost"] == {"perHour": "16.00"}


def test_a_burning_budget_breaks_the_condition() -> None:
    status = told(observation(attainment=attainment(80, 20)))
    assert condition(status, "SLOMet") == ("False", "Burning")
    assert status["scaling"]["burn"] == 4.0


@pytest.mark.parametrize("result", [QueryResult.STALE, QueryResult.PARTIAL, QueryResult.ERROR, QueryResult.EMPTY])
def test_missing_answers_are_reported_and_not_taken_for_a_kept_slo(result: QueryResult) -> None:
    status = told(observation(attainment=answered(result)))
    assert condition(status, "SLOMet") == ("Unknown", "NotMeasured")
    assert condition(status, "MetricsFresh") == ("False", "AttainmentMissing")
    (row,) = [row for row in status["conditions"] if row["type"] == "MetricsFresh"]
    assert result.value in row["message"]
    assert "nothing is scaled down" in row["message"]


def test_a_source_that_fails_is_named_with_its_address_and_the_cause() -> None:
    failed = replace(answered(QueryResult.ERROR), source="http://prometheus:9090", cause="unreachable: refused")
    status = told(observation(attainment=failed, latencies=()))
    said = "The metrics source http://prometheus:9090 answers error (unreachable: refused)"
    assert message(status, "SLOMet") == f"{said}."
    assert message(status, "MetricsFresh") == f"{said}; nothing is scaled down meanwhile."
    unasked = told(observation(attainment=None, latencies=()))
    assert message(unasked, "MetricsFresh").startswith("The metrics source has not been asked yet")


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (observation(demand=replace(demand(0.5), expected=3)), "GatewaysMissing"),
        (observation(endpoints_lost=True), "EndpointsMissing"),
        (observation(pools=(view(ready=2, loads=(load("ready-0"),)),)), "LoadMissing"),
    ],
)
def test_each_gap_has_its_reason(seen: Observation, reason: str) -> None:
    assert condition(told(seen), "MetricsFresh") == ("False", reason)


def test_a_service_without_targets_or_traffic_reports_it() -> None:
    assert condition(told(observation(goal=goal(targets=()))), "SLOMet") == ("Unknown", "NoTargets")
    few = observation(attainment=attainment(3, 0))
    assert condition(told(few), "SLOMet") == ("Unknown", "TooFewRequests")


def test_a_limit_that_grows_with_the_prompt_is_reported_for_a_mean_one() -> None:
    longer = replace(TTFT, per_prompt_token=1e-3)
    status = told(observation(goal=goal(targets=(longer,)), latencies=measured(4.2)))
    assert status["slo"][0]["target"] == "4s500ms"
    assert status["scaling"]["promise"] == "ttft p95 4.2s/4.5s"


def test_a_limit_that_binds_is_a_condition() -> None:
    status = told(observation(goal=goal(pools=(pool(max=1),)), demand=demand(3.0)))
    assert condition(status, "ScalingLimited") == ("True", "Max")


def test_a_start_that_never_ends_is_blocked_capacity_and_named_with_its_pool() -> None:
    late = view(ready=1, starting=1)
    replicas = tuple(replace(replica, age_s=500.0) for replica in late.replicas)
    seen = observation(pools=(replace(late, replicas=replicas),))
    status = told(seen, learned=learn(seen, State()).learned)
    assert condition(status, "CapacityBlocked") == ("True", "StartsOverdue")
    again = "tried again at 2027-01-15T08:01:00Z"
    assert message(status, "CapacityBlocked") == f"Pool main: replica starting-0 is not ready after 40s, {again}."
    many = tuple(replace(replicas[1], name=f"r{n}") for n in range(5))
    seen = observation(pools=(replace(late, desired=5, replicas=many),))
    names = message(told(seen, learned=learn(seen, State()).learned), "CapacityBlocked")
    assert names == f"Pool main: replicas r0, r1, r2 and others are not ready after 40s, {again}."


def test_a_replica_that_was_ready_until_just_now_is_not_overdue() -> None:
    seen = observation(pools=(view(ready=1, starting=1),))
    learned = learn(seen, State(learned=LearnedState(started=("starting-0",)))).learned
    assert condition(told(seen, learned=learned), "CapacityBlocked") == ("False", "StartsInTime")


def test_a_pause_is_two_conditions() -> None:
    status = told(observation(goal=goal(pause_until="2030-01-01T00:00:00Z")))
    assert condition(status, "Paused") == ("True", "Annotation")
    assert condition(status, "ScalingActive") == ("False", "Paused")


def test_a_pause_is_reported_with_its_reason_and_no_number_that_moves() -> None:
    wish = goal(pause_until="2030-01-01T00:00:00Z", pause_reason="launch")
    busy, idle = (told(observation(goal=wish, demand=demand(rate))) for rate in (4.0, 0.5))
    assert message(busy, "Paused") == "Paused until 2030-01-01T00:00:00Z (launch)."
    assert message(busy, "ScalingActive") == "Paused until 2030-01-01T00:00:00Z."
    assert message(idle, "Paused") == message(busy, "Paused")
    assert len(message(told(observation(goal=replace(wish, pause_reason="x" * 10_000))), "Paused")) < 300


def test_conditions_report_what_is_so_now_and_not_the_decision_that_stands() -> None:
    before = observation(goal=goal(pause_until="2030-01-01T00:00:00Z"))
    standing = decide(before, seasoned(before, 60))[0]
    status = told(observation(goal=goal(pause_until="tomorrow")), decision=standing)
    for kind in ("Paused", "ScalingActive"):
        assert message(status, kind).startswith(
            "Annotation paceline.dev/pause-until is 'tomorrow', which is not a time"
        )
    before = observation(goal=goal(pools=(pool(max=1),)), demand=demand(3.0))
    standing = decide(before, seasoned(before, 60))[0]
    status = told(observation(goal=goal(pools=(pool(max=2),)), demand=demand(3.0)), decision=standing)
    assert message(status, "ScalingLimited") == "Max of main is 2; more replicas are wanted."


@pytest.mark.parametrize(
    ("wish", "rate", "words"),
    [
        (goal(pools=(pool(min=2),)), 0.5, "Min of main is 2; fewer replicas are wanted."),
        (goal(budget_gpus=2), 3.0, "The budget is 2 GPUs, which pays for fewer replicas than wanted."),
    ],
)
def test_a_limit_is_reported_by_its_own_numbers(wish: ScalingSpec, rate: float, words: str) -> None:
    assert message(told(observation(goal=wish, demand=demand(rate))), "ScalingLimited") == words


@pytest.mark.parametrize(
    "seen",
    [
        observation(),
        observation(goal=goal(targets=())),
        observation(goal=goal(policy="advise")),
        observation(goal=goal(pause_until="tomorrow")),
        observation(attainment=answered(QueryResult.STALE)),
        observation(attainment=attainment(80, 20)),
        observation(pools=(view(ready=1, starting=1),)),
    ],
)
def test_every_message_begins_with_a_capital_and_ends_with_a_full_stop(seen: Observation) -> None:
    block = BlockedPool("main", NOW + 60, 1, "replica starting-0 is not ready after 40s")
    for row in told(seen, learned=LearnedState(blocked=(block,)), forbidden="")["conditions"]:
        assert row["message"][0].isupper(), row
        assert row["message"].endswith("."), row
    refusal = told(seen, forbidden="scales may not be read.")
    assert message(refusal, "ScalingActive") == "The API server refuses: scales may not be read."


def test_advice_shows_what_it_would_want() -> None:
    status = told(observation(goal=goal(policy="advise"), demand=demand(3.0)))
    assert status["scaling"]["desired"] == 4
    assert condition(status, "ScalingActive") == ("False", "Advise")


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    turned = {"SLOMet": ("True", "2027-01-01T00:00:00Z")}
    kept = told(observation(), turned)["conditions"][0]
    assert kept["lastTransitionTime"] == "2027-01-01T00:00:00Z"
    broken = told(observation(attainment=attainment(80, 20)), turned)["conditions"][0]
    assert broken["lastTransitionTime"] == NOW_TEXT
    assert broken["observedGeneration"] == 7


def test_nothing_measured_is_left_out_and_not_zero() -> None:
    status = told(observation(attainment=answered(QueryResult.ERROR), latencies=()))
    assert status["scaling"]["promise"] == "ttft p95 -/500ms"
    assert "burn" not in status["scaling"]
    assert status["slo"][0].keys() == {"class", "metric", "quantile", "target"}


@pytest.mark.parametrize(
    ("value", "expected"), [(0.0, 0.0), (0.4219, 0.42), (12.7, 13.0), (0.00317, 0.0032), (1234.5, 1200.0)]
)
def test_numbers_are_rounded_to_two_figures(value: float, expected: float) -> None:
    assert rounded(value) == pytest.approx(expected)
