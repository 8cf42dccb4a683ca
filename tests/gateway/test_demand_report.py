"""What a service tells the autoscaler, and when."""

from dataclasses import replace
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.manifests import service
from tests.gateway.pieces import endpoint, report, snapshot

from paceline_core.registry import Outcome, RequestClass, Verdict
from paceline_core.registry.metrics import DEMAND_SERIES
from paceline_core.telemetry import Metrics
from paceline_core.wire import LENGTH_BUCKETS, DemandReport, decode, length_bucket
from paceline_gateway.config import HttpLimits
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.request.prompt_size import PromptSize
from paceline_gateway.request.types import RequestRecord, TokenUsage
from paceline_gateway.routing.policies import ShortestTTFT
from paceline_gateway.services.demand_report import ChangeNotifier, demand_lines, service_demand
from paceline_gateway.services.service_state import TENANTS, ServiceState
from paceline_gateway.telemetry.service_metrics import ServiceMetrics

NOW = 100.0
INTERACTIVE, BATCH, _ = RequestClass


def service_state(metrics: Metrics | None = None) -> ServiceState:
    chat = snapshot(service()).services["default/chat"]
    series = ServiceMetrics(metrics or Metrics("gateway"), chat)
    return ServiceState(chat, series, HttpLimits(), ShortestTTFT(0.5))


def record(outcome: Outcome, output: int = 5) -> RequestRecord:
    return RequestRecord(
        outcome, 200, None, "team", None, 0.0, 0.0, 0.0, None, 1.0, 1, "w0", TokenUsage(prompt=50, output=output)
    )


def test_completed_requests_tell_what_they_took() -> None:
    made = service_state()
    for usage in (TokenUsage(prompt=100, cached=60, output=10), TokenUsage(prompt=7, output=4), TokenUsage(output=3)):
        made.arrived(INTERACTIVE, 10, "team")
        made.ended(replace(record(Outcome.OK), meter=usage), [], INTERACTIVE, PromptSize(10))
    (cls,) = service_demand(made, NOW).classes
    assert (cls.completed, cls.output_tokens, cls.completed_prompt_tokens, cls.cached_tokens) == (3, 17, 107, 60)
    assert cls.attended_pairs == 40 * (100 - 20) + 7 * 7 // 2
    assert cls.kv_reads == 10 * (100 + 5) + 4 * (7 + 2)


def test_the_series_of_a_scrape_have_what_the_report_has() -> None:
    """From them an autoscaler that has lost its history makes it anew."""
    metrics = Metrics("gateway")
    made = service_state(metrics)
    for number in range(3):
        made.arrived(INTERACTIVE, 10, f"team-{number}")
        made.ended(record(Outcome.OK, output=5 + number), [], INTERACTIVE, PromptSize(10))
        made.show(NOW)
    made.show(NOW)
    text = metrics.exposition("")[0].decode()
    rows = service_demand(made, NOW).classes
    for count, (metric, kind) in DEMAND_SERIES.items():
        place = f'{metric}{{class="interactive",kind="{kind}",pisvc="chat",pisvc_namespace="default"}}'
        assert f"{place} {float(sum(getattr(row, count) for row in rows))}\n" in text
        assert f"{place.replace('interactive', 'batch')} 0.0\n" in text


def test_lengths_are_told_where_they_are_asked_for() -> None:
    made = service_state()
    for prompt, cached, output in ((1000, 600, 64), (1400, 0, 90), (0, 0, 7)):
        meter = TokenUsage(prompt=prompt, cached=cached, output=output)
        made.ended(replace(record(Outcome.OK), meter=meter), [], INTERACTIVE, PromptSize(10))
    assert service_demand(made, NOW).lengths == ()
    (lengths,) = service_demand(made, NOW, lengths=True).lengths
    assert (lengths.name, lengths.requests, lengths.prompt_tokens) == (INTERACTIVE, 2, 2400)
    assert (lengths.cached_tokens, lengths.output_tokens) == (600, 154)
    assert [place for place, count in enumerate(lengths.prompts) for _ in range(count)] == [19, 20]
    assert [place for place, count in enumerate(lengths.outputs) for _ in range(count)] == [12, 12]


