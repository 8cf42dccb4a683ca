"""Every metric paceline exports: name, type, help, labels and buckets. Dashboards, alerts and docs read this table.

Rules: prefix `paceline_`, base units, counters end in `_total`, 0 to 1 values in `_ratio`, every label from a closed
or bounded set. Verdicts are counters, so no alert needs a bucket edge; the gateway has further edges of TTFT, TPOT, ITL
and E2E near the targets of each service (`telemetry.histogram.around`), and those of the ladder always.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

LATENCY = (
    0.005, 0.01, 0.016, 0.025, 0.04, 0.063, 0.1, 0.16, 0.25, 0.4, 0.63,
    1.0, 1.6, 2.5, 4.0, 6.3, 10.0, 16.0, 25.0, 40.0, 63.0, 120.0, 300.0,
)  # fmt: skip
TOKEN_TIME = (
    0.001,
    0.0016,
    0.0025,
    0.004,
    0.0063,
    0.01,
    0.016,
    0.025,
    0.04,
    0.063,
    0.1,
    0.16,
    0.25,
    0.4,
    0.63,
    1.0,
    2.5,
)
TOKENS = tuple(float(2**n) for n in range(18))
RATIO = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
CHOICES = (1.0, 2.0, 5.0, 10.0, 20.0)


class Kind(StrEnum):
    """Prometheus's metric types, without summaries."""

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


def _gateway() -> list[Metric]:
    c, g, h, o = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, "gateway"
    return [
        Metric("paceline_requests_total", c, "Requests ended, by outcome.", o, (*_CLASS, "outcome")),
        Metric("paceline_requests_in_flight", g, "Requests open at the gateway.", o, SERVICE),
        Metric("paceline_request_duration_seconds", h, "Body read to last byte flushed.", o, _CLASS, LATENCY),
        Metric("paceline_request_ttft_seconds", h, "Body read to first content flushed (streams).", o, _CLASS, LATENCY),
        Metric("paceline_request_tpot_seconds", h, "(last - first) / (n - 1), n >= 2 tokens.", o, _CLASS, TOKEN_TIME),
        Metric("paceline_stream_itl_seconds", h, "Gap between tokens, mean over a read.", o, _CLASS, TOKEN_TIME),
        Metric("paceline_request_phase_seconds", h, "Where time went; sums to E2E.", o, (*SERVICE, "phase"), LATENCY),
        Metric(
            "paceline_request_tokens", h, "Tokens per request: input, output, cached.", o, (*SERVICE, "kind"), TOKENS
        ),
        Metric("paceline_slo_requests_total", c, "Requests judged against a target.", o, (*_CLASS, "slo", "verdict")),
        Metric("paceline_slo_threshold_seconds", g, "The target, from the object.", o, (*_CLASS, "slo")),
        Metric("paceline_slo_objective_ratio", g, "Share that must be good, from the object.", o, (*_CLASS, "slo")),
        Metric("paceline_slo_window_seconds", g, "Over which a budget of misses is spent, from the object.", o, _CLASS),
        Metric("paceline_queue_requests", g, "Requests waiting in a class queue.", o, _CLASS),
        Metric("paceline_queue_oldest_wait_seconds", g, "Age of the head of a class queue.", o, _CLASS),
        Metric("paceline_queue_capacity_requests", g, "Cap of a class queue.", o, _CLASS),
        Metric("paceline_queue_bytes", g, "Bodies of the requests waiting in a class queue.", o, _CLASS),
        Metric("paceline_queue_tenants", g, "Tenants with requests waiting in a class queue.", o, _CLASS),
        Metric(
            "paceline_queue_service_spread_tokens",
            g,
            "Between the most and the least served of the waiting tenants, by weight.",
            o,
            _CLASS,
        ),
        Metric("paceline_queue_shed_total", c, "Requests not let in or turned out, by reason.", o, (*_CLASS, "reason")),
        Metric("paceline_queue_promoted_total", c, "Starving requests sent before more urgent ones.", o, _CLASS),
        Metric("paceline_queue_kept_slots", g, "Slots left free for interactive requests.", o, SERVICE),
        Metric("paceline_held_requests", g, "Requests waiting for the first ready worker.", o, SERVICE),
        Metric("paceline_retries_total", c, "Dispatches repeated before the first byte.", o, SERVICE),
        Metric("paceline_stream_resumed_total", c, "Streams that went on at another worker.", o, (*SERVICE, "reason")),
        Metric(
            "paceline_stream_resume_gap_seconds",
            h,
            "Last token of one worker to first of the next.",
            o,
            SERVICE,
            LATENCY,
        ),
        Metric("paceline_stream_cut_total", c, "Streams that could not go on elsewhere.", o, (*SERVICE, "reason")),
        Metric("paceline_worker_deaths_total", c, "Workers and engines that ended without a word.", o, SERVICE),
        Metric("paceline_isolated_requests_total", c, "Requests that two workers died of.", o, (*SERVICE, "tenant")),
        Metric("paceline_diverted_requests_total", c, "Sent on to the route's next service.", o, (*SERVICE, "reason")),
        Metric("paceline_upstream_workers", g, "Workers as the gateway sees them.", o, (*SERVICE, "state")),
        Metric("paceline_upstream_circuits", g, "Workers by their circuit breaker's state.", o, (*SERVICE, "circuit")),
        Metric("paceline_prefix_index_bytes", g, "Held for what workers have cached; capped.", o, SERVICE),
        Metric("paceline_tenant_requests_total", c, "Requests by tenant (bounded).", o, ("tenant", "outcome")),
        Metric("paceline_tenant_tokens_total", c, "Tokens charged by tenant (bounded).", o, ("tenant", "kind")),
        Metric("paceline_tenant_budget_ratio", g, "Used of a month's budget, all gateways.", o, ("tenant", "kind")),
        Metric("paceline_usage_requests_total", c, "Requests charged, by tenant (bounded).", o, (*_CLASS, "tenant")),
        Metric("paceline_usage_tokens_total", c, "Tokens charged.", o, (*_CLASS, "tenant", "kind")),
        Metric("paceline_usage_dollars_total", c, "Replica-seconds of requests x price.", o, (*_CLASS, "tenant")),
        Metric("paceline_usage_checkpoint_age_seconds", g, "Age of the oldest use not stored in a status.", o),
        Metric("paceline_tenant_label_overflow_total", c, "Samples folded into tenant `_other`.", o),
        *_quota(),
        Metric("paceline_demand_subscribers", g, "Autoscalers reading the demand stream.", o),
        Metric("paceline_gateway_connections", g, "Open connections of clients: http, websocket.", o, ("kind",)),
        Metric("paceline_gateway_held_bytes", g, "Clients' bodies in memory; capped.", o),
        Metric(
            "paceline_gateway_limited_total",
            c,
            "Limits enforced on clients: body_memory, tenant_connections, connections, evicted, loop_budget.",
            o,
            ("limit",),
        ),
        Metric(
            "paceline_gateway_log_dropped_lines_total", c, "Log lines lost: nobody reads, or the pipe is closed.", o
        ),
        Metric("paceline_gateway_trace_dropped_spans_total", c, "Spans lost: queue full, or collector away.", o),
        Metric("paceline_gateway_cluster_current", g, "1 while what is known of a kind is current.", o, ("kind",)),
    ]


