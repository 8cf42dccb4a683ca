"""What the admin port tells of tenants, lines, workers and services: pure, from a gateway's own objects."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.manifests import service, tenant
from tests.gateway.pieces import endpoint, report, snapshot
from tests.gateway.quota_bench import granted

from paceline_core.kube.cluster import Manifest
from paceline_core.registry import Outcome, RequestClass, Verdict
from paceline_core.telemetry import Metrics
from paceline_gateway.admin.pages import (
    MAX_PAGE,
    TENANTS,
    AdminSnapshot,
    PageQuery,
    paginate,
    queues,
    services,
    tenants,
    workers,
)
from paceline_gateway.admin.views import TenantView, Workers
from paceline_gateway.config import HttpLimits
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.quota.manager import QuotaManager
from paceline_gateway.quota.types import QuotaUsage, Reservation
from paceline_gateway.request.prompt_size import PromptSize
from paceline_gateway.request.types import RequestRecord, RequestTerms, TokenUsage
from paceline_gateway.routing.config_snapshot import ConfigSnapshot
from paceline_gateway.routing.policies import ShortestTTFT
from paceline_gateway.services.service_state import ServiceState
from paceline_gateway.telemetry.service_metrics import ServiceMetrics
from paceline_gateway.usage.ledger import UsageLedger
from paceline_gateway.usage.types import UsageAmount

NOW = 100.0
NOVEMBER = datetime(2026, 11, 15, tzinfo=UTC)
INTERACTIVE, BATCH, _ = RequestClass


def gateway_state(
    *objects: Manifest, quotas: QuotaManager | None = None, reservations: Sequence[Reservation] = ()
) -> AdminSnapshot:
    shown = snapshot(*objects)
    services = {key: _desk(shown, key) for key in shown.services}
    ledger = UsageLedger("g0", NOVEMBER)
    counts = QuotaManager() if quotas is None else quotas
    return AdminSnapshot("g0", NOW, "2026-11-15T00:00:00Z", services, shown, counts, ledger, reservations)


def _desk(shown: ConfigSnapshot, key: str) -> ServiceState:
    found = shown.services[key]
    return ServiceState(found, ServiceMetrics(Metrics("gateway"), found), HttpLimits(), ShortestTTFT(0.5))


def wait(state: ServiceState, number: int, who: str, since: float = NOW, name: RequestClass = INTERACTIVE) -> None:
    state.arrived(name, 30)
    queued = QueuedRequest(number, name, 30, 100, NOW + 20, tenant=who, expected_output=10)
    state.dispatcher.join(queued, since)


def only(seen: AdminSnapshot) -> TenantView:
    (view,) = tenants(seen, PageQuery()).tenants
    return view


def test_a_tenants_limits_show_what_is_used_reserved_and_left() -> None:
    limits = {"requestsPerMinute": 60, "inputTokensPerMinute": 1200, "concurrency": 4}
    quotas, objects = QuotaManager(), tenant(limits=limits)
    who = snapshot(objects).tenants["team"]
    done = granted(quotas, who, QuotaUsage(1, 100, 50), NOW)
    open_one = granted(quotas, who, QuotaUsage(1, 500, 50), NOW)
    quotas.settle(done, QuotaUsage(1, 100, 20), NOW)
    view = only(gateway_state(objects, quotas=quotas, reservations=[open_one]))
    assert (view.open, view.queued, view.in_flight) == (1, 0, 1)
    assert view.requests.model_dump() == {"limit": 60, "used": 2, "reserved": 1, "remaining": 58, "reset_s": 2}
    assert view.input_tokens.model_dump() == {
        "limit": 1200, "used": 600, "reserved": 500, "remaining": 600, "reset_s": 30,
    }  # fmt: skip
    assert view.output_tokens.model_dump() == {
        "limit": None, "used": None, "reserved": 50, "remaining": None, "reset_s": None,
    }  # fmt: skip
    assert (view.concurrency.used, view.concurrency.remaining, view.concurrency.reset_s) == (1, 3, None)


@given(st.lists(st.tuples(st.integers(1, 30), st.floats(0, 5)), max_size=20), st.integers(5, 100))
def test_the_remaining_limit_shown_equals_the_header_and_never_exceeds_the_limit(
    uses: list[tuple[int, float]], limit: int
) -> None:
    quotas, objects, now = QuotaManager(), tenant(limits={"requestsPerMinute": limit}), 0.0
    who = snapshot(objects).tenants["team"]
    for requests, passed in uses:
        now += passed
        quotas.reserve(who, QuotaUsage(requests, 0, 0), now, lambda _: None)
    left = only(replace(gateway_state(objects, quotas=quotas), now=now)).requests
    header = quotas.fields(who, now).split(b"x-ratelimit-remaining-requests: ")[1].split(b"\r")[0]
    assert left.remaining is not None
    assert left.used is not None
    assert 0 <= left.remaining - int(header) <= 1
    assert 0 <= left.remaining <= limit
    assert left.used + left.remaining == pytest.approx(max(limit, left.used), abs=0.01)


def test_an_idle_tenant_has_all_of_its_limits_where_one_gateway_counts_alone() -> None:
    view = only(gateway_state(tenant(limits={"requestsPerMinute": 60, "concurrency": 2})))
    assert (view.requests.remaining, view.concurrency.remaining, view.open) == (60, 2, 0)


def test_what_others_use_of_an_idle_tenants_limits_is_not_made_up() -> None:
    shared = QuotaManager(send=lambda _: None, holder="g0", gateways=2)
    view = only(gateway_state(tenant(limits={"requestsPerMinute": 60}), quotas=shared))
    assert (view.requests.limit, view.requests.remaining, view.requests.used) == (60, None, None)


def test_a_limit_of_nothing_never_comes_back() -> None:
    view = only(gateway_state(tenant(limits={"requestsPerMinute": 0})))
    assert (view.requests.remaining, view.requests.reset_s) == (0, None)


def test_a_changed_limit_is_shown_before_the_tenant_asks_again() -> None:
    quotas, old = QuotaManager(), tenant(limits={"requestsPerMinute": 60})
    granted(quotas, snapshot(old).tenants["team"], QuotaUsage(1, 1, 1), NOW)
    view = only(gateway_state(tenant(limits={"requestsPerMinute": 600}), quotas=quotas))
    assert (view.requests.limit, view.requests.used, view.requests.remaining) == (600, 1, 599)


def test_a_month_is_shown_with_its_budget_and_open_reservations() -> None:
    seen = gateway_state(tenant(limits={"monthly": {"tokens": 1000, "dollars": "2.5"}}))
    who = seen.snapshot.tenants["team"]
    assert seen.ledger.reserve(1, who, UsageAmount(1, 30, 10, Decimal("0.001"))) is None
    seen.ledger.charged("team", UsageAmount(2, 100, 50, Decimal("0.25")), NOW)
    month = only(seen).month
    assert (month.month, month.requests, month.input_tokens, month.output_tokens) == ("2026-11", 2, 100, 50)
    assert (month.dollars, month.dollars_limit, month.tokens_limit) == ("0.25", "2.5", 1000)
    assert (month.reserved_tokens, month.reserved_dollars) == (40, "0.001")


def test_only_busy_tenants_are_listed_on_request() -> None:
    quotas, objects = QuotaManager(), [tenant(name, limits={"requestsPerMinute": 9}) for name in ("idle", "team")]
    granted(quotas, snapshot(*objects).tenants["team"], QuotaUsage(1, 1, 1), NOW)
    page = tenants(gateway_state(*objects, quotas=quotas), PageQuery(), busy=True)
    assert ([view.tenant for view in page.tenants], page.total, page.truncated) == (["team"], 1, False)


@given(st.sets(st.text("abc-1", min_size=1, max_size=6), max_size=40), st.integers(1, 7))
def test_pages_joined_are_the_whole_list_in_order_and_only_the_last_is_not_truncated(
    names: set[str], limit: int
) -> None:
    joined: list[str] = []
    for _ in range(len(names) + 1):
        part = paginate(names, str, PageQuery(limit, joined[-1] if joined else ""))
        assert part.total == len(names)
        assert len(part.items) <= limit
        joined += part.items
        if not part.truncated:
            break
    assert joined == sorted(names)


def test_an_answer_is_never_longer_than_asked_for() -> None:
    seen = gateway_state(*[tenant(f"t{number:04}") for number in range(MAX_PAGE + 1)])
    page = tenants(seen, PageQuery(limit=MAX_PAGE))
    assert (len(page.tenants), page.total, page.truncated) == (MAX_PAGE, MAX_PAGE + 1, True)


def test_a_queue_view_lists_tenants_with_wait_and_share() -> None:
    seen = gateway_state(service(classes={"interactive": {"queueLimit": 30}}), tenant(weight=2), tenant("other"))
    state = seen.services["default/chat"]
    for number in range(4):
        wait(state, number, "team", NOW - 3 + number)
    wait(state, 4, "other")
    (queue,) = queues(seen, PageQuery()).queues
    line = queue.lines[0]
    assert (queue.waiting, queue.held, queue.size_bytes) == (5, 5, 500)
    assert (line.name, line.waiting, line.limit, line.prompt_tokens) == (INTERACTIVE, 5, 30, 150)
    assert (line.oldest_s, line.deadline_s, line.wait_s, line.in_flight) == (3.0, 20.0, None, 0)
    assert [(who.tenant, who.waiting, who.cost_tokens) for who in line.tenants] == [("team", 4, 200), ("other", 1, 50)]
    assert (line.tenants_total, line.truncated) == (2, False)
    assert queue.lines[1].wait_s == 0.0


def test_a_queue_view_of_many_tenants_lists_the_largest() -> None:
    seen = gateway_state(service())
    for number in range(3 * TENANTS):
        wait(seen.services["default/chat"], number, f"t{number % (2 * TENANTS):02}")
    line = queues(seen, PageQuery()).queues[0].lines[0]
    assert (len(line.tenants), line.tenants_total, line.truncated) == (TENANTS, 2 * TENANTS, True)
    assert {who.waiting for who in line.tenants} == {2}


def test_tenant_and_queue_views_count_the_same_waiting_requests() -> None:
    seen = gateway_state(service(), service("code"), tenant(), tenant("other"))
    for number, key in enumerate(["default/chat", "default/code", "default/chat"]):
        wait(seen.services[key], number, "team", name=BATCH if number else INTERACTIVE)
    wait(seen.services["default/code"], 9, "other")
    by_tenant = {view.tenant: view.queued for view in tenants(seen, PageQuery()).tenants}
    assert by_tenant == {"team": 3, "other": 1}
    assert sum(queue.waiting for queue in queues(seen, PageQuery()).queues) == 4


def shown(seen: AdminSnapshot, **asked: Any) -> Workers:
    return workers(seen, PageQuery(**asked))


def test_a_worker_view_adds_dispatched_work_to_the_last_report() -> None:
    seen = gateway_state(service())
    state = seen.services["default/chat"]
    state.pool.update([endpoint("w0"), endpoint("w1", ready=False)])
    state.pool.on_report("w0", report(running=2, waiting={INTERACTIVE: 1}, queued_tokens={BATCH: 40}), NOW - 1)
    wait(state, 0, "team")
    assert len(state.dispatcher.dispatch(NOW)) == 1
    known, fresh = shown(seen).workers
    assert (known.worker, known.state, known.slots, known.in_flight, known.taken) == ("w0", "ready", 4, 1, 1)
    assert (known.running, known.waiting, known.backlog_tokens) == (2, 1, 70)
    assert known.backlog_by_class == {"interactive": 30, "batch": 40, "offline": 0}
    assert (known.circuit, known.pause_s, known.heard_s_ago, known.share) == ("closed", 0.0, 1.0, 4)
    assert known.open_slots < known.share
    assert (fresh.worker, fresh.state, fresh.slots, fresh.heard_s_ago) == ("w1", "starting", None, None)


def test_an_open_circuit_breaker_is_shown_with_its_remaining_pause() -> None:
    seen = gateway_state(service())
    state = seen.services["default/chat"]
    state.pool.update([endpoint("w0")])
    state.pool.on_report("w0", report(), NOW - 1)
    (worker,) = state.pool
    worker.breaker.failed(1, NOW - 0.25)
    (view,) = shown(seen).workers
    assert (view.circuit, view.pause_s) == ("open", 0.75)
    (later,) = shown(replace(seen, now=NOW + 5)).workers
    assert (later.circuit, later.pause_s) == ("half_open", 0.0)


def test_prefixes_are_counted_worker_by_worker_and_sum_up_to_the_whole() -> None:
    seen = gateway_state(service())
    fleet = seen.services["default/chat"].pool
    fleet.update([endpoint("w0"), endpoint("w1")])
    fleet.prefixes.note("w0", ["a", "b"], NOW)
    fleet.prefixes.note("w1", ["a"], NOW)
    sizes = [view.prefix_bytes for view in shown(seen).workers]
    assert sizes[0] == 2 * sizes[1]
    assert sum(sizes) == fleet.prefixes.bytes


def test_workers_are_paged_over_services_and_narrowed_to_one() -> None:
    seen = gateway_state(service(), service("code"))
    for state in seen.services.values():
        state.pool.update([endpoint("w0"), endpoint("w1")])
    first = shown(seen, limit=3)
    assert ([f"{w.service} {w.worker}" for w in first.workers][-1], first.truncated) == ("default/code w0", True)
    rest = shown(seen, limit=3, after="default/code w0")
    assert ([w.worker for w in rest.workers], rest.truncated) == (["w1"], False)
    assert shown(seen, service="default/code").total == 2
    assert shown(seen, service="default/none").workers == ()


def test_a_service_view_shows_arrivals_and_slo_results() -> None:
    promised = {"interactive": {"slo": {"ttft": {"p95": "500ms"}}}}
    seen = gateway_state(service(classes=promised))
    state = seen.services["default/chat"]
    terms = RequestTerms("default/chat", INTERACTIVE, True, 50, 60.0, 1)
    done = RequestRecord(
        Outcome.OK, 200, None, "team", terms, 0.0, 0.0, 0.0, 0.2, 1.0, 1, "w0", TokenUsage(prompt=50, output=5)
    )
    verdicts = [("ttft_p95", Verdict.GOOD)]
    state.arrived(INTERACTIVE, 30)
    state.ended(done, verdicts, INTERACTIVE, PromptSize(200))
    state.series.classes[INTERACTIVE].ended(done, verdicts)
    wait(state, 0, "team")
    (view,) = services(seen, PageQuery()).services
    cls = view.classes[0]
    assert (view.service, view.model, view.held, view.bytes_per_token) == ("default/chat", "chat", 1, 4.0)
    assert (cls.arrivals, cls.completed, cls.good, cls.bad, cls.output_tokens) == (2, 1, 1, 0, 5)
    assert (cls.queued, cls.in_flight) == (1, 0)
    assert [(p.metric, p.quantile, p.seconds) for p in cls.promises] == [("ttft", 0.95, 0.5)]
    assert (sum(cls.ttft.counts), len(cls.ttft.counts)) == (1, len(cls.ttft.bounds) + 1)


def test_every_view_is_json_that_reads_back_as_itself() -> None:
    seen = gateway_state(service(), tenant(limits={"monthly": {"dollars": "1"}}))
    state = seen.services["default/chat"]
    state.pool.update([endpoint()])
    state.pool.on_report("w0", report(), NOW)
    wait(state, 0, "team")
    for page in (tenants(seen, PageQuery()), queues(seen, PageQuery()), shown(seen), services(seen, PageQuery())):
        text = page.model_dump_json()
        assert type(page).model_validate_json(text) == page
        assert type(page).model_validate(json.loads(text) | {"new": 1}) == page
        assert (page.v, page.gateway) == (1, "g0")
