"""Variants of the production scheduler that the engine's own is compared with: orders, admission and victims."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling import Request, Scheduler, SchedulerLimits, WeightedShares
from paceline_workers.engine.scheduling.admission import Forecast
from paceline_workers.engine.scheduling.preemption import Choice, VictimCandidate, cheapest


class FirstCome(WeightedShares):
    """First come, first served: every service counts the same."""

    def service(self, seconds: float) -> float:
        """One for all."""
        return min(seconds, 1.0) ** 0


class Shortest(WeightedShares):
    """Shortest remaining uncached prompt first, preempting between chunks; the oldest have no share in practice."""

    def service(self, seconds: float) -> float:
        """Differences of service outweigh any wait."""
        return seconds**8


class LoggedLength(Forecast):
    """Knows how long each output gets, which no engine does."""

    def forecast(self, request: Request, produced: int) -> int:
        """What the log says."""
        return request.max_tokens - produced


class OnePageEach(Forecast):
    """Admission with one spare page for each running request, whatever it will produce."""

    def __init__(self, page_tokens: int) -> None:
        super().__init__(0, review=1)
        self._page_tokens = page_tokens

    def forecast(self, request: Request, produced: int) -> int:  # noqa: ARG002 - as Forecast has it
        """One page."""
        return self._page_tokens


class NoGrowth(Forecast):
    """Admission of whatever fits now."""

    def forecast(self, request: Request, produced: int) -> int:  # noqa: ARG002 - as Forecast has it
        """Next to nothing."""
        return 1


def last_admitted(candidates: Iterable[VictimCandidate], step: int) -> Request:  # noqa: ARG001 - a Choice
    """The newest running request, however much it has computed."""
    return list(candidates)[-1].request


@dataclass(frozen=True, slots=True)
class SchedulingVariant:
    """One way to schedule. `length_known`: `max_tokens` is the logged length of the output."""

    policy: Callable[[], WeightedShares]
    choose: Choice
    forecast: Callable[[int, int], Forecast]
    length_known: bool = False

    def scheduler(self, memory: KVCacheManager, limits: SchedulerLimits) -> Scheduler:
        """A scheduler that works this way."""
        forecast = self.forecast(limits.max_model_len, limits.page_tokens)
        return Scheduler(memory, limits, self.policy(), choose=self.choose, forecast=forecast)


OURS = SchedulingVariant(WeightedShares, cheapest, lambda length, _: Forecast(length))
ORACLE = SchedulingVariant(Shortest, cheapest, lambda length, _: LoggedLength(length), length_known=True)
FCFS = SchedulingVariant(FirstCome, last_admitted, lambda _, page_tokens: OnePageEach(page_tokens))
LAST_ADMITTED = SchedulingVariant(WeightedShares, last_admitted, lambda length, _: NoGrowth(length))
CHEAPEST = SchedulingVariant(WeightedShares, cheapest, lambda length, _: NoGrowth(length))
VLLM = SchedulingVariant(FirstCome, last_admitted, lambda length, _: NoGrowth(length))
"""vLLM's default: first come, whatever fits is admitted, the last admitted is preempted."""