def _quota() -> list[Metric]:
    c, g, h, o = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, "gateway"
    return [
        Metric("paceline_quota_store_current", g, "1 while the shared quota counters answer.", o),
        Metric("paceline_quota_exchange_seconds", h, "Round trip to the shared quota counters.", o, (), LATENCY),
        Metric("paceline_quota_exchange_failures_total", c, "Round trips to them that failed.", o),
        Metric("paceline_quota_waiting_requests", g, "Requests that wait for them.", o),
        Metric("paceline_quota_gateways", g, "Gateways among which limits are shared.", o),
        Metric("paceline_quota_lent_requests_total", c, "Admitted out of a gateway's own share, without them.", o),
        Metric("paceline_quota_accounts", g, "Tenants whose limits are being counted here.", o),
        Metric("paceline_quota_reserved_tokens", g, "Reserved for open requests.", o, ("kind",)),
    ]


def _served() -> list[Metric]:
    c, h, o = Kind.COUNTER, Kind.HISTOGRAM, "worker"
    by_kind = (*_WORKER, "kind")
    return [
        Metric("paceline_worker_requests_total", c, "Requests ended in the engine.", o, (*_WORKER, "outcome")),
        Metric("paceline_worker_sequences_total", c, "Choices ended, by finish reason.", o, (*_WORKER, "finish")),
        Metric("paceline_worker_tokens_total", c, "Tokens of begun requests: input, output, cached.", o, by_kind),
        Metric("paceline_worker_ttft_seconds", h, "Headers read to the engine's first tokens.", o, _WORKER, LATENCY),
        Metric("paceline_worker_itl_seconds", h, "Gap between tokens, mean over a read.", o, _WORKER, TOKEN_TIME),
        Metric("paceline_worker_tpot_seconds", h, "(last - first) / (n - 1), n >= 2 tokens.", o, _WORKER, TOKEN_TIME),
        Metric("paceline_worker_duration_seconds", h, "Headers to last byte, ended well.", o, _WORKER, LATENCY),
        Metric("paceline_worker_phase_seconds", h, "Where that time went.", o, (*_WORKER, "phase"), LATENCY),
        Metric(
            "paceline_worker_request_tokens",
            h,
            "Tokens of a request that ended well: input, cached, output, longest choice, limit.",
            o,
            by_kind,
            TOKENS,
        ),
        Metric("paceline_worker_request_choices", h, "Choices of a request that ended well.", o, _WORKER, CHOICES),
        Metric(
            "paceline_worker_grammar_checks_total",
            c,
            "Grammars of structured output checked, by how it ended; known ones are not checked again.",
            o,
            (*_WORKER, "result"),
        ),
        Metric("paceline_worker_body_bytes", Kind.GAUGE, "Of bodies and messages that are read; capped.", o, _WORKER),
        Metric("paceline_worker_grammar_checks_waiting", Kind.GAUGE, "Grammars that wait to be checked.", o, _WORKER),
        Metric("paceline_trace_dropped_spans_total", c, "Spans lost: queue full, or collector away.", o, _WORKER),
    ]