@given(st.integers(1, 10**9))
def test_a_length_is_in_the_bucket_that_begins_below_it(tokens: int) -> None:
    bucket = length_bucket(tokens)
    assert 2 ** (bucket / 2) <= tokens * (1 + 1e-9)
    assert bucket == LENGTH_BUCKETS - 1 or tokens <= 2 ** ((bucket + 1) / 2)


def test_a_class_that_was_never_asked_for_is_left_out() -> None:
    made = service_state()
    assert service_demand(made, NOW).classes == ()
    made.arrived(BATCH, 10)
    assert [cls.name for cls in service_demand(made, NOW).classes] == [BATCH]


def test_waiting_requests_are_described() -> None:
    made = service_state()
    for number, (tokens, deadline) in enumerate([(30, NOW + 60), (12, NOW + 20)]):
        made.arrived(INTERACTIVE, tokens)
        made.dispatcher.join(QueuedRequest(number, INTERACTIVE, tokens, 100, deadline), NOW - 3 + number)
    (cls,) = service_demand(made, NOW).classes
    assert (cls.arrivals, cls.prompt_tokens, cls.queued, cls.queued_prompt_tokens, cls.held) == (2, 42, 2, 42, 2)
    assert (cls.oldest_wait_s, cls.nearest_deadline_s, cls.in_flight) == (3.0, 20.0, 0)


def test_what_is_too_late_for_its_targets_is_told_apart() -> None:
    made = service_state()
    for number, in_time_s in enumerate([2.0, 3.0, 4.0]):
        made.arrived(INTERACTIVE, 10)
        queued = QueuedRequest(number, INTERACTIVE, 10 + number, 100, NOW + 60, in_time_s=in_time_s)
        made.dispatcher.join(queued, NOW - 3)
    (cls,) = service_demand(made, NOW).classes
    assert (cls.queued, cls.queued_prompt_tokens, cls.overdue_prompt_tokens) == (3, 33, 21)


def test_a_dispatched_request_is_in_flight_and_no_longer_held() -> None:
    made = service_state()
    made.arrived(INTERACTIVE, 10)
    made.dispatcher.join(QueuedRequest(0, INTERACTIVE, 10, 100, NOW + 9), NOW)
    made.pool.update([endpoint()])
    made.pool.on_report("w0", report(), NOW)
    made.dispatcher.dispatch(NOW)
    demand = service_demand(made, NOW)
    assert (demand.classes[0].in_flight, demand.classes[0].queued, demand.classes[0].held) == (1, 0, 0)
    assert demand.workers == 1


def test_each_tenant_has_its_own_row() -> None:
    made = service_state()
    for number, (tenant, deadline) in enumerate([("a", NOW + 60), ("b", NOW + 20), ("a", NOW + 40)]):
        made.arrived(INTERACTIVE, 10 + number, tenant)
        queued = QueuedRequest(number, INTERACTIVE, 10 + number, 100, deadline, tenant=tenant)
        made.dispatcher.join(queued, NOW - 3 + number)
    made.arrived(INTERACTIVE, 7, "b")
    a, b = service_demand(made, NOW).classes
    assert (a.tenant, a.arrivals, a.prompt_tokens, a.queued, a.queued_prompt_tokens) == ("a", 2, 22, 2, 22)
    assert (a.held, a.oldest_wait_s, a.nearest_deadline_s, a.in_flight) == (2, 3.0, 40.0, 0)
    assert (b.tenant, b.arrivals, b.prompt_tokens, b.queued, b.in_flight) == ("b", 2, 18, 1, 1)
    assert (b.held, b.oldest_wait_s, b.nearest_deadline_s) == (1, 2.0, 20.0)


class Asked(NamedTuple):
    """One request's story: who asks, whether it waits, whether it has ended."""

    tenant: str
    waits: bool
    outcome: Outcome | None


ASKED = st.builds(Asked, st.integers(0, 2 * TENANTS).map(str), st.booleans(), st.sampled_from([None, *Outcome]))


