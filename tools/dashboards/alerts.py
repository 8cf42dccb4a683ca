"""Alerts on the parts: is there capacity, does the autoscaler see and act, does the operator reconcile.

What is missing compares false, so each alert on a value stands beside one on its absence. An expression that looks back
also asks for a current sample: a deleted service or pool has none, so its alerts end with it.
Known hole: a former leader that keeps showing its last gauges hides what its successor sees, until it is gone.
"""

from paceline_core.registry.metrics import SERVICE
from tools.dashboards import burn
from tools.dashboards.promql import growth, labels_of, ratio, select, total
from tools.dashboards.rules import Alert, Group, Severity

_POOL = (*SERVICE, "pool")
_CLASS = (*SERVICE, "class")
_WHO = "{{ $labels.pisvc_namespace }}/{{ $labels.pisvc }}"
_REPLICAS = "paceline_autoscaler_replicas"
_STALLED_S = 60
UNSTORED_S = 120
_QUICK_START_S = 400


def groups() -> list[Group]:
    """All alerts."""
    return [
        burn.group(),
        Group("paceline-capacity-alerts", [_service_down(), _scale_stuck(), _clamped(), _flapping(), *_saturation()]),
        Group("paceline-engine-alerts", [_engine_restarts(), _request_isolated()]),
        Group("paceline-autoscaler-alerts", [_stalled(), _blind()]),
        Group("paceline-operator-alerts", [_reconcile_errors(), _no_leader(), _watch_silent()]),
        Group("paceline-meta-alerts", [_gateway_down(), _unstored(), _overflow(), _watchdog()]),
    ]


def all_alerts() -> list[Alert]:
    """Every alert, in the order of the file."""
    return [rule for group in groups() for rule in group.rules if isinstance(rule, Alert)]


def _state(state: str, by: tuple[str, ...]) -> str:
    pools = total(_REPLICAS, _POOL, {"state": state}, "max")
    return f"sum by ({', '.join(by)}) ({pools})"


def _service_down() -> Alert:
    past = f"max by ({', '.join(_POOL)}) ({select(_REPLICAS, {'state': 'desired'})} offset 15m)"
    return Alert(
        "PacelineServiceDown",
        f"{_state('ready', SERVICE)} == 0\nand\n{_state('desired', SERVICE)} > 0\n"
        f"and\nsum by ({', '.join(SERVICE)}) ({past}) > 0",
        Severity.PAGE,
        f"{_WHO} has no ready replica",
        "No replica is ready though some are wanted, now and 15 minutes ago: requests are held or refused.",
        "2m",
    )


def _scale_stuck() -> Alert:
    missing, start = "paceline:replicas_missing:count", "paceline:cold_start:seconds"
    return Alert(
        "PacelineScaleStuck",
        f"({missing} > 0 unless {start} > {_QUICK_START_S})\nor\n(min_over_time({missing}[20m]) > 0 and {missing} > 0)",
        Severity.TICKET,
        f"{_WHO} waits for replicas of pool {{{{ $labels.pool }}}}",
        "{{ $value }} replicas are wanted and not ready, for longer than one and a half cold starts take.",
        "10m",
    )


def _clamped() -> Alert:
    clamped = growth("paceline_autoscaler_limited_total", SERVICE, {"limit": "max"}, "5m")
    burning = total("paceline:slo_burn:ratio5m", SERVICE, how="max")
    return Alert(
        "PacelineScaleClampedAtMax",
        f"{burning} > 1\nand\n{clamped} > 0",
        Severity.PAGE,
        f"{_WHO} needs more replicas than its maximum",
        "The burn rate is {{ $value | humanize }}, and every decision stops at replicas.max.",
        "15m",
    )


def _flapping() -> Alert:
    desired = select(_REPLICAS, {"state": "desired"})
    slices = [_both_ways(desired, offset) for offset in ("", " offset 10m", " offset 20m")]
    return Alert(
        "PacelineAutoscalerFlapping",
        "\nand\n".join([*slices, total(_REPLICAS, _POOL, {"state": "desired"}, "max")]),
        Severity.TICKET,
        f"{_WHO} scales up and down again and again",
        "Pool {{ $labels.pool }} went both up and down in each of the last three 10 minutes.",
    )


def _both_ways(gauge: str, offset: str) -> str:
    # resets() counts the times a gauge fell; changes() less those, the times it rose.
    by = ", ".join(_POOL)
    fell = f"max by ({by}) (resets({gauge}[10m]{offset}))"
    return f"({fell} > 0 and max by ({by}) (changes({gauge}[10m]{offset})) > {fell})"


def _saturation() -> list[Alert]:
    free, pages = (total("paceline_kv_pages", _POOL, match) for match in ({"state": "~free|cached"}, {}))
    preempted = f"sum by ({', '.join(_POOL)}) (rate(paceline_scheduler_preemptions_total[5m]))"
    waited = total("paceline_queue_oldest_wait_seconds", _CLASS, how="max")
    promised = total("paceline_slo_threshold_seconds", _CLASS, {"slo": "~ttft_.+"}, "max")
    return [
        Alert(
            "PacelineQueueHeadOfLine",
            f"{waited} > {promised}",
            Severity.TICKET,
            f"{_WHO}: {{{{ $labels.class }}}} requests wait longer than the first token is promised in",
            "The oldest request in the queue has waited {{ $value | humanizeDuration }}.",
            "3m",
        ),
        Alert(
            "PacelineKVPressure",
            f"{ratio(free, pages)} < 0.05\nand\n{preempted} > 0.1",
            Severity.TICKET,
            f"{_WHO} runs out of KV pages in pool {{{{ $labels.pool }}}}",
            "Only {{ $value | humanizePercentage }} of the KV pages are available, and running requests are preempted.",
            "10m",
        ),
    ]


