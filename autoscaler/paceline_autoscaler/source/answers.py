"""The six answers of a metrics source, and the seam behind which Prometheus and our own scrapes are one thing.

Empty, NaN, stale, partial and failed are different inputs: each has its own type here and its own reaction in the
decision, so that no caller can take one for another or for a zero.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from paceline_autoscaler.source.questions import Query
from paceline_core.registry.enums import QueryResult

CAUSE_LIMIT = 200


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One series of an answer."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Value:
    """Numbers, the newest of them scraped `age_s` ago. Series that are NaN are left out, unless all are."""

    samples: tuple[MetricSample, ...]
    age_s: float
    result = QueryResult.VALUE


@dataclass(frozen=True, slots=True)
class Empty:
    """The source knows no such series: never scraped, or gone for longer than it looks back."""

    result = QueryResult.EMPTY


@dataclass(frozen=True, slots=True)
class NaN:
    """The series are there and there is nothing to divide: no request fell into the window."""

    age_s: float
    result = QueryResult.NAN


@dataclass(frozen=True, slots=True)
class Stale:
    """The newest sample is too old to speak of now."""

    age_s: float
    result = QueryResult.STALE


@dataclass(frozen=True, slots=True)
class Partial:
    """Some of the data could not be read; the rest is not an answer to the question."""

    warnings: tuple[str, ...]
    result = QueryResult.PARTIAL


class ErrorKind(StrEnum):
    """Why there is no answer."""

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


def cause_of(answer: QueryAnswer) -> str:
    """Why there is no value, in words that stay the same while the cause does; empty where there is nothing to add."""
    match answer:
        case Error(kind, detail):
            return _short(f"{kind.value}: {detail}")
        case Partial(warnings):
            return _short("; ".join(warnings))
        case Empty():
            return "it knows no such series"
        case Stale():
            return "its newest sample is too old"
    return ""


def _short(words: str) -> str:
    text = " ".join(words.split())
    return text if len(text) <= CAUSE_LIMIT else f"{text[: CAUSE_LIMIT - 1]}…"


def judge(samples: Sequence[MetricSample], age_s: float | None, stale_after_s: float) -> QueryAnswer:
    """Which of the answers these samples are; `age_s` None: the source has never seen the series."""
    if age_s is None:
        return Empty()
    if age_s > stale_after_s:
        return Stale(age_s)
    if not samples:
        return Empty()
    numbers = tuple(sample for sample in samples if not math.isnan(sample.value))
    return Value(numbers, age_s) if numbers else NaN(age_s)


class MetricsSource(Protocol):
    """Where attainment comes from. `ask` has a deadline of its own and never raises; `address` is for people."""

    @property
    def address(self) -> str:
        """Its URL without credentials, or what is scraped in place of one."""
        ...

    async def ask(self, question: Query) -> QueryAnswer:
        """One of the six answers."""
        ...

    async def run(self) -> None:
        """What the source does between questions; returns when it has nothing to do."""
        ...
