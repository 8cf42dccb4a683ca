"""Every metric paceline exports: name, type, help, labels and buckets. Dashboards, alerts and docs read this table.

Rules: prefix `paceline_`, base units, counters end in `_total`, 0 to 1 values in `_ratio`, every label from a closed
or bounded set. Verdicts are counters, so no alert needs a bucket edge. The gateway adds edges of TTFT, TPOT, ITL and
E2E near the targets of each service (`telemetry.instruments.around`) to those of the ladder.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

LATENCY = (
    0.005, 0.01, 0.016, 0.025, 0.04, 0.063, 0.1, 0.16, 0.25, 0.4, 0.63,
    1.0, 1.6, 2.5, 4.0, 6.3, 10.0, 16.0, 25.0, 40.0, 63.0, 120.0, 300.0,
)  # fmt: skip
TOKEN_TIME = (
    0.001, 0.0016, 0.0025, 0.004, 0.0063, 0.01, 0.016, 0.025, 0.04, 0.063, 0.1, 0.16, 0.25, 0.4, 0.63, 1.0, 2.5,
)  # fmt: skip
TOKENS = tuple(float(2**n) for n in range(18))
RATIO = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
CHOICES = (1.0, 2.0, 5.0, 10.0, 20.0)


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One exported family. `owner` is the component that writes it."""

    name: str
    kind: Kind
    help: str
    owner: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


SERVICE = ("pisvc_namespace", "pisvc")
_CLASS = (*SERVICE, "class")
_POOL = (*SERVICE, "pool")
_WORKER = (*SERVICE, "revision", "pool")


def _rows() -> list[Metric]:
    return [*_gateway(), *_served(), *_scheduler(), *_kv(), *_engine(), *_autoscaler(), *_operator()]