def _engine_restarts() -> Alert:
    restarts = "paceline_engine_restarts_total"
    return Alert(
        "PacelineEngineRestarts",
        f"{growth(restarts, _POOL, window='15m')} > 2\nand\n{total(restarts, _POOL)}",
        Severity.TICKET,
        f"{_WHO}: engines of pool {{{{ $labels.pool }}}} end again and again",
        "{{ $value | humanize }} engine processes crashed or hung in 15 minutes; each took its requests along.",
    )


def _request_isolated() -> Alert:
    return Alert(
        "PacelineRequestIsolated",
        f"{growth('paceline_isolated_requests_total', (*SERVICE, 'tenant'), window='15m')} > 0",
        Severity.TICKET,
        f"{_WHO}: workers die of requests of tenant {{{{ $labels.tenant }}}}",
        "{{ $value | humanize }} requests killed two workers each in 15 minutes; Events of the service name them.",
    )


def _stalled() -> Alert:
    last = "paceline_autoscaler_last_success_timestamp_seconds"
    return Alert(
        "PacelineAutoscalerStalled",
        f"time() - {total(last, how='max')} > {_STALLED_S}\nor\nabsent({select(last)})",
        Severity.PAGE,
        "The autoscaler decides nothing",
        "No pass over all services has ended lately, or no autoscaler is scraped. Replicas stay as they are.",
        "2m",
    )


def _blind() -> Alert:
    age = total("paceline_autoscaler_signal_age_seconds", (*SERVICE, "signal"), how="min")
    asked = "paceline_autoscaler_query_results_total"
    failed = growth(asked, (), {"result": "~error|partial|stale"}, "5m")
    share = f'label_replace({ratio(failed, growth(asked, window="5m"))}, "signal", "prometheus", "", "")'
    return Alert(
        "PacelineAutoscalerSignalsMissing",
        f"{age} > 60\nor\n{share} > 0.5",
        Severity.TICKET,
        "The autoscaler does not see {{ $labels.signal }}",
        "Either the signal is older than a minute or more than half of the questions to Prometheus fail. Nothing is "
        "scaled down meanwhile.",
        "5m",
    )


def _reconcile_errors() -> Alert:
    name = "paceline_operator_reconcile_errors_total"
    return Alert(
        "PacelineOperatorReconcileErrors",
        f"{growth(name, labels_of(name), window='15m')} > 3",
        Severity.TICKET,
        "The operator cannot reconcile some {{ $labels.kind }}: {{ $labels.reason }}",
        "{{ $value | humanize }} reconciles failed in 15 minutes, and more before that.",
        "15m",
    )


def _no_leader() -> Alert:
    return Alert(
        "PacelineOperatorNoLeader",
        f"({total('paceline_operator_leader', how='max')} or vector(0)) < 1",
        Severity.TICKET,
        "No operator holds the Lease",
        "Running workloads continue; edits of objects have no effect.",
        "5m",
    )


def _watch_silent() -> Alert:
    age = select("paceline_operator_watch_age_seconds")
    return Alert(
        "PacelineOperatorWatchStale",
        f"max by (kind) ({age} and on (job, instance) {select('paceline_operator_leader')} == 1) > 330",
        Severity.TICKET,
        "The leading operator hears nothing about {{ $labels.kind }}",
        "Its watch has been silent for {{ $value | humanizeDuration }}, longer than the API server keeps one open.",
        "5m",
    )


def _gateway_down() -> Alert:
    return Alert(
        "PacelineGatewayDown",
        f"absent({select('paceline_demand_subscribers')})",
        Severity.PAGE,
        "No gateway is scraped",
        "No SLO is measured: without verdicts no burn alert can fire.",
        "5m",
    )


def _unstored() -> Alert:
    return Alert(
        "PacelineUsageNotStored",
        f"{total('paceline_usage_checkpoint_age_seconds', how='max')} > {UNSTORED_S}",
        Severity.TICKET,
        "What tenants use is not stored",
        "Some use has waited {{ $value | humanizeDuration }} to be written into a Tenant's status; it is lost if its "
        "gateway ends.",
        "2m",
    )


def _overflow() -> Alert:
    return Alert(
        "PacelineTenantLabelOverflow",
        f"{growth('paceline_tenant_label_overflow_total', window='1h')} > 0",
        Severity.INFO,
        "More tenants than tenant labels",
        "{{ $value | humanize }} samples of the last hour are counted under tenant _other.",
        "1h",
    )


def _watchdog() -> Alert:
    return Alert(
        "PacelineWatchdog",
        "vector(1)",
        Severity.NONE,
        "Alerts arrive",
        "Always firing: its absence at the receiver says that alerts do not get through.",
    )
