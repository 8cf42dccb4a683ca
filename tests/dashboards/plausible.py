"""What a busy install exports: every metric of the registry, made by the same code that the parts make theirs with.

Each process starts at zero and is scraped so; then the same happens at both gateways: 50 requests, of which the first
token of 30 took 0.3 s and of 20 took 0.7 s, against a promise of 500 ms for 95 %; ten of 50 are judged bad.
Beside the busy service `chat` stands `idle`, for which nothing ever happens.
"""

import itertools
import time
from collections.abc import Iterator

from paceline_core.registry import METRICS, Kind, Metric, Outcome, Phase, Verdict
from paceline_core.registry.enums import DegradeKind, Direction, QueryResult, ReplicaState, ScaleLimit, ScaleReason
from paceline_core.telemetry import Metrics

GATEWAYS = ("gateway-0", "gateway-1")
TTFT_PROMISE_S = 0.5
OBJECTIVE = 0.95
BAD, JUDGED = 10, 50
FIRST_TOKENS = {0.3: 30, 0.7: 20}

_VALUES: dict[str, tuple[str, ...]] = {
    "pisvc_namespace": ("default",),
    "pisvc": ("chat", "idle"),
    "class": ("interactive",),
    "slo": ("ttft_p95", "tpot_p95", "e2e_p95", "availability"),
    "outcome": tuple(Outcome),
    "verdict": (Verdict.GOOD, Verdict.BAD_TTFT, Verdict.BAD_FAILED),
    "degraded": ("false",),
    "phase": tuple(Phase),
    "direction": (Direction.UP, Direction.DOWN),
    "result": tuple(QueryResult),
    "limit": (ScaleLimit.MAX,),
    "pool": ("main",),
    "revision": ("abcdefghij",),
    "mode": ("recompute",),
    "finish": ("stop", "length"),
    "tier": ("host", "disk"),
    "stage": ("pull", "weights"),
    "term": ("base",),
    "tenant": ("team",),
    "signal": ("demand", "backlog", "capacity", "burn"),
    "verb": ("apply",),
}
_BY_METRIC: dict[tuple[str, str], tuple[str, ...]] = {
    ("paceline_autoscaler_replicas", "state"): tuple(ReplicaState),
    ("paceline_kv_pages", "state"): ("free", "active", "cached"),
    ("paceline_upstream_workers", "state"): ("ready", "silent"),
    ("paceline_autoscaler_decisions_total", "reason"): (ScaleReason.DEMAND,),
    ("paceline_scheduler_shed_requests_total", "reason"): ("queue_full", "backlog", "deadline"),
    ("paceline_kv_swap_bytes_total", "direction"): ("out", "in"),
    ("paceline_worker_tokens_total", "kind"): ("input", "output", "cached"),
    ("paceline_worker_request_tokens", "kind"): ("input", "cached", "output", "longest", "limit"),
    ("paceline_operator_reconcile_errors_total", "reason"): ("Conflict",),
    ("paceline_autoscaler_signal_age_seconds", "signal"): ("gateways", "attainment"),
    ("paceline_request_tokens", "kind"): ("input", "output", "cached"),
    ("paceline_degraded_requests_total", "kind"): tuple(DegradeKind),
    ("paceline_scheduler_batch_tokens", "kind"): ("prefill", "decode"),
    ("paceline_tenant_tokens_total", "kind"): ("input", "output"),
    ("paceline_demand_requests_total", "kind"): ("arrived", "completed"),
    ("paceline_demand_tokens_total", "kind"): ("prompt", "input", "cached", "output", "attended", "read"),
}
_OBJECTS = ("InferenceService", "Deployment")


class Process:
    """One process's metrics: at zero when made; `work` lets it have done something."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self.metrics = Metrics(owner)
        for row, labels in self._children():
            self._touch(row, labels)

    def work(self) -> None:
        """Everything that counts has counted, everything that measures has measured."""
        for row, labels in self._children():
            if "idle" not in labels:
                self._fill(row, labels)

    def page(self) -> str:
        """What a scrape reads."""
        return self.metrics.exposition("")[0].decode()

    def _children(self) -> Iterator[tuple[Metric, tuple[str, ...]]]:
        for row in METRICS.values():
            if row.owner == self._owner:
                values = (_BY_METRIC.get((row.name, name)) or _VALUES.get(name, _OBJECTS) for name in row.labels)
                yield from ((row, tuple(map(str, labels))) for labels in itertools.product(*values))

    def _touch(self, row: Metric, labels: tuple[str, ...]) -> None:
        if row.kind is Kind.HISTOGRAM:
            self.metrics.histogram(row.name, *labels)
        elif row.kind is Kind.COUNTER:
            self.metrics.counter(row.name, *labels)
        else:
            self.metrics.gauge(row.name, *labels).set(self._level(row, labels))

    def _fill(self, row: Metric, labels: tuple[str, ...]) -> None:
        if row.kind is Kind.HISTOGRAM:
            observed = FIRST_TOKENS if row.name == "paceline_request_ttft_seconds" else {row.buckets[1]: 40}
            for value, times in observed.items():
                for _ in range(times):
                    self.metrics.histogram(row.name, *labels).observe(value)
        elif row.kind is Kind.COUNTER:
            self.metrics.counter(row.name, *labels).inc(self._count(row, labels))
        else:
            more = row.name == "paceline_autoscaler_replicas"
            self.metrics.gauge(row.name, *labels).set(self._level(row, labels) + more)

    @staticmethod
    def _count(row: Metric, labels: tuple[str, ...]) -> int:
        if row.name == "paceline_slo_requests_total":
            verdict = Verdict(labels[row.labels.index("verdict")])
            return {Verdict.GOOD: JUDGED - BAD, Verdict.BAD_TTFT: BAD - 2, Verdict.BAD_FAILED: 2}[verdict]
        return 40

    @staticmethod
    def _level(row: Metric, labels: tuple[str, ...]) -> float:
        match row.name:
            case "paceline_slo_objective_ratio":
                return OBJECTIVE
            case "paceline_slo_threshold_seconds":
                return TTFT_PROMISE_S
            case "paceline_slo_window_seconds":
                return 28 * 86400
            case "paceline_autoscaler_last_success_timestamp_seconds":
                return time.time()  # noqa: TID251 - compared with Prometheus's own clock
            case "paceline_autoscaler_replicas":
                return {ReplicaState.DESIRED: 3.0, ReplicaState.READY: 2.0}.get(ReplicaState(labels[-1]), 0.0)
            case _:
                return 2.0