@given(st.lists(ASKED, max_size=120))
def test_the_rows_of_a_class_are_bounded_and_add_up_to_it(story: list[Asked]) -> None:
    made = service_state()
    for number, asked in enumerate(story):
        made.arrived(INTERACTIVE, 10, asked.tenant)
        if asked.outcome is not None:
            ended = replace(record(asked.outcome), tenant=asked.tenant)
            made.ended(ended, [("ttft_p95", Verdict.GOOD)], INTERACTIVE, PromptSize(200))
        elif asked.waits:
            made.dispatcher.join(QueuedRequest(number, INTERACTIVE, 10, 100, NOW + 9, tenant=asked.tenant), NOW)
    rows, whole, line = (
        service_demand(made, NOW).classes,
        made.tallies[INTERACTIVE],
        made.dispatcher.queues[INTERACTIVE],
    )
    assert len({row.tenant for row in rows}) == len(rows) <= TENANTS + 1
    for field in ("arrivals", "prompt_tokens", "output_tokens", "completed", "good", "bad"):
        assert sum(getattr(row, field) for row in rows) == getattr(whole, field)
    assert sum(row.queued for row in rows) == len(line)
    assert sum(row.queued_prompt_tokens for row in rows) == line.prompt_tokens
    assert sum(row.in_flight for row in rows) == whole.open - len(line)
    assert {row.nearest_deadline_s for row in rows if row.queued} == ({9.0} if len(line) else set())


def test_only_answered_requests_are_completed() -> None:
    made = service_state()
    for outcome in (Outcome.OK, Outcome.SHED, Outcome.CANCELLED):
        made.arrived(INTERACTIVE, 10, "team")
        verdicts = [("ttft_p95", Verdict.GOOD if outcome is Outcome.OK else Verdict.BAD_FAILED)]
        made.ended(record(outcome), [] if outcome is Outcome.CANCELLED else verdicts, INTERACTIVE, PromptSize(200))
    (cls,) = service_demand(made, NOW).classes
    assert (cls.arrivals, cls.completed, cls.output_tokens, cls.good, cls.bad, cls.in_flight) == (3, 1, 5, 1, 1, 0)


def test_prompts_are_estimated_better_after_the_first_answer() -> None:
    made = service_state()
    assert made.estimates.prompt_tokens(PromptSize(4000)) == 1000
    made.arrived(INTERACTIVE, 1000)
    answered = record(Outcome.OK)
    made.ended(replace(answered, meter=TokenUsage(prompt=1000, output=5)), [], INTERACTIVE, PromptSize(2000))
    assert made.estimates.prompt_tokens(PromptSize(4000), "team") == 2000


def test_an_estimate_is_never_more_than_the_model_takes() -> None:
    made = service_state()
    assert made.estimates.prompt_tokens(PromptSize(3_000_000)) == 750_000
    made.pool.update([endpoint("w0")])
    made.pool.on_report("w0", report("w0", max_model_len=0), NOW)
    assert made.estimates.prompt_tokens(PromptSize(3_000_000)) == 750_000
    made.pool.on_report("w0", report("w0", max_model_len=4096), NOW)
    assert (made.estimates.prompt_tokens(PromptSize(3_000_000)), made.estimates.prompt_tokens(PromptSize(400))) == (
        4096,
        100,
    )
    assert made.estimates.prompt_tokens(PromptSize(3_000_000, prompts=100)) == 409_600
    assert made.estimates.most_prompt_tokens(PromptSize(5000)) == 4096
    assert made.estimates.most_prompt_tokens(PromptSize(5, unbound=True)) == 4096
    made.pool.update([])
    assert made.estimates.prompt_tokens(PromptSize(3_000_000)) == 4096


async def test_a_notified_reader_gets_a_report_at_once_and_a_closed_notifier_ends_the_stream() -> None:
    changes, services = ChangeNotifier(), [service_state()]
    lines = demand_lines("g0", "2026-01-01T00:00:00Z", lambda: services, lambda: NOW, changes)
    first = decode(DemandReport, await anext(lines))
    assert changes.readers == 1
    changes.notify()
    second = decode(DemandReport, await anext(lines))
    assert (first.seq, second.seq, second.gateway) == (0, 1, "g0")
    changes.close()
    assert [line async for line in lines] == []
    assert changes.readers == 0