# fmt: off
def _gateway() -> list[Metric]:
    c, g, h, o = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, "gateway"
    return [
        Metric("paceline_requests_total", c, "Finished requests, by outcome.", o, (*_CLASS, "outcome")),
        Metric("paceline_requests_in_flight", g, "Requests open at the gateway.", o, SERVICE),
        Metric("paceline_request_duration_seconds", h,
               "Time from the request body to the last response byte.", o, _CLASS, LATENCY),
        Metric("paceline_request_ttft_seconds", h,
               "Time to first token of streams, from the request body.", o, _CLASS, LATENCY),
        Metric("paceline_request_tpot_seconds", h,
               "Time per output token: (last - first) / (n - 1).", o, _CLASS, TOKEN_TIME),
        Metric("paceline_stream_itl_seconds", h, "Inter-token latency, mean over one read.", o, _CLASS, TOKEN_TIME),
        Metric("paceline_request_phase_seconds", h,
               "Time per phase; phases sum to E2E.", o, (*SERVICE, "phase"), LATENCY),
        Metric("paceline_request_tokens", h,
               "Tokens per request: input, output, cached.", o, (*SERVICE, "kind"), TOKENS),
        Metric("paceline_slo_requests_total", c,
               "Requests evaluated against an SLO target.", o, (*_CLASS, "slo", "verdict", "degraded")),
        Metric("paceline_slo_threshold_seconds", g, "SLO target for an empty prompt, from the spec.", o,
               (*_CLASS, "slo")),
        Metric("paceline_slo_objective_ratio", g, "SLO objective, from the spec.", o, (*_CLASS, "slo")),
        Metric("paceline_slo_window_seconds", g, "Window of the error budget, from the spec.", o, _CLASS),
        Metric("paceline_queue_requests", g, "Requests waiting in a class queue.", o, _CLASS),
        Metric("paceline_queue_oldest_wait_seconds", g, "Wait of the oldest request in a class queue.", o, _CLASS),
        Metric("paceline_queue_capacity_requests", g, "Limit of a class queue.", o, _CLASS),
        Metric("paceline_queue_bytes", g, "Request body bytes in a class queue.", o, _CLASS),
        Metric("paceline_queue_tenants", g, "Tenants with requests waiting in a class queue.", o, _CLASS),
        Metric("paceline_queue_fairness_gap_tokens", g,
               "Gap between the most and the least served waiting tenant, by weight.", o, _CLASS),
        Metric("paceline_queue_shed_total", c, "Requests shed, by reason.", o, (*_CLASS, "reason")),
        Metric("paceline_queue_starvation_promotions_total", c,
               "Starving requests sent ahead of more urgent ones.", o, _CLASS),
        Metric("paceline_queue_reserved_slots", g, "Slots reserved for interactive requests.", o, SERVICE),
        Metric("paceline_held_requests", g, "Requests waiting for the first ready worker.", o, SERVICE),
        Metric("paceline_retries_total", c, "Retries before the first response byte.", o, SERVICE),
        Metric("paceline_stream_resumed_total", c, "Streams resumed on another worker.", o, (*SERVICE, "reason")),
        Metric("paceline_stream_resume_gap_seconds", h,
               "Gap in a resumed stream, as its client sees it.", o, SERVICE, LATENCY),
        Metric("paceline_stream_aborted_total", c, "Streams that could not be resumed.", o, (*SERVICE, "reason")),
        Metric("paceline_worker_deaths_total", c, "Workers and engines that died unannounced.", o, SERVICE),
        Metric("paceline_isolated_requests_total", c,
               "Requests isolated after two worker deaths.", o, (*SERVICE, "tenant")),
        Metric("paceline_fallback_requests_total", c,
               "Requests sent to the route's fallback.", o, (*SERVICE, "reason")),
        Metric("paceline_degraded_requests_total", c,
               "Requests that got a smaller model or fewer tokens, by kind.", o, (*_CLASS, "kind")),
        Metric("paceline_upstream_workers", g, "Workers, by health at this gateway.", o, (*SERVICE, "state")),
        Metric("paceline_upstream_circuit_breakers", g, "Workers, by circuit breaker state.", o, (*SERVICE, "circuit")),
        Metric("paceline_prefix_index_bytes", g, "Size of the prefix index; bounded.", o, SERVICE),
        Metric("paceline_tenant_requests_total", c, "Requests by tenant (bounded).", o, ("tenant", "outcome")),
        Metric("paceline_tenant_tokens_total", c, "Tokens charged by tenant (bounded).", o, ("tenant", "kind")),
        Metric("paceline_tenant_budget_ratio", g, "Used share of the monthly budget.", o, ("tenant", "kind")),
        Metric("paceline_usage_requests_total", c, "Requests charged, by tenant (bounded).", o, (*_CLASS, "tenant")),
        Metric("paceline_usage_tokens_total", c, "Tokens charged.", o, (*_CLASS, "tenant", "kind")),
        Metric("paceline_usage_dollars_total", c, "Cost charged: replica-seconds x price.", o, (*_CLASS, "tenant")),
        Metric("paceline_usage_checkpoint_age_seconds", g, "Age of the oldest usage not yet stored.", o),
        Metric("paceline_tenant_label_overflow_total", c, "Samples folded into the tenant `_other`.", o),
        *_quota(),
        Metric("paceline_demand_requests_total", c, "Requests, by kind: arrived, completed.", o, (*_CLASS, "kind")),
        Metric("paceline_demand_tokens_total", c,
               "Tokens: prompt (of arrivals, estimated); of completed requests input, cached, output, attended, read.",
               o, (*_CLASS, "kind")),
        Metric("paceline_demand_subscribers", g, "Autoscalers subscribed to demand.", o),
        Metric("paceline_gateway_connections", g, "Open client connections, by kind.", o, ("kind",)),
        Metric("paceline_gateway_request_body_bytes", g, "Request bodies in memory; bounded.", o),
        Metric("paceline_gateway_limited_total", c, "Client limits enforced, by limit.", o, ("limit",)),
        Metric("paceline_gateway_log_dropped_lines_total", c, "Log lines dropped (blocked or closed pipe).", o),
        Metric("paceline_gateway_trace_dropped_spans_total", c, "Spans dropped (full queue or no collector).", o),
        Metric("paceline_gateway_watch_synced", g, "1 while the watch of a kind is current.", o, ("kind",)),
    ]


def _quota() -> list[Metric]:
    c, g, h, o = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, "gateway"
    return [
        Metric("paceline_quota_store_up", g, "1 while the shared quota store responds.", o),
        Metric("paceline_quota_sync_seconds", h, "Round trip to the shared quota store.", o, (), LATENCY),
        Metric("paceline_quota_sync_failures_total", c, "Failed round trips to the shared quota store.", o),
        Metric("paceline_quota_waiting_requests", g, "Requests waiting for the quota store.", o),
        Metric("paceline_quota_gateways", g, "Gateways that share the limits.", o),
        Metric("paceline_quota_fallback_requests_total", c, "Requests admitted from the local share of a limit.", o),
        Metric("paceline_quota_tracked_tenants", g, "Tenants with limits counted here.", o),
        Metric("paceline_quota_reserved_tokens", g, "Tokens reserved for open requests.", o, ("kind",)),
    ]


