"""SLO attainment from the metrics source, polled in the background, so that no decision waits for an answer.

Each round queries, for every service, how many requests met each target within the window and the measured quantiles
of the targets. The results age: after three missed rounds they are stale, whatever they were.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paceline_autoscaler.metrics_source.base import (
    MetricsSource,
    Query,
    QueryAnswer,
    Value,
    cause_of,
    observed,
    verdicts,
)
from paceline_autoscaler.types import ATTAINMENT_WINDOW_S, Attainment, MeasuredLatency, ScalingSpec, SloCounts
from paceline_core.clock import Clock
from paceline_core.registry.enums import QueryResult, RequestClass, Verdict
from paceline_core.telemetry import Metrics, get_logger

_AT_ONCE = 4
_ROUNDS = 3.0
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Round:
    at: float
    answer: QueryAnswer
    latencies: tuple[MeasuredLatency, ...] = ()


class AttainmentPoller:
    """The last answers by service; `run` queries every `interval_s`."""

    def __init__(self, source: MetricsSource, clock: Clock, metrics: Metrics, interval_s: float) -> None:
        self._source = source
        self._clock = clock
        self._metrics = metrics
        self._interval_s = interval_s
        self._rounds: dict[str, _Round] = {}
        self._gate = asyncio.Semaphore(_AT_ONCE)
        for result in QueryResult:  # from 0: a rate ignores a series' first value
            metrics.counter("paceline_autoscaler_query_results_total", result.value)

    async def run(self, goals: Callable[[], Iterable[ScalingSpec]]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._source.run())
            while True:
                await self.round(goals())
                await self._clock.sleep(self._interval_s)

    async def round(self, goals: Iterable[ScalingSpec]) -> None:
        """Query once for every service, and forget those that are deleted."""
        wanted = [goal for goal in goals if goal.targets]
        found = await asyncio.gather(*(self._service(goal) for goal in wanted))
        self._rounds = dict(zip((goal.service for goal in wanted), found, strict=True))

    def attainment(self, service: str) -> Attainment | None:
        """How many requests met their targets recently; None before the first answer."""
        found = self._rounds.get(service)
        if found is None:
            return None
        if self._clock.monotonic() - found.at > _ROUNDS * self._interval_s:
            return Attainment(
                QueryResult.STALE, ATTAINMENT_WINDOW_S, (), self._source.address, "it was not asked lately"
            )
        rows = slo_counts(found.answer) if isinstance(found.answer, Value) else ()
        return Attainment(found.answer.result, ATTAINMENT_WINDOW_S, rows, self._source.address, cause_of(found.answer))

    def latencies(self, service: str) -> tuple[MeasuredLatency, ...]:
        """The measured quantile of each target, where known."""
        found = self._rounds.get(service)
        return () if found is None else found.latencies

    def age_s(self, service: str) -> float | None:
        """Seconds since the newest sample of the last answer."""
        found = self._rounds.get(service)
        if found is None or not isinstance(found.answer, Value):
            return None
        return self._clock.monotonic() - found.at + found.answer.age_s

    async def _service(self, goal: ScalingSpec) -> _Round:
        namespace, _, name = goal.service.partition("/")
        kinds = dict.fromkeys((target.metric, target.quantile) for target in goal.targets)
        questions: list[Query] = [verdicts(namespace, name, ATTAINMENT_WINDOW_S)]
        questions += [observed(namespace, name, metric, quantile, ATTAINMENT_WINDOW_S) for metric, quantile in kinds]
        first, *rest = await asyncio.gather(*(self._ask(question) for question in questions))
        by_kind = dict(zip(kinds, rest, strict=True))
        latencies = tuple(
            MeasuredLatency(target.cls, target.metric, target.quantile, seconds)
            for target in goal.targets
            for seconds in _of_class(by_kind[target.metric, target.quantile], target.cls)
        )
        return _Round(self._clock.monotonic(), first, latencies)

    async def _ask(self, question: Query) -> QueryAnswer:
        async with self._gate:
            answer = await self._source.ask(question)
        self._metrics.counter("paceline_autoscaler_query_results_total", answer.result.value).inc()
        if answer.result in {QueryResult.PARTIAL, QueryResult.ERROR}:
            _log.warning("SLO attainment could not be measured", extra={"answer": repr(answer)[:300]})
        return answer


def _of_class(answer: QueryAnswer, cls: RequestClass) -> list[float]:
    """The class's value, if the answer has one."""
    samples = answer.samples if isinstance(answer, Value) else ()
    return [sample.value for sample in samples if sample.labels.get("class") == cls][:1]


def slo_counts(answer: Value) -> tuple[SloCounts, ...]:
    """Good and bad by class and target; leaves out unknown classes."""
    counts: dict[tuple[RequestClass, str], list[float]] = {}
    for sample in answer.samples:
        cls, slo, verdict = (sample.labels.get(label, "") for label in ("class", "slo", "verdict"))
        if cls in set(RequestClass) and slo:
            pair = counts.setdefault((RequestClass(cls), slo), [0.0, 0.0])
            pair[verdict != Verdict.GOOD] += max(sample.value, 0.0)
    return tuple(SloCounts(cls, slo, good, bad) for (cls, slo), (good, bad) in sorted(counts.items()))
