"""What the gateway counts: closed label values, bounded tenants, everything at zero from the start."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateway.manifests import service
from tests.gateway.pieces import snapshot

from paceline_core.objects.resolved import ResolvedService
from paceline_core.registry import Outcome, RequestClass
from paceline_core.telemetry import Metrics
from paceline_gateway.request.slo import evaluate_slos, phases
from paceline_gateway.request.types import RequestRecord, RequestTerms, TokenUsage
from paceline_gateway.telemetry.metrics import NO_TENANT, OTHER, TenantSeries
from paceline_gateway.telemetry.service_metrics import ServiceMetrics, forget

SLO = {"interactive": {"slo": {"ttft": {"p95": "500ms", "p99": "1s"}, "tpot": {"p95": "50ms"}}, "availability": 0.99}}
CHAT = snapshot(service(classes=SLO)).services["default/chat"]
RECORD = RequestRecord(
    outcome=Outcome.OK, status=200, code=None, tenant="team",
    terms=RequestTerms("default/chat", RequestClass.INTERACTIVE, True, 10, 30.0, 2),
    received=0.0, queued=0.0, sent=0.1, first=0.3, ended=1.3, attempts=2, worker="w0",
    meter=TokenUsage(prompt=100, cached=64, output=11),
)  # fmt: skip


def samples(metrics: Metrics) -> dict[str, float]:
    lines = metrics.exposition("")[0].decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#") and "_created" not in line)
    return {name: float(value) for name, value in pairs}


def counted(chat: ResolvedService, *records: RequestRecord) -> dict[str, float]:
    metrics = Metrics("gateway")
    series = ServiceMetrics(metrics, chat)
    for record in records:
        series.ended(record, RequestClass.INTERACTIVE, evaluate_slos(record, chat.targets), phases(record))
    return samples(metrics)


def test_every_outcome_and_verdict_is_there_at_zero() -> None:
    shown = counted(CHAT)
    place = 'pisvc="chat",pisvc_namespace="default"'
    for outcome in Outcome:
        for cls in RequestClass:
            assert shown[f'paceline_requests_total{{class="{cls}",outcome="{outcome}",{place}}}'] == 0
    slos = {"ttft_p95", "ttft_p99", "tpot_p95", "e2e_p95", "availability"}
    names = [name for name in shown if name.startswith("paceline_slo_requests_total") and 'class="interactive"' in name]
    assert {name.split('slo="')[1].split('"')[0] for name in names} == slos
    assert len(names) == 2 * (4 * 3 + 2)


def test_the_target_is_exported_beside_the_counts() -> None:
    shown = counted(CHAT)
    labels = 'class="interactive",pisvc="chat",pisvc_namespace="default",slo='
    assert shown[f'paceline_slo_threshold_seconds{{{labels}"ttft_p99"}}'] == 1.0
    assert shown[f'paceline_slo_objective_ratio{{{labels}"ttft_p99"}}'] == 0.99
    assert shown[f'paceline_slo_objective_ratio{{{labels}"availability"}}'] == 0.99
    place = 'class="interactive",pisvc="chat",pisvc_namespace="default"'
    assert shown[f"paceline_slo_window_seconds{{{place}}}"] == 28 * 86400


def test_whatever_is_judged_has_its_objective_shown() -> None:
    """Also the limit that a whole answer's targets are derived from; without it nobody is told of its misses."""
    judged, promised = (
        {name.split("slo=")[1].split('"')[1] for name in counted(CHAT) if name.startswith(family)}
        for family in ("paceline_slo_requests_total", "paceline_slo_objective_ratio")
    )
    assert promised == judged


def test_a_request_is_counted_once_everywhere() -> None:
    shown = counted(CHAT, RECORD)
    place = 'pisvc="chat",pisvc_namespace="default"'
    assert shown[f'paceline_requests_total{{class="interactive",outcome="ok",{place}}}'] == 1
    assert shown[f'paceline_request_ttft_seconds_sum{{class="interactive",{place}}}'] == 0.3
    assert shown[f'paceline_request_tpot_seconds_sum{{class="interactive",{place}}}'] == 0.1
    assert shown[f"paceline_retries_total{{{place}}}"] == 1
    assert shown[f'paceline_request_tokens_sum{{kind="cached",{place}}}'] == 64


NAMES = counted(CHAT).keys()


@settings(max_examples=10)
@given(st.sampled_from(Outcome), st.booleans(), st.integers(0, 50))
def test_no_request_can_name_a_series_that_was_not_there(outcome: Outcome, stream: bool, tokens: int) -> None:
    terms = RequestTerms("default/chat", RequestClass.INTERACTIVE, stream, 10, 30.0, 2)
    record = replace(RECORD, outcome=outcome, terms=terms, meter=TokenUsage(output=tokens))
    assert counted(CHAT, record).keys() == NAMES


def test_a_deleted_service_leaves_nothing() -> None:
    metrics = Metrics("gateway")
    ServiceMetrics(metrics, CHAT)
    forget(metrics, "default", "chat")
    assert not [name for name in samples(metrics) if "chat" in name]


def test_a_changed_target_preserves_the_counts() -> None:
    metrics = Metrics("gateway")
    series = ServiceMetrics(metrics, CHAT)
    series.classes[RequestClass.INTERACTIVE].ended(RECORD, [])
    forget(metrics, "default", "chat", targets_only=True)
    ServiceMetrics(metrics, snapshot(service()).services["default/chat"])
    shown = samples(metrics)
    assert (
        shown['paceline_requests_total{class="interactive",outcome="ok",pisvc="chat",pisvc_namespace="default"}'] == 1
    )
    assert not [name for name in shown if "ttft_p95" in name]


def test_tenants_beyond_the_cap_share_a_label_and_are_counted() -> None:
    metrics = Metrics("gateway")
    tenants = TenantSeries(metrics, limit=3)
    for index in range(10):
        tenants.ended(replace(RECORD, tenant=f"t{index}"))
    shown = samples(metrics)
    labels = {name.split('tenant="')[1].split('"')[0] for name in shown if name.startswith("paceline_tenant_requests")}
    assert labels == {"t0", "t1", "t2", OTHER}
    assert shown[f'paceline_tenant_requests_total{{outcome="ok",tenant="{OTHER}"}}'] == 7
    assert shown["paceline_tenant_label_overflow_total"] == 7


def test_requests_without_a_tenant_are_counted_for_nobody() -> None:
    metrics = Metrics("gateway")
    TenantSeries(metrics).refused(Outcome.CLIENT_ERROR)
    assert samples(metrics)[f'paceline_tenant_requests_total{{outcome="client_error",tenant="{NO_TENANT}"}}'] == 1
