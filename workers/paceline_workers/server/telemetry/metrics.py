"""The worker's metrics, from what the engine reports and from how requests ended.

The engine counts from its own start; each heartbeat is turned into increments, and a new engine begins again at 0.

Also predicts a worker's backlog in seconds: how long its engine needs to compute the queued prompts of each class.
Each step leaves prefill the part of the token budget that the running requests do not use, and also costs its base time
and their decodes. Classes add up: their sum is when the queue is empty if no more requests arrive.
Known hole: a promised TPOT makes chunks smaller, so a worker that keeps one takes longer than predicted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from paceline_core.registry import Outcome, RequestClass
from paceline_core.registry.aliases import ALIASES, CACHE_CONFIG, LABELS
from paceline_core.registry.enums import GrammarCheck
from paceline_core.telemetry import Aliases, Metrics, exposition
from paceline_core.wire import StepTime
from paceline_workers.config import WorkerConfig
from paceline_workers.messages import Heartbeat, Started, StepStats
from paceline_workers.server.engine.client import EngineClient, EngineState
from paceline_workers.server.telemetry.request_metrics import GenerationTracing, RequestMetrics


def backlog_seconds(beat: Heartbeat, model: StepTime, step_tokens: int) -> Mapping[RequestClass, float]:
    """Seconds by class; empty while the engine's speed is unknown."""
    if max(model.base, model.prefill) <= 0:
        return {}
    kv_tokens = beat.recent[-1].kv_tokens if beat.recent else 0
    decodes = model.seconds(prefill_tokens=0, sequences=beat.running, kv_tokens=kv_tokens)
    chunk = max(step_tokens - beat.running, 1)
    seconds = {}
    for name, tokens in beat.queued_tokens.items():
        context = tokens / max(beat.waiting.get(name, 0), 1) / 2  # on average a token attends to half of its prompt
        seconds[name] = tokens * (model.prefill + model.context * context) + decodes * -(-tokens // chunk)
    return seconds


_TERMS = ("base", "prefill", "sequence", "kv", "context")
SHED = ("queue_full", "backlog", "deadline")


@dataclass(frozen=True, slots=True)
class _Counts:
    """The engine's counts at its last heartbeat."""

    steps: int = 0
    preemptions: int = 0
    evicted_pages: int = 0
    lookup_tokens: int = 0
    hit_tokens: int = 0
    evicted_idle_s: float = 0.0
    pages_out: int = 0
    pages_in: int = 0
    restored_tokens: int = 0
    recomputed_tokens: int = 0
    disk_pages_out: int = 0
    disk_pages_in: int = 0
    shed_by: Mapping[str, int] = field(default_factory=dict)


class WorkerMetrics:
    """One worker's metrics; every label set is the worker's own plus a closed set. `requests`: metrics of requests."""

    def __init__(self, config: WorkerConfig, tracing: GenerationTracing | None = None) -> None:
        namespace, _, service = config.service.rpartition("/")
        self._labels = (namespace, service, config.revision, config.pool)
        self._metrics = Metrics("worker")
        self.requests = RequestMetrics(self._metrics, self._labels, tracing)
        labels = dict(zip(LABELS, (config.served_names[0], "0"), strict=True))
        aliases, infos = (ALIASES, (CACHE_CONFIG,)) if config.vllm_names else ((), ())
        self._aliases = Aliases(self._metrics, aliases, infos, labels)
        self._step_tokens = config.engine.step_tokens
        self._counts = _Counts()
        self._pages = self._page_bytes = 0
        self._page_tokens = 1
        self._restarts = 0
        self._emulated = False
        for result in GrammarCheck:
            self._count("paceline_worker_grammar_checks_total", 0, result)

    def on_engine(self, event: EngineState | Started | Heartbeat) -> None:
        """Listens to the engine."""
        match event:
            case Started():
                self._on_start(event)
            case Heartbeat():
                self._gauges(event)
                self._advance(event)
                self._steps(event)

    def ended(self, outcome: Outcome) -> None:
        """Count the outcome of a request."""
        self._count("paceline_worker_requests_total", 1, outcome)

    def checked(self, result: GrammarCheck) -> None:
        """Count the result of a grammar check."""
        self._count("paceline_worker_grammar_checks_total", 1, result)

    def exposition(self, engine: EngineClient, checks: int = 0, bodies: int = 0) -> tuple[bytes, str]:
        """Body and content type for a scrape; sets gauges now. `checks` wait, `bodies` bytes are held."""
        self._set("paceline_worker_body_bytes", bodies)
        self._set("paceline_worker_grammar_checks_waiting", checks)
        self._set("paceline_engine_heartbeat_age_seconds", engine.since_heard)
        self._count("paceline_engine_restarts_total", engine.restarts - self._restarts)
        self._restarts = engine.restarts
        self.requests.settle()
        return exposition.page([*self._metrics.families(), *self._aliases.families()]), exposition.CONTENT_TYPE

    def _on_start(self, started: Started) -> None:
        self._counts, self._pages, self._emulated = _Counts(), started.pages, started.emulated
        self._page_bytes, self._page_tokens = started.page_bytes, started.page_tokens
        self._set("paceline_emulated", started.emulated)
        self._set("paceline_kv_capacity_bytes", started.pages * started.page_bytes)
        self._set("paceline_kv_page_tokens", started.page_tokens)
        for stage, seconds in started.stages.items():
            self._set("paceline_cold_start_seconds", seconds, stage)

    def _gauges(self, beat: Heartbeat) -> None:
        self._set("paceline_scheduler_running_requests", beat.running)
        self._set("paceline_scheduler_oldest_wait_seconds", beat.oldest_wait)
        for name in RequestClass:
            self._set("paceline_scheduler_waiting_requests", beat.waiting.get(name, 0), name)
            self._set("paceline_scheduler_waiting_uncached_tokens", beat.queued_tokens.get(name, 0), name)
        self._set("paceline_kv_pages", beat.pages_free, "free")
        self._set("paceline_kv_pages", beat.pages_cached, "cached")
        self._set("paceline_kv_pages", max(self._pages - beat.pages_free - beat.pages_cached, 0), "active")
        self._set("paceline_kv_host_bytes", beat.host_pages * self._page_bytes)
        self._set("paceline_kv_disk_bytes", beat.disk_pages * self._page_bytes)
        self._set("paceline_kv_loading_requests", beat.loading)
        self._set("paceline_kv_overcommit_bytes", beat.debt_pages * self._page_bytes)
        self._set("paceline_kv_fragmentation_bytes", beat.slack_tokens * self._page_bytes / self._page_tokens)

    def _advance(self, beat: Heartbeat) -> None:
        counted = _Counts(*(getattr(beat, field.name) for field in fields(_Counts)))
        before, self._counts = self._counts, counted

        def more(name: str) -> float:
            difference: float = getattr(counted, name) - getattr(before, name)
            return difference

        self._count("paceline_scheduler_steps_total", more("steps"))
        self._count("paceline_scheduler_preemptions_total", more("preemptions"), "recompute")
        self._count("paceline_scheduler_recomputed_tokens_total", more("recomputed_tokens"))
        for reason in SHED:
            shed = counted.shed_by.get(reason, 0) - before.shed_by.get(reason, 0)
            self._count("paceline_scheduler_shed_requests_total", shed, reason)
        self._count("paceline_kv_evicted_pages_total", more("evicted_pages"))
        self._count("paceline_kv_evicted_idle_seconds_total", more("evicted_idle_s"))
        self._count("paceline_kv_restored_tokens_total", more("restored_tokens"))
        for tier, pages in (("host", "pages"), ("disk", "disk_pages")):
            for way in ("out", "in"):
                moved = more(f"{pages}_{way}") * self._page_bytes
                self._count("paceline_kv_swap_bytes_total", moved, tier, way)
        self._count("paceline_prefix_lookup_tokens_total", more("lookup_tokens"))
        self._count("paceline_prefix_hit_tokens_total", more("hit_tokens"))

    def _steps(self, beat: Heartbeat) -> None:
        model = step_time(beat.step_time)
        for name, seconds in backlog_seconds(beat, model, self._step_tokens).items():
            self._set("paceline_scheduler_backlog_seconds", seconds, name)
        for term in _TERMS:
            self._set("paceline_step_time_coefficient", getattr(model, term), term)
        for step in beat.recent:
            self._observe("paceline_scheduler_step_seconds", step.seconds)
            self._observe("paceline_scheduler_step_tokens", step.prefill_tokens + step.decode_tokens)
            self._observe("paceline_scheduler_batch_requests", step.sequences)
            self._observe("paceline_scheduler_batch_tokens", step.prefill_tokens, "prefill")
            self._observe("paceline_scheduler_batch_tokens", step.decode_tokens, "decode")
            if step.window > 0:
                self._observe("paceline_scheduler_batch_window_seconds", step.window)
            if step.seconds > 0 and model.observations > 0:
                fitted = predicted(step, model)
                self._observe("paceline_step_time_residual_ratio", abs(step.seconds - fitted) / step.seconds)
                self._count("paceline_step_time_predicted_seconds_total", fitted)
            if self._emulated:
                self._observe("paceline_emulated_step_lateness_ratio", lateness(step))

    def _set(self, name: str, value: float, *labels: str) -> None:
        self._metrics.gauge(name, *self._labels, *labels).set(value)

    def _count(self, name: str, more: float, *labels: str) -> None:
        self._metrics.counter(name, *self._labels, *labels).inc(max(more, 0))

    def _observe(self, name: str, value: float, *labels: str) -> None:
        self._metrics.histogram(name, *self._labels, *labels).observe(value)


def step_time(terms: list[float]) -> StepTime:
    """The heartbeat's list as a model; an empty list means that the engine has none yet."""
    base, prefill, sequence, kv, context, observations = [*terms, *[0.0] * 6][:6]
    return StepTime(
        base=base, prefill=prefill, sequence=sequence, kv=kv, context=context, observations=int(observations)
    )


def predicted(step: StepStats, model: StepTime) -> float:
    """The fitted time of a step, in seconds."""
    return model.seconds(
        prefill_tokens=step.prefill_tokens,
        sequences=step.decode_tokens,
        kv_tokens=step.kv_tokens,
        context=step.context,
    )


def lateness(step: StepStats) -> float:
    """How late an emulated step ended, as a share of the time it should have taken."""
    return step.lateness / max(step.seconds - step.lateness, 1e-9)
