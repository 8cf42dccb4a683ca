"""The simulation that fairness is judged by: what it counts is what was done."""

from benchmarks.fairness.__main__ import SETTLE_S, gap, jain
from benchmarks.fairness.shared import Let
from benchmarks.fairness.simulation import Fair, Given, Story
from benchmarks.harness import quantile
from benchmarks.routing.simulation import Job, Way
from benchmarks.scheduling.simulation import Machine
from benchmarks.scheduling.traces import Call

from paceline_core.registry.enums import RequestClass
from paceline_gateway.routing.policies import RoutingRequest

MACHINE = Machine.h100(64, 0.5)
WAY = Way("pace", sequences=4)


def job(number: int, tenant: str, prompt: int = 600) -> Job:
    """The calls of all come at once."""
    call = Call(0.0, prompt, 20, (2 * number + 10, 2 * number + 11))
    return Job(number, 0.0, call, None, RoutingRequest(prompt, RequestClass.INTERACTIVE, 20), tenant)


def crowd() -> list[Job]:
    return [job(number, "noisy" if number < 40 else "quiet") for number in range(50)]


def test_all_that_was_asked_for_is_served_and_counted_once() -> None:
    fair = Fair(crowd(), MACHINE, WAY, 1)
    outcome = fair.run()
    served = {tenant: sum(tokens for _, tokens in entries) for tenant, entries in fair.story.service.items()}
    assert served == {"noisy": 40 * 640, "quiet": 10 * 640}
    assert outcome.prompts == 50 * 600
    assert {tenant: len(waits) for tenant, waits in fair.story.waits.items()} == {"noisy": 40, "quiet": 10}


def test_a_quiet_tenant_does_not_wait_for_a_noisy_one() -> None:
    fair = Fair(crowd(), MACHINE, WAY, 1)
    fair.run()
    last = {tenant: max(at for at, _ in waits) for tenant, waits in fair.story.waits.items()}
    assert last["quiet"] < last["noisy"] / 2


def test_both_kinds_of_queue_serve_the_same_calls() -> None:
    plain = Given(crowd(), MACHINE, WAY, 2).run()
    fair = Fair(crowd(), MACHINE, WAY, 2).run()
    assert len(plain.ttft) == len(fair.ttft) == 50


def test_a_run_ends_when_its_time_is_over() -> None:
    fair = Fair(crowd(), MACHINE, Way("pace", sequences=4, until=0.5), 1)
    fair.run()
    assert 0 < len(fair.story.waits["noisy"]) < 40


def test_the_index_is_one_for_equals_and_a_share_for_one_who_has_all() -> None:
    assert jain([3.0, 3.0, 3.0]) == 1
    assert jain([3.0, 0.0, 0.0]) == 1 / 3


def test_a_quantile_is_a_value_that_was_seen() -> None:
    assert quantile([5.0, 1.0, 3.0], 0.5) == 3
    assert quantile([5.0, 1.0, 3.0], 0.99) == 5


def test_the_gap_is_the_most_that_one_was_served_beyond_another_from_any_moment_on() -> None:
    story = Story()
    story.service["a"] = [(SETTLE_S - 1, 900.0), (SETTLE_S + 1, 10.0), (SETTLE_S + 4, 10.0)]
    story.service["b"] = [(SETTLE_S + 2, 25.0), (SETTLE_S + 5, 5.0)]
    assert gap(story, ["b", "a"]) == 25.0


def test_overshoot_is_what_was_let_through_beyond_the_limit_and_what_refilled() -> None:
    assert Let(60.0, admitted=90.0, first=10.0, last=40.0).overshoot == 0
    assert Let(60.0, admitted=93.0, first=10.0, last=40.0).overshoot == 3 / 60
