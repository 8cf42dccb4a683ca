"""The simulation that fairness is judged by: what it counts is what was done."""

from benchmarks.fairness.__main__ import SETTLE_S, gap, jain
from benchmarks.fairness.runs import ServiceRecord, fair, first_come, last_gap
from benchmarks.fairness.shared import Let
from benchmarks.harness import quantile
from benchmarks.scheduling.runs import h100

from paceline_core.registry.enums import RequestClass
from paceline_simulator.traces import TraceRequest

ENGINE = h100(64, 0.5, sequences=4)


def crowd() -> dict[RequestClass, list[TraceRequest]]:
    """The calls of all come at once."""
    tenants = ["noisy"] * 40 + ["quiet"] * 10
    return {RequestClass.INTERACTIVE: [TraceRequest(0.0, 600, 20, tenant=tenant) for tenant in tenants]}


def test_all_that_was_asked_for_is_served_and_counted_once() -> None:
    record, outcome = fair(crowd(), ENGINE, 1)
    served = {tenant: sum(tokens for _, tokens in entries) for tenant, entries in record.service.items()}
    assert served == {"noisy": 40 * 640, "quiet": 10 * 640}
    assert outcome.prompts == 50 * 600
    assert {tenant: len(waits) for tenant, waits in record.waits.items()} == {"noisy": 40, "quiet": 10}


def test_a_quiet_tenant_does_not_wait_for_a_noisy_one_but_first_come_first_served_it_does() -> None:
    last = {}
    for runner in (fair, first_come):
        record, _ = runner(crowd(), ENGINE, 1)
        last[runner] = {tenant: max(at for at, _ in waits) for tenant, waits in record.waits.items()}
    assert last[fair]["quiet"] < last[fair]["noisy"] / 2
    assert last[first_come]["quiet"] > last[first_come]["noisy"]


def test_a_run_ends_when_its_time_is_over_and_counts_what_was_done_by_then() -> None:
    record, _ = fair(crowd(), ENGINE, 1, until=0.5)
    assert 0 < len(record.ttft["noisy"]) < 40
    assert record.idle == {"noisy": 0.0, "quiet": 0.0}


def test_a_tenant_was_last_idle_at_the_end_of_the_last_gap_between_its_waits() -> None:
    assert last_gap([(0.0, 2.0), (1.0, 3.0), (3.0, 9.0)]) == 0.0
    assert last_gap([(5.0, 6.0), (0.0, 2.0), (5.5, 9.0)]) == 5.0


def test_the_index_is_one_for_equals_and_a_share_for_one_who_has_all() -> None:
    assert jain([3.0, 3.0, 3.0]) == 1
    assert jain([3.0, 0.0, 0.0]) == 1 / 3


def test_a_quantile_is_a_value_that_was_seen() -> None:
    assert quantile([5.0, 1.0, 3.0], 0.5) == 3
    assert quantile([5.0, 1.0, 3.0], 0.99) == 5


def test_the_gap_is_the_most_that_one_was_served_beyond_another_from_any_moment_on() -> None:
    record = ServiceRecord()
    record.service["a"] = [(SETTLE_S - 1, 900.0), (SETTLE_S + 1, 10.0), (SETTLE_S + 4, 10.0)]
    record.service["b"] = [(SETTLE_S + 2, 25.0), (SETTLE_S + 5, 5.0)]
    assert gap(record, ["b", "a"]) == 25.0


def test_overshoot_is_what_was_let_through_beyond_the_limit_and_what_refilled() -> None:
    assert Let(60.0, admitted=90.0, first=10.0, last=40.0).overshoot == 0
    assert Let(60.0, admitted=93.0, first=10.0, last=40.0).overshoot == 3 / 60
