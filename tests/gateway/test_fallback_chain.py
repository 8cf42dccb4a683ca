"""Where else a request may go: the chain of a route, and when a later destination is better than the first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.every import cases
from tests.gateway.manifests import route, service, tenant
from tests.gateway.pieces import endpoint, report, snapshot

from paceline_core.objects.resolved import ResolvedService
from paceline_core.registry import RequestClass
from paceline_core.registry.enums import FallbackReason
from paceline_core.telemetry import Metrics
from paceline_gateway.config import HttpLimits
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.request.prompt_size import PromptSize
from paceline_gateway.request.types import TokenUsage
from paceline_gateway.routing.config_snapshot import ConfigSnapshot
from paceline_gateway.routing.model_lookup import (
    Destination,
    DestinationLoad,
    Requester,
    When,
    choose,
    degraded,
    next_destination,
    overloaded,
    resolve_model,
    share_s,
)
from paceline_gateway.routing.policies import ShortestTTFT
from paceline_gateway.services.service_state import ServiceState
from paceline_gateway.telemetry.service_metrics import ServiceMetrics

NOW = 10.0
CLS = RequestClass.INTERACTIVE
OPEN, CROWDED, FULL, DOWN = DestinationLoad
SERVICES = [service(name) for name in ("a", "b", "over", "fail", "small")]


def chain(seen: ConfigSnapshot, name: str = "m", draw: float = 0.0) -> list[tuple[str, str]]:
    found = resolve_model(name, Requester(seen.tenants["team"], {}), seen, draw)
    return [(destination.service.name, destination.when) for destination in found]


def test_a_chain_is_drawn_backends_then_overflow_then_failure_then_fallback_models() -> None:
    backends = (
        {"service": "fail", "when": "failure"},
        {"service": "a", "weight": 3},
        {"service": "over", "when": "overflow"},
        {"service": "b", "weight": 1},
    )
    seen = snapshot(*SERVICES, route("m", *backends, fallback=["small", "unknown"]), tenant())
    rest = [("over", "overflow"), ("fail", "failure"), ("small", "fallback")]
    assert chain(seen) == [("a", "always"), ("b", "always"), *rest]
    assert chain(seen, draw=0.8) == [("b", "always"), ("a", "always"), *rest]


def test_fallback_models_are_asked_under_the_routes_own_attempts_and_no_circle_is_followed() -> None:
    one = route("m", {"service": "a"}, fallback=["n"], retry={"attempts": 4, "budget": 0.5})
    other = route("n", {"service": "b"}, fallback=["m"])
    seen = snapshot(*SERVICES, one, other, tenant())
    assert chain(seen) == [("a", "always"), ("b", "fallback")]
    last = resolve_model("m", Requester(seen.tenants["team"], {}), seen, 0.0)[-1]
    assert (last.attempts, last.retry_share) == (4, 0.5)


def test_what_the_tenant_may_not_use_is_in_no_chain() -> None:
    backends = ({"service": "a"}, {"service": "over", "when": "overflow"})
    seen = snapshot(*SERVICES, route("m", *backends, fallback=["small"]), tenant(services=["default/a"]))
    assert chain(seen) == [("a", "always")]


def test_a_route_that_degrades_names_a_smaller_model_that_is_no_part_of_its_chain() -> None:
    less = {"trigger": "burn", "model": "small", "maxTokens": 9, "after": "5s"}
    seen = snapshot(
        *SERVICES, route("m", {"service": "a"}, {"service": "b"}, fallback=["fail"], degrade=less), tenant()
    )
    found = resolve_model("m", Requester(seen.tenants["team"], {}), seen, 0.0)
    assert chain(seen) == [("a", "always"), ("b", "always"), ("fail", "fallback")]
    first, other, last = (destination.degradation for destination in found)
    assert first is not None
    assert (first.trigger, first.after_s, first.max_tokens, last) == ("burn", 5, 9, None)
    assert first.model is not None
    assert (other, first.model.service.name, first.model.model) == (first, "small", "small")


def test_the_smaller_model_takes_the_place_of_the_destination_under_pressure_and_its_fallbacks() -> None:
    less = {"model": "small", "maxTokens": 9}
    seen = snapshot(*SERVICES, route("m", {"service": "a"}, fallback=["fail"], degrade=less), tenant())
    found = resolve_model("m", Requester(seen.tenants["team"], {}), seen, 0.0)
    for smaller, name in ((True, "small"), (False, "a")):
        first, *rest = degraded(found, smaller=smaller)
        assert (first.service.name, first.instead_of, first.max_tokens) == (name, found[0].service, 9)
        assert rest == list(found[1:])


def test_a_model_that_is_unknown_or_not_open_to_the_tenant_replaces_none() -> None:
    for name, services in (("unknown", ["*"]), ("small", ["default/a"])):
        one = route("m", {"service": "a"}, degrade={"model": name})
        seen = snapshot(*SERVICES, one, tenant(services=services))
        found = resolve_model("m", Requester(seen.tenants["team"], {}), seen, 0.0)
        assert degraded(found, smaller=True)[0].service.name == "a"


def test_only_classes_with_a_target_get_less() -> None:
    made = busy()
    learn(made, 200)
    assert not made.degrades(CLS, "overload", 0.0)
    made.observe(NOW + 10)
    assert made.degrades(CLS, "overload", 0.0)
    assert not made.degrades(RequestClass.BATCH, "overload", 0.0)
    assert not made.degrades(CLS, "burn", 0.0)


def test_a_service_without_interactive_requests_is_not_overloaded() -> None:
    made = service_state()
    made.pool.update([endpoint()])
    made.pool.on_report("w0", report(slots=1), NOW)
    learn(made, 4000)
    made.dispatcher.join(QueuedRequest(1, RequestClass.BATCH, 10, 40, NOW + 60), NOW)
    assert made.dispatcher.dispatch(NOW)
    assert made.load(CLS, 0, PromptSize(), NOW) is CROWDED
    made.observe(NOW)
    assert not made.degrades(CLS, "overload", 0.0)


def test_a_prompt_that_is_longer_than_the_context_does_not_go_to_a_smaller_model() -> None:
    made = service_state()
    assert made.fits(PromptSize(10**6))
    made.pool.update([endpoint()])
    made.pool.on_report("w0", report(), NOW)
    assert made.fits(PromptSize(4000))
    assert not made.fits(PromptSize(10**6))


@cases(
    ("states", "place"),
    [
        ([("always", OPEN), ("overflow", OPEN)], 0),
        ([("always", CROWDED), ("always", OPEN), ("failure", OPEN), ("fallback", OPEN)], 0),
        ([("always", CROWDED), ("overflow", OPEN)], 1),
        ([("always", CROWDED), ("overflow", CROWDED)], 0),
        ([("always", FULL), ("overflow", CROWDED)], 1),
        ([("always", FULL), ("failure", OPEN), ("fallback", OPEN)], 2),
        ([("always", FULL), ("always", CROWDED), ("fallback", OPEN)], 1),
        ([("always", DOWN), ("overflow", FULL), ("failure", OPEN), ("fallback", OPEN)], 3),
        ([("always", DOWN), ("overflow", DOWN), ("failure", OPEN)], 2),
        ([("always", DOWN), ("fallback", DOWN)], 0),
        ([("always", DOWN), ("fallback", FULL)], 0),
    ],
)
def test_a_later_destination_takes_it_for_its_own_reason_alone(
    states: list[tuple[When, DestinationLoad]], place: int
) -> None:
    assert choose(states) == place


WHENS: list[When] = ["always", "overflow", "failure", "fallback"]


@given(st.lists(st.tuples(st.sampled_from(WHENS), st.sampled_from(DestinationLoad)), min_size=1, max_size=6))
def test_whoever_takes_it_instead_can_and_is_better_off_than_the_first(
    states: list[tuple[When, DestinationLoad]],
) -> None:
    place = choose(states)
    if place:
        assert states[place][1] < min(states[0][1], FULL)


@given(
    st.lists(st.tuples(st.sampled_from(WHENS), st.sampled_from(DestinationLoad)), max_size=6),
    st.sampled_from(DestinationLoad),
)
def test_whoever_waits_goes_on_to_who_can_take_it_and_is_better_off(
    states: list[tuple[When, DestinationLoad]], here: DestinationLoad
) -> None:
    place = next_destination(states, here)
    if place is None:
        assert not any(pressure is OPEN and when == "overflow" and here >= CROWDED for when, pressure in states)
    else:
        assert states[place][1] < min(here, FULL)


@given(st.floats(0.1, 600.0), st.integers(0, 20))
def test_the_shares_of_all_destinations_fit_in_the_time_that_a_request_may_wait(hold_s: float, others: int) -> None:
    waited = 0.0
    for left in range(others, -1, -1):
        waited += share_s(hold_s - waited, left)
    assert waited == pytest.approx(hold_s)


def service_state(**classes: object) -> ServiceState:
    seen = snapshot(service(classes={"interactive": {"slo": {"ttft": {"p95": "500ms"}}, **classes}}), tenant())
    chat: ResolvedService = seen.services["default/chat"]
    return ServiceState(chat, ServiceMetrics(Metrics("gateway"), chat), HttpLimits(), ShortestTTFT(0.5))


def test_a_service_is_down_without_workers_crowded_when_late_and_full_when_it_refuses() -> None:
    made = service_state(queueLimit=1)
    assert made.load(CLS, 40, PromptSize(40), NOW) is DOWN
    made.pool.update([endpoint()])
    made.pool.on_report("w0", report(slots=1), NOW)
    assert made.load(CLS, 40, PromptSize(40), NOW) is OPEN
    made.pool.on_report("w0", report(slots=1, queued_tokens={CLS: 600}), NOW)
    assert made.load(CLS, 40, PromptSize(40), NOW) is CROWDED
    for number in range(2):
        made.dispatcher.join(QueuedRequest(number, CLS, 10, 40, NOW + 30), NOW)
    assert made.load(CLS, 40, PromptSize(40), NOW) is FULL


SECONDS = st.floats(0.0, 100.0)


@given(SECONDS, st.none() | SECONDS, st.lists(SECONDS, max_size=3))
def test_only_a_target_that_is_predicted_to_be_missed_overloads_a_service(
    ttft_s: float, wait_s: float | None, promised: list[float]
) -> None:
    found = overloaded(ttft_s, wait_s, promised)
    if not promised:
        assert found is OPEN
    elif wait_s:
        assert found is (CROWDED if ttft_s + wait_s > min(promised) else OPEN)
    else:
        assert found is (CROWDED if ttft_s > max(promised) else OPEN)


@given(SECONDS, SECONDS, SECONDS, st.lists(SECONDS, min_size=1, max_size=3))
def test_who_waits_longer_is_never_better_off(ttft_s: float, wait_s: float, more: float, promised: list[float]) -> None:
    if wait_s:
        assert overloaded(ttft_s, wait_s + more, promised) >= overloaded(ttft_s, wait_s, promised)
        assert overloaded(ttft_s, None, promised) <= overloaded(ttft_s, wait_s, promised)


def busy(slots: int = 2) -> ServiceState:
    """A service whose worker has requests in all its slots, and a step of 10 ms."""
    made = service_state()
    made.pool.update([endpoint()])
    made.pool.on_report("w0", report(slots=slots), NOW)
    made.pool.on_report("w0", report(slots=slots), NOW + 10)  # all slots are open to it by now
    for number in range(slots):
        made.dispatcher.join(QueuedRequest(number, CLS, 10, 40, NOW + 60), NOW + 10)
    assert len(made.dispatcher.dispatch(NOW + 10)) == slots
    for number in range(slots):
        made.pool.workers["w0"].began(number)
    return made


def learn(made: ServiceState, tokens: int) -> None:
    """An answer of this length has ended well."""
    made.arrived(CLS, 10)
    made.tallies[CLS].ended(True, TokenUsage(output=tokens))


def test_a_service_without_a_free_slot_is_overloaded_when_the_slot_wait_misses_the_target() -> None:
    for tokens, pressure in ((50, OPEN), (200, CROWDED)):  # half of 50 * 10 ms, and of 200 * 10 ms
        made = busy()
        learn(made, tokens)
        assert made.load(CLS, 40, PromptSize(40), NOW + 10) is pressure


def test_who_waits_before_it_counts() -> None:
    made = busy()
    learn(made, 50)
    for number in range(2, 4):
        made.dispatcher.join(QueuedRequest(number, CLS, 10, 40, NOW + 60), NOW + 10)
    assert made.load(CLS, 40, PromptSize(40), NOW + 10) is CROWDED


def test_a_wait_that_is_not_known_crowds_nothing() -> None:
    made = busy()
    assert made.load(CLS, 40, PromptSize(40), NOW + 10) is OPEN
    made.dispatcher.join(QueuedRequest(9, CLS, 10, 40, NOW + 60), NOW + 10)
    assert made.load(CLS, 40, PromptSize(40), NOW + 10) is OPEN


def test_a_free_slot_is_no_wait_however_long_answers_are() -> None:
    made = busy()
    learn(made, 4000)
    made.dispatcher.release(QueuedRequest(0, CLS, 10, 40, NOW + 60), NOW + 10, suspect=False)
    assert made.load(CLS, 40, PromptSize(40), NOW + 10) is OPEN


def test_a_measured_dispatch_rate_overrides_the_slower_length_estimate() -> None:
    made, now = busy(), NOW + 10
    learn(made, 4000)
    for number in range(100, 160):  # answers of a tenth of a second, for longer than the pace is remembered
        made.dispatcher.join(QueuedRequest(number, CLS, 10, 40, now + 60), now)
        for busy_one in list(made.dispatcher._in_flight)[:1]:
            made.dispatcher.release(QueuedRequest(busy_one, CLS, 10, 40, now + 60), now, suspect=False)
        made.pool.on_report("w0", report(slots=2, running=2), now)
        assert len(made.dispatcher.dispatch(now)) == 1
        made.pool.workers["w0"].began(number)
        now += 0.2
    made.dispatcher.join(QueuedRequest(200, CLS, 10, 40, now + 60), now)
    assert made.dispatcher.dispatch(now) == []
    assert made.load(CLS, 40, PromptSize(40), now) is OPEN


def test_what_was_diverted_is_demand_for_the_service_that_was_asked() -> None:
    made = service_state()
    made.diverted(CLS, PromptSize(400), FallbackReason.QUEUE_FULL)
    assert (made.tallies[CLS].arrivals, made.tallies[CLS].prompt_tokens) == (1, 100)
    assert made.tallies[CLS].open == 0


def test_destinations_say_when_they_are_asked() -> None:
    seen = snapshot(*SERVICES, tenant())
    assert Destination(seen.services["default/a"], "a").when == "always"
