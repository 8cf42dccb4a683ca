"""The interface of metrics sources (Prometheus and own scrapes): a query, and six kinds of answer.

Empty, NaN, stale, partial and failed answers are different inputs: each has its own type and its own effect on the
decision, so that no caller can confuse one with another or with zero.

A query is data, which each source evaluates in its own way; `promql` gives the text for Prometheus. The two sources
agree, except that PromQL's `increase` extrapolates to the edges of its window, which does not change shares and
quantiles, and changes counts by at most the amount of one scrape interval.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from paceline_core.registry.enums import QueryResult
from paceline_core.units import one_line

VERDICTS = "paceline_slo_requests_total"
HISTOGRAMS = {
    "ttft": "paceline_request_ttft_seconds",
    "tpot": "paceline_request_tpot_seconds",
    "e2e": "paceline_request_duration_seconds",
}


@dataclass(frozen=True, slots=True)
class Increase:
    """How much a counter grew over the window, summed by labels."""

    metric: str
    match: tuple[tuple[str, str], ...]
    by: tuple[str, ...]
    window_s: float


@dataclass(frozen=True, slots=True)
class HistogramQuantile:
    """A quantile of a histogram's observations in the window, by labels; NaN where there were none."""

    metric: str
    match: tuple[tuple[str, str], ...]
    by: tuple[str, ...]
    window_s: float
    quantile: float


Query = Increase | HistogramQuantile


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """A PromQL vector expression at every `step_s` from `start` to `end`, both Unix seconds."""

    expression: str
    start: float
    end: float
    step_s: float


def verdicts(namespace: str, name: str, window_s: float) -> Increase:
    return Increase(VERDICTS, service_labels(namespace, name), ("class", "slo", "verdict"), window_s)


def observed(namespace: str, name: str, metric: str, quantile: float, window_s: float) -> HistogramQuantile:
    """The query for a latency quantile by class; `metric` is ttft, tpot or e2e."""
    return HistogramQuantile(HISTOGRAMS[metric], service_labels(namespace, name), ("class",), window_s, quantile)


def promql(question: Query) -> str:
    window = f"[{round(question.window_s * 1000)}ms]"
    match question:
        case Increase():
            return f"sum by ({', '.join(question.by)}) (increase({selector(question)}{window}))"
        case HistogramQuantile():
            by = ", ".join((*question.by, "le"))
            return f"histogram_quantile({question.quantile}, sum by ({by}) (rate({selector(question)}{window})))"


def series(question: Query) -> str:
    return f"{question.metric}_bucket" if isinstance(question, HistogramQuantile) else question.metric


def selector(question: Query) -> str:
    return f"{series(question)}{{{matchers(question.match)}}}"


def matchers(match: Iterable[tuple[str, str]]) -> str:
    """Equality matchers of labels, as they stand between the braces of a selector."""
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return ",".join(f'{name}="{value.translate(escapes)}"' for name, value in match)


def service_labels(namespace: str, name: str) -> tuple[tuple[str, str], ...]:
    return (("pisvc_namespace", namespace), ("pisvc", name))


CAUSE_LIMIT = 200


@dataclass(frozen=True, slots=True)
class MetricSample:
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Value:
    """Numbers, the newest of them scraped `age_s` ago. NaN series are left out, unless all are NaN."""

    samples: tuple[MetricSample, ...]
    age_s: float
    result = QueryResult.VALUE


@dataclass(frozen=True, slots=True)
class Empty:
    """The source has no such series: never scraped, or absent for longer than it looks back."""

    result = QueryResult.EMPTY


@dataclass(frozen=True, slots=True)
class NaN:
    """The series exist but there is nothing to divide: no request ended in the window."""

    age_s: float
    result = QueryResult.NAN


@dataclass(frozen=True, slots=True)
class Stale:
    """The newest sample is too old to describe the present."""

    age_s: float
    result = QueryResult.STALE


@dataclass(frozen=True, slots=True)
class Partial:
    """Some of the data could not be read; the rest does not answer the query."""

    warnings: tuple[str, ...]
    result = QueryResult.PARTIAL


class ErrorKind(StrEnum):
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    MALFORMED = "malformed"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class Error:
    """No answer. `detail` is one line for people."""

    kind: ErrorKind
    detail: str
    result = QueryResult.ERROR


QueryAnswer = Value | Empty | NaN | Stale | Partial | Error


@dataclass(frozen=True, slots=True)
class RangeSeries:
    """One series of a range: `points` are (Unix seconds, value), oldest first, without NaN."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class RangeValue:
    """Series, each with points where it existed."""

    series: tuple[RangeSeries, ...]
    result = QueryResult.VALUE


RangeAnswer = RangeValue | Empty | NaN | Partial | Error
"""A range describes the past, so it is never Stale; the `age_s` of NaN is that of its newest point."""


def cause_of(answer: QueryAnswer | RangeAnswer) -> str:
    """Why there is no value, in words that change only with the cause; empty if there is nothing to add."""
    match answer:
        case Error(kind, detail):
            return one_line(f"{kind.value}: {detail}", CAUSE_LIMIT)
        case Partial(warnings):
            return one_line("; ".join(warnings), CAUSE_LIMIT)
        case Empty():
            return "it knows no such series"
        case Stale():
            return "its newest sample is too old"
    return ""


def classify(samples: Sequence[MetricSample], age_s: float | None, stale_after_s: float) -> QueryAnswer:
    """The kind of answer that these samples are; `age_s` None: the source does not know the series."""
    if age_s is None:
        return Empty()
    if age_s > stale_after_s:
        return Stale(age_s)
    if not samples:
        return Empty()
    numbers = tuple(sample for sample in samples if not math.isnan(sample.value))
    return Value(numbers, age_s) if numbers else NaN(age_s)


class RangeSource(Protocol):
    """A source that remembers. `ask_range` has its own deadline and never raises."""

    async def ask_range(self, question: RangeQuery) -> RangeAnswer: ...


class MetricsSource(Protocol):
    """A source of attainment. `ask` has its own deadline and never raises; `address` is for people."""

    @property
    def address(self) -> str:
        """Its URL without credentials, or what it scrapes instead."""
        ...

    async def ask(self, question: Query) -> QueryAnswer: ...

    async def run(self) -> None:
        """The source's background work; returns if it has none."""
        ...
