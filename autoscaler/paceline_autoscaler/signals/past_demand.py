"""The work of the past seven days from Prometheus, for services whose stored history lacks some of it.

Each service is asked for once, a day at a time, newest first, until one has no series; nothing waits for the answers.
The newest day counts as soon as it is known, and what the newest days say even if an older one fails. After a failure,
or if there is no series at all, it is asked again after each of RETRIES_S, and then not before the next start. One
service is asked for at a time.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from paceline_autoscaler.metrics_source.base import Empty, RangeAnswer, RangeSource, RangeValue, cause_of
from paceline_autoscaler.metrics_source.demand_series import demand_range, scrapes_of
from paceline_autoscaler.model.past_work import MAX_SPAN_S, slots_of, work_histories
from paceline_autoscaler.model.unknown_work import UnknownSpan
from paceline_autoscaler.model.work_history import BIN_S, WorkHistory
from paceline_autoscaler.state import LearnedState
from paceline_autoscaler.types import Role, ScalingSpec
from paceline_core.clock import Clock
from paceline_core.registry.enums import QueryResult
from paceline_core.telemetry import Metrics, get_logger

RETRIES_S = (60.0, 300.0, 1800.0)
_RECENT_STEP_S, _STEP_S = BIN_S / 3, BIN_S
"""Of the newest day, and of the others: how demand varies within a bin counts for about a day."""
_log = get_logger(__name__)
Histories = tuple[tuple[Role, WorkHistory], ...]


@dataclass(frozen=True, slots=True)
class PastQuestion:
    """The spans that a service's history lacks, newest first, and what its work is priced with."""

    spec: ScalingSpec
    learned: LearnedState
    spans: tuple[UnknownSpan, ...]


@dataclass(slots=True)
class _Progress:
    """How often a service was asked for; `due`: when it may be asked for again, None: never, or an answer is due."""

    tries: int = 0
    due: float | None = 0.0
    found: Histories = ()

    def add(self, found: Histories) -> None:
        self.found = (*self.found, *found)


@dataclass(slots=True)
class PastDemand:
    """`want` whenever something is missing, `take` what has been found; `run` until cancelled."""

    source: RangeSource
    clock: Clock
    metrics: Metrics
    _services: dict[str, _Progress] = field(default_factory=dict)
    _questions: asyncio.Queue[PastQuestion] = field(default_factory=asyncio.Queue)
    _open: int = 0

    def may_ask(self, service: str) -> bool:
        """Whether it has not been asked for yet, or it is time to ask again."""
        due = self._services.get(service, _Progress()).due
        return due is not None and self.clock.monotonic() >= due

    def want(self, question: PastQuestion) -> None:
        """Ask soon, where `may_ask`."""
        self._services.setdefault(question.spec.service, _Progress()).due = None
        self._questions.put_nowait(question)
        self._open += 1

    def take(self, service: str) -> Histories:
        """What has been found since the last call."""
        progress = self._services.get(service)
        if progress is None:
            return ()
        found, progress.found = progress.found, ()
        return found

    @property
    def idle(self) -> bool:
        """Whether every question has its answer."""
        return not self._open

    def forget(self, service: str) -> None:
        """It is gone, or scaled by another autoscaler: when it comes back, it is asked for anew."""
        self._services.pop(service, None)

    async def run(self) -> None:
        while True:
            question = await self._questions.get()
            if progress := self._services.get(question.spec.service):
                cause = await self.ask(question, progress.add)
                if cause is not None:
                    self._failed(question.spec.service, progress, cause)
            self._open -= 1

    async def ask(self, question: PastQuestion, found: Callable[[Histories], None]) -> str | None:
        """Call `found` with the work of the newest span, then with that of the others.

        Returns why Prometheus does not say more, None if that is all it knows.
        """
        for spans, step_s in ((question.spans[:1], _RECENT_STEP_S), (question.spans[1:], _STEP_S)):
            values, last = await self._range(question.spec.service, spans, step_s)
            if values:
                histories = await asyncio.to_thread(_histories, question, values, step_s)
                found(histories)
                known = max((history.known for _, history in histories), default=0)
                _log.info("past work is read from Prometheus", extra={"service": question.spec.service, "bins": known})
            if last is not None:
                all_known = isinstance(last, Empty) and spans[:1] != question.spans[:1]
                return None if all_known else _why(last)
        return None

    async def _range(
        self, service: str, spans: Sequence[UnknownSpan], step_s: float
    ) -> tuple[list[RangeValue], RangeAnswer | None]:
        """The values of the spans until one has none, and its answer."""
        namespace, _, name = service.partition("/")
        values: list[RangeValue] = []
        for span in spans:
            asked = demand_range(namespace, name, span.begin - MAX_SPAN_S, span.end, step_s)
            answer = await self.source.ask_range(asked)
            self.metrics.counter("paceline_autoscaler_query_results_total", answer.result.value).inc()
            if not isinstance(answer, RangeValue):
                return values, answer
            values.append(answer)
        return values, None

    def _failed(self, service: str, progress: _Progress, cause: str) -> None:
        progress.tries += 1
        again = progress.tries <= len(RETRIES_S)
        progress.due = self.clock.monotonic() + RETRIES_S[progress.tries - 1] if again else None
        extra = {"service": service, "reason": cause, "tries": progress.tries, "again": again}
        _log.info("past work is not read from Prometheus", extra=extra)


def _why(answer: RangeAnswer) -> str:
    return cause_of(answer) or {QueryResult.NAN: "its samples are no numbers"}.get(answer.result, answer.result.value)


def _histories(question: PastQuestion, values: Sequence[RangeValue], step_s: float) -> Histories:
    """The work of all values; series of one gateway belong together by their labels."""
    scrapes = scrapes_of(series for value in values for series in value.series)
    return work_histories(question.spec, question.learned, slots_of(scrapes.values(), step_s), step_s)