def _served() -> list[Metric]:
    c, h, o = Kind.COUNTER, Kind.HISTOGRAM, "worker"
    by_kind = (*_WORKER, "kind")
    return [
        Metric("paceline_worker_requests_total", c, "Requests finished by the engine.", o, (*_WORKER, "outcome")),
        Metric("paceline_worker_sequences_total", c, "Finished choices, by finish reason.", o, (*_WORKER, "finish")),
        Metric("paceline_worker_tokens_total", c, "Tokens of started requests, by kind.", o, by_kind),
        Metric("paceline_worker_ttft_seconds", h,
               "Time from headers to the engine's first tokens.", o, _WORKER, LATENCY),
        Metric("paceline_worker_itl_seconds", h, "Inter-token latency, mean over one read.", o, _WORKER, TOKEN_TIME),
        Metric("paceline_worker_tpot_seconds", h,
               "Time per output token: (last - first) / (n - 1).", o, _WORKER, TOKEN_TIME),
        Metric("paceline_worker_duration_seconds", h,
               "Time from headers to last byte, if successful.", o, _WORKER, LATENCY),
        Metric("paceline_worker_phase_seconds", h, "That time, by phase.", o, (*_WORKER, "phase"), LATENCY),
        Metric("paceline_worker_request_tokens", h, "Tokens of a successful request, by kind.", o, by_kind, TOKENS),
        Metric("paceline_worker_request_choices", h, "Choices of a successful request.", o, _WORKER, CHOICES),
        Metric("paceline_worker_grammar_checks_total", c,
               "Grammar checks for structured output, by result.", o, (*_WORKER, "result")),
        Metric("paceline_worker_body_bytes", Kind.GAUGE, "Request bodies in memory; bounded.", o, _WORKER),
        Metric("paceline_worker_grammar_checks_waiting", Kind.GAUGE, "Grammars waiting for a check.", o, _WORKER),
        Metric("paceline_trace_dropped_spans_total", c, "Spans dropped (full queue or no collector).", o, _WORKER),
    ]


def _scheduler() -> list[Metric]:
    c, g, h, o = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, "worker"
    by_class, by_kind = (*_WORKER, "class"), (*_WORKER, "kind")
    return [
        Metric("paceline_scheduler_running_requests", g, "Requests holding KV pages.", o, _WORKER),
        Metric("paceline_scheduler_waiting_requests", g, "Requests waiting, by class.", o, by_class),
        Metric("paceline_scheduler_waiting_uncached_tokens", g, "Prompt tokens waiting for prefill.", o, by_class),
        Metric("paceline_scheduler_backlog_seconds", g, "Predicted time to prefill what waits.", o, by_class),
        Metric("paceline_scheduler_oldest_wait_seconds", g, "Wait of the oldest waiting request.", o, _WORKER),
        Metric("paceline_scheduler_steps_total", c, "Engine steps executed.", o, _WORKER),
        Metric("paceline_scheduler_step_seconds", h, "Duration of one engine step.", o, _WORKER, TOKEN_TIME),
        Metric("paceline_scheduler_step_tokens", h, "Tokens in a step.", o, _WORKER, TOKENS),
        Metric("paceline_scheduler_batch_requests", h, "Requests in a step.", o, _WORKER, TOKENS[:11]),
        Metric("paceline_scheduler_batch_tokens", h, "Tokens in a step: prefill, decode.", o, by_kind, TOKENS),
        Metric("paceline_scheduler_batch_window_seconds", h, "Batch window waited.", o, _WORKER, TOKEN_TIME),
        Metric("paceline_scheduler_preemptions_total", c, "Preempted requests, by mode.", o, (*_WORKER, "mode")),
        Metric("paceline_scheduler_recomputed_tokens_total", c, "Tokens recomputed after preemptions.", o, _WORKER),
        Metric("paceline_scheduler_shed_requests_total", c,
               "Requests shed by the engine, by reason.", o, (*_WORKER, "reason")),
    ]


def _kv() -> list[Metric]:
    c, g, o = Kind.COUNTER, Kind.GAUGE, "worker"
    return [
        Metric("paceline_kv_pages", g, "KV pages, by state.", o, (*_WORKER, "state")),
        Metric("paceline_kv_page_tokens", g, "Tokens in one KV page.", o, _WORKER),
        Metric("paceline_kv_capacity_bytes", g, "Size of the KV pool.", o, _WORKER),
        Metric("paceline_kv_fragmentation_bytes", g, "Unused bytes of active KV pages.", o, _WORKER),
        Metric("paceline_kv_overcommit_bytes", g, "KV bytes that running requests will lack at peak.", o, _WORKER),
        Metric("paceline_kv_evicted_pages_total", c, "Cached KV pages evicted.", o, _WORKER),
        Metric("paceline_kv_evicted_idle_seconds_total", c, "Idle time of evicted KV pages, summed.", o, _WORKER),
        Metric("paceline_kv_host_bytes", g, "KV bytes offloaded to host memory.", o, _WORKER),
        Metric("paceline_kv_disk_bytes", g, "KV bytes offloaded to disk.", o, _WORKER),
        Metric("paceline_kv_loading_requests", g, "Requests waiting for KV pages from disk.", o, _WORKER),
        Metric("paceline_kv_swap_bytes_total", c,
               "KV bytes moved between tiers, by direction.", o, (*_WORKER, "tier", "direction")),
        Metric("paceline_kv_restored_tokens_total", c, "Tokens restored instead of recomputed.", o, _WORKER),
        Metric("paceline_prefix_lookup_tokens_total", c, "Prompt tokens looked up in the prefix cache.", o, _WORKER),
        Metric("paceline_prefix_hit_tokens_total", c, "Prompt tokens found in the prefix cache.", o, _WORKER),
    ]


