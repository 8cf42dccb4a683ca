"""Replicas from the rate of tokens that arrive, forecast over the time that a start takes. Pure.

The rate of prompt tokens and expected output tokens, the latter times `output_weight`, is smoothed with a linear trend
(Holt's method) and continued for `horizon_s`; replicas are the forecast over `threshold` of the `tokens_per_s` that one
replica sustains. Up at once; down to the highest need of `hold_s`. Known holes: a backlog is no arrival, so only what
the threshold leaves free works it off; tokens that the prefix cache serves count in full; a trend is continued past its
turn.

The defaults fit a replica whose step costs 13 ms and 60 µs a prefill token; another one needs its own numbers.
"""

from dataclasses import dataclass
from math import ceil

from paceline_autoscaler.model.capacity import output_of
from paceline_autoscaler.model.observation import only_pool
from paceline_autoscaler.model.series import Series, TimedValue, highest, newer_than
from paceline_autoscaler.types import Observation


@dataclass(frozen=True, slots=True)
class Holt:
    """A level and its trend a second, as of `at`."""

    at: float
    level: float
    trend: float = 0.0

    def forecast(self, at: float) -> float:
        """The value expected then; never negative."""
        return max(self.level + self.trend * (at - self.at), 0.0)

    def observe(self, at: float, value: float, alpha: float, beta: float) -> "Holt":
        """With a later value: the level moves by `alpha` of its error, the trend by `beta` of its own."""
        if at <= self.at:
            return self
        level = alpha * value + (1 - alpha) * (self.level + self.trend * (at - self.at))
        trend = beta * (level - self.level) / (at - self.at) + (1 - beta) * self.trend
        return Holt(at, level, trend)


@dataclass(frozen=True, slots=True)
class TokenRateState:
    """The smoothed rate, absent before the first report, and the needs of the last `hold_s`."""

    rate: Holt | None = None
    needs: Series = ()


@dataclass(frozen=True, slots=True)
class TokenRate:
    """Rates are in tokens per second; `alpha` and `beta` are 0 to 1."""

    tokens_per_s: float = 10_000.0
    threshold: float = 0.7
    output_weight: float = 2.0
    alpha: float = 0.5
    beta: float = 0.1
    horizon_s: float = 180.0
    hold_s: float = 300.0
    period_s: float = 15.0
    lag_s: float = 15.0

    def initial_state(self) -> TokenRateState:
        return TokenRateState()

    def decide(self, observation: Observation, own: TokenRateState) -> tuple[dict[str, int], TokenRateState]:
        """The only pool's replicas; without a gateway's report those that are ordered."""
        pool, now = only_pool(observation), observation.now
        if observation.demand.heard == 0:
            return {pool.name: pool.desired}, own
        measured = token_rate(observation, self.output_weight)
        rate = Holt(now, measured) if own.rate is None else own.rate.observe(now, measured, self.alpha, self.beta)
        need = max(rate.forecast(now + self.horizon_s), rate.level) / (self.threshold * self.tokens_per_s)
        needs = (*newer_than(own.needs, now, self.hold_s), TimedValue(now, need))
        return {pool.name: ceil(highest(needs))}, TokenRateState(rate, needs)


def token_rate(observation: Observation, output_weight: float) -> float:
    """Prompt tokens, and expected output tokens times their weight, that arrived a second in the longest window."""
    rate = 0.0
    for cls in observation.demand.classes:
        if cls.flows and cls.flows[-1].seconds > 0:
            flow = cls.flows[-1]
            rate += (flow.prompt_tokens + flow.arrivals * output_of(cls, None) * output_weight) / flow.seconds
    return rate
