"""Which events to write and when: pure. One Event object a series: object, type, reason, message without numbers.

A series' first occurrence is due at once; later ones only raise its count, written with the newest message at most
every `GAP_S`. Writes about one object spend from one bucket (client-go's: 25 at once, one more each five minutes), so a
failure that repeats for ever costs next to nothing. Invariant: at most `SERIES` series and as many buckets are known;
beyond that the one not heard of longest is forgotten, with its unwritten count.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from paceline_core.kube.cluster import Event, ObjectKey

BURST: Final = 25
REFILL_S: Final = 300.0
GAP_S: Final = 10.0
SERIES: Final = 1024
_NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")

SeriesKey = tuple[str, ObjectKey, str, str, str]


@dataclass(frozen=True, slots=True)
class Series:
    """One Event object: the newest occurrence, how many, and what is written. `name` is empty until it exists."""

    event: Event
    first: datetime
    last: datetime
    count: int = 1
    name: str = ""
    written: int = 0
    tried_at: float | None = None


@dataclass(frozen=True, slots=True)
class EventBudget:
    """Tokens left at a moment."""

    tokens: float
    at: float

    def filled(self, now: float) -> "EventBudget":
        """The same bucket, later."""
        return EventBudget(min(float(BURST), self.tokens + (now - self.at) / REFILL_S), now)


class EventCorrelator:
    """`note` what happens, carry out what is `due`, say `done`."""

    def __init__(self) -> None:
        self._series: OrderedDict[SeriesKey, Series] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, ObjectKey], EventBudget] = OrderedDict()

    def note(self, event: Event, utc: datetime) -> None:
        """It happened, once more or for the first time."""
        key = series_key(event)
        known = self._series.get(key)
        self._series[key] = (
            replace(known, event=event, last=utc, count=known.count + 1) if known else Series(event, utc, utc)
        )
        self._series.move_to_end(key)
        if len(self._series) > SERIES:
            self._series.popitem(last=False)

    def due(self, now: float) -> list[tuple[SeriesKey, Series]]:
        """What is to be written now; each spends a token of its object."""
        return [(key, series) for key, series in self._unwritten() if self._ripe(series, now) and self._spend(key, now)]

    def wait(self, now: float) -> float | None:
        """Seconds until something may be due, as far as is known now; None when all is written."""
        return min((self._delay(key, series, now) for key, series in self._unwritten()), default=None)

    def done(self, key: SeriesKey, name: str, count: int, now: float, *, accepted: bool = True) -> None:
        """A write was tried: `count` occurrences now stand in the object `name`, which is empty while there is none.

        One that the server did not accept gives its token back, so that events go on as soon as it accepts them again.
        """
        if not accepted:
            bucket = self._bucket(key, now)
            self._buckets[key[:2]] = replace(bucket, tokens=min(float(BURST), bucket.tokens + 1))
        if key in self._series:
            self._series[key] = replace(self._series[key], name=name, written=count, tried_at=now)

    def _unwritten(self) -> Iterator[tuple[SeriesKey, Series]]:
        return ((key, series) for key, series in self._series.items() if series.count > series.written)

    def _ripe(self, series: Series, now: float) -> bool:
        return series.tried_at is None or now - series.tried_at >= GAP_S

    def _spend(self, key: SeriesKey, now: float) -> bool:
        bucket = self._bucket(key, now)
        enough = bucket.tokens >= 1
        self._buckets[key[:2]] = replace(bucket, tokens=bucket.tokens - enough)
        self._buckets.move_to_end(key[:2])
        if len(self._buckets) > SERIES:
            self._buckets.popitem(last=False)
        return enough

    def _delay(self, key: SeriesKey, series: Series, now: float) -> float:
        ripe = 0.0 if series.tried_at is None else max(0.0, series.tried_at + GAP_S - now)
        return max(ripe, (1 - self._bucket(key, now).tokens) * REFILL_S)

    def _bucket(self, key: SeriesKey, now: float) -> EventBudget:
        return self._buckets.get(key[:2], EventBudget(float(BURST), now)).filled(now)


def series_key(event: Event) -> SeriesKey:
    """Two events of one key are one to a reader."""
    return event.kind, event.key, event.type, event.reason, _NUMBER.sub("#", event.message)