def _engine() -> list[Metric]:
    c, g, h, o = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, "worker"
    return [
        Metric("paceline_engine_heartbeat_age_seconds", g, "Time since the engine's last heartbeat.", o, _WORKER),
        Metric("paceline_engine_restarts_total", c, "Engine restarts after a crash or a hang.", o, _WORKER),
        Metric("paceline_step_time_coefficient", g,
               "Coefficients of the fitted step-time model.", o, (*_WORKER, "term")),
        Metric("paceline_step_time_residual_ratio", h, "|measured - fitted| / measured.", o, _WORKER, RATIO),
        Metric("paceline_step_time_predicted_seconds_total", c, "Fitted time of the measured steps.", o, _WORKER),
        Metric("paceline_emulated", g, "1 if steps are emulated.", o, _WORKER),
        Metric("paceline_emulated_step_lateness_ratio", h,
               "Lateness of an emulated step / its duration.", o, _WORKER, RATIO),
        Metric("paceline_cold_start_seconds", g, "Duration of a start stage.", o, (*_WORKER, "stage")),
    ]


def _autoscaler() -> list[Metric]:
    c, g, h, o = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, "autoscaler"
    return [
        Metric("paceline_autoscaler_replicas", g, "Replicas by state.", o, (*_POOL, "state")),
        Metric("paceline_autoscaler_decisions_total", c, "Scaling decisions.", o, (*SERVICE, "direction", "reason")),
        Metric("paceline_autoscaler_signal", g, "Input signals (replicas, ratios).", o, (*SERVICE, "signal")),
        Metric("paceline_autoscaler_signal_age_seconds", g, "Age of an input signal.", o, (*SERVICE, "signal")),
        Metric("paceline_autoscaler_query_results_total", c,
               "Queries to the metrics source, by result.", o, ("result",)),
        Metric("paceline_autoscaler_limited_total", c, "Decisions cut short by a limit.", o, (*SERVICE, "limit")),
        Metric("paceline_autoscaler_actuation_errors_total", c, "Failed writes of a scale.", o, SERVICE),
        Metric("paceline_autoscaler_last_success_timestamp_seconds", g, "Unix time of the last complete pass.", o),
        Metric("paceline_autoscaler_reconcile_seconds", h, "Duration of one pass.", o, (), LATENCY),
        Metric("paceline_autoscaler_watch_synced", g, "1 while the watch of a kind is current.", o, ("kind",)),
        Metric("paceline_cost_dollars_total", c, "Cost of replicas: price x time.", o, SERVICE),
    ]


def _operator() -> list[Metric]:
    c, g, h, o = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, "operator"
    return [
        Metric("paceline_operator_reconcile_seconds", h, "Duration of one reconcile.", o, ("kind",), LATENCY),
        Metric("paceline_operator_reconcile_errors_total", c, "Failed reconciles.", o, ("kind", "reason")),
        Metric("paceline_operator_queue_depth", g, "Keys waiting in the workqueue.", o),
        Metric("paceline_operator_queue_oldest_seconds", g, "Age of the oldest key in the workqueue.", o),
        Metric("paceline_operator_writes_total", c, "Write requests to the API server.", o, ("verb", "kind")),
        Metric("paceline_operator_leader", g, "1 in the leader.", o),
        Metric("paceline_operator_watch_age_seconds", g, "Time since a watch last received a byte.", o, ("kind",)),
    ]
# fmt: on


METRICS: Mapping[str, Metric] = {row.name: row for row in _rows()}

_REQUESTS, _TOKENS = "paceline_demand_requests_total", "paceline_demand_tokens_total"
DEMAND_SERIES: Mapping[str, tuple[str, str]] = {
    "arrivals": (_REQUESTS, "arrived"),
    "prompt_tokens": (_TOKENS, "prompt"),
    "completed": (_REQUESTS, "completed"),
    "completed_prompt_tokens": (_TOKENS, "input"),
    "cached_tokens": (_TOKENS, "cached"),
    "output_tokens": (_TOKENS, "output"),
    "attended_pairs": (_TOKENS, "attended"),
    "kv_reads": (_TOKENS, "read"),
}
"""The cumulative fields of a demand report's class (`wire.ClassDemand`), each with its metric and `kind`."""