def _scheduler() -> list[Metric]:
    c, g, h, o = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, "worker"
    by_class, by_kind = (*_WORKER, "class"), (*_WORKER, "kind")
    return [
        Metric("paceline_scheduler_running_requests", g, "Requests holding KV pages.", o, _WORKER),
        Metric("paceline_scheduler_waiting_requests", g, "Requests waiting, by class.", o, by_class),
        Metric("paceline_scheduler_waiting_uncached_tokens", g, "Prompt tokens yet to prefill.", o, by_class),
        Metric("paceline_scheduler_backlog_seconds", g, "Predicted engine time to prefill them.", o, by_class),
        Metric("paceline_scheduler_oldest_wait_seconds", g, "Age of the oldest waiting request.", o, _WORKER),
        Metric("paceline_scheduler_steps_total", c, "Engine steps executed.", o, _WORKER),
        Metric("paceline_scheduler_step_seconds", h, "Time of one engine step.", o, _WORKER, TOKEN_TIME),
        Metric("paceline_scheduler_step_tokens", h, "Tokens in a step.", o, _WORKER, TOKENS),
        Metric("paceline_scheduler_batch_requests", h, "Requests in a step.", o, _WORKER, TOKENS[:11]),
        Metric("paceline_scheduler_batch_tokens", h, "Tokens in a step: prefill, decode.", o, by_kind, TOKENS),
        Metric("paceline_scheduler_batch_window_seconds", h, "Window actually waited.", o, _WORKER, TOKEN_TIME),
        Metric("paceline_scheduler_preemptions_total", c, "Requests put back, by mode.", o, (*_WORKER, "mode")),
        Metric("paceline_scheduler_recomputed_tokens_total", c, "Tokens that preemptions lost.", o, _WORKER),
        Metric(
            "paceline_scheduler_shed_requests_total",
            c,
            "Requests refused or ended unserved: crowded, backlog, deadline.",
            o,
            (*_WORKER, "reason"),
        ),
    ]


def _kv() -> list[Metric]:
    c, g, o = Kind.COUNTER, Kind.GAUGE, "worker"
    return [
        Metric("paceline_kv_pages", g, "KV pages: free, active, cached.", o, (*_WORKER, "state")),
        Metric("paceline_kv_page_tokens", g, "Tokens that fill a KV page.", o, _WORKER),
        Metric("paceline_kv_capacity_bytes", g, "Bytes of the KV pool.", o, _WORKER),
        Metric("paceline_kv_slack_bytes", g, "Bytes of active pages that no token fills.", o, _WORKER),
        Metric("paceline_kv_debt_bytes", g, "What running requests will lack at their peak.", o, _WORKER),
        Metric("paceline_kv_evicted_pages_total", c, "Cached pages given up.", o, _WORKER),
        Metric("paceline_kv_evicted_idle_seconds_total", c, "Sum of how long they had been unused.", o, _WORKER),
        Metric("paceline_kv_host_bytes", g, "Bytes of pages kept in host memory.", o, _WORKER),
        Metric("paceline_kv_disk_bytes", g, "Bytes of pages kept on disk.", o, _WORKER),
        Metric("paceline_kv_loading_requests", g, "Requests that wait for pages from disk.", o, _WORKER),
        Metric(
            "paceline_kv_swap_bytes_total",
            c,
            "Bytes between the device and host, and host and disk: out, in.",
            o,
            (*_WORKER, "tier", "direction"),
        ),
        Metric("paceline_kv_restored_tokens_total", c, "Tokens brought back, not computed again.", o, _WORKER),
        Metric("paceline_prefix_lookup_tokens_total", c, "Prompt tokens looked up in the prefix cache.", o, _WORKER),
        Metric("paceline_prefix_hit_tokens_total", c, "Prompt tokens found in the prefix cache.", o, _WORKER),
    ]


def _engine() -> list[Metric]:
    c, g, h, o = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, "worker"
    return [
        Metric("paceline_engine_heartbeat_age_seconds", g, "Since the engine process last spoke.", o, _WORKER),
        Metric(
            "paceline_engine_restarts_total",
            c,
            "Engine processes that were started anew: the one before crashed, or hung and was killed.",
            o,
            _WORKER,
        ),
        Metric("paceline_step_time_coefficient", g, "Fitted step-time model, by term.", o, (*_WORKER, "term")),
        Metric("paceline_step_time_residual_ratio", h, "|measured - fitted| / measured.", o, _WORKER, RATIO),
        Metric("paceline_step_time_predicted_seconds_total", c, "Fitted time of the measured steps.", o, _WORKER),
        Metric("paceline_emulated", g, "1 if steps are padded, not computed.", o, _WORKER),
        Metric(
            "paceline_emulated_step_lateness_ratio", h, "How late a padded step ended / its time.", o, _WORKER, RATIO
        ),
        Metric("paceline_cold_start_seconds", g, "Time of a start stage.", o, (*_WORKER, "stage")),
    ]


def _autoscaler() -> list[Metric]:
    c, g, h, o = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, "autoscaler"
    return [
        Metric("paceline_autoscaler_replicas", g, "Replicas by state.", o, (*_POOL, "state")),
        Metric("paceline_autoscaler_decisions_total", c, "Decisions.", o, (*SERVICE, "direction", "reason")),
        Metric(
            "paceline_autoscaler_signal",
            g,
            "What was seen (replica-seconds per second, ratios).",
            o,
            (*SERVICE, "signal"),
        ),
        Metric("paceline_autoscaler_signal_age_seconds", g, "Age of what was seen.", o, (*SERVICE, "signal")),
        Metric("paceline_autoscaler_query_results_total", c, "Answers of the metrics source.", o, ("result",)),
        Metric("paceline_autoscaler_clamped_total", c, "Decisions that hit a limit.", o, (*SERVICE, "limit")),
        Metric("paceline_autoscaler_actuation_errors_total", c, "Scales that failed.", o, SERVICE),
        Metric("paceline_autoscaler_last_success_timestamp_seconds", g, "Unix time of the last whole pass.", o),
        Metric("paceline_autoscaler_loop_seconds", h, "Time of one pass.", o, (), LATENCY),
        Metric("paceline_autoscaler_cluster_current", g, "1 while what is known of a kind is current.", o, ("kind",)),
        Metric("paceline_cost_dollars_total", c, "Price of replicas x time.", o, SERVICE),
    ]


def _operator() -> list[Metric]:
    c, g, h, o = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, "operator"
    return [
        Metric("paceline_operator_reconcile_seconds", h, "Time of one reconcile.", o, ("kind",), LATENCY),
        Metric("paceline_operator_reconcile_errors_total", c, "Reconciles that failed.", o, ("kind", "reason")),
        Metric("paceline_operator_queue_depth", g, "Keys waiting for a reconcile.", o),
        Metric("paceline_operator_queue_oldest_seconds", g, "Age of the key that waits longest.", o),
        Metric("paceline_operator_writes_total", c, "Write requests to the API server.", o, ("verb", "kind")),
        Metric("paceline_operator_leader", g, "1 in the process that holds the Lease.", o),
        Metric("paceline_operator_watch_age_seconds", g, "Since a watch last received a byte.", o, ("kind",)),
    ]


METRICS: Mapping[str, Metric] = {row.name: row for row in _rows()}
