"""A queue of cohorts: who arrived when, and how long each waits until its prompt's turn. Pure.

As in the gateway, those that can still be in time go before overdue ones, and else first come, first served.

A cohort arrives evenly over an interval, and a part of it is served evenly over another one: the wait of its first and
its last request are the horizontal distances between the cumulative curves of arrival and service at both ends, and in
between waits are linear. So waits are exact for the fluid, however long a bin is.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf

from paceline_autoscaler.model.late_work import OVERDUE_SHARE
from paceline_planner.replica import RequestMix

_NONE = 1e-9
"""Fewer requests than this are none: the rest of a division."""


@dataclass(frozen=True, slots=True)
class Part:
    """`requests` that arrived evenly from `first` to `last`, and whose wait went evenly from `wait` to `last_wait`."""

    first: float
    last: float
    requests: float
    mix: RequestMix
    wait: float
    last_wait: float

    def share_within(self, seconds: float) -> float:
        """The share of its requests that waited no longer."""
        low, high = self.wait, self.last_wait
        if low > high:
            low, high = high, low
        if high <= seconds:
            return 1.0
        return 0.0 if low >= seconds else (seconds - low) / (high - low)

    def share_between(self, start: float, end: float) -> float:
        """The share of its requests that arrived from `start` to before `end`."""
        if self.first >= start and self.last <= end:
            return 1.0
        if self.last <= self.first:
            return float(start <= self.first < end)
        return max(min(self.last, end) - max(self.first, start), 0.0) / (self.last - self.first)


@dataclass(slots=True)
class _Cohort:
    first: float
    last: float
    requests: float
    mix: RequestMix

    def take(self, requests: float) -> float:
        """Remove the first ones; returns when the last of these arrived."""
        if requests >= self.requests - _NONE:
            self.requests = 0.0
            return self.last
        until = self.first + (self.last - self.first) * requests / self.requests
        self.first, self.requests = until, self.requests - requests
        return until


class DeadlineQueue:
    """`work` is the prefill seconds of the `requests` that wait; `in_time_s` is how long a mean request may wait."""

    def __init__(self, in_time_s: Callable[[RequestMix], float] = lambda _: inf) -> None:
        self._in_time_s = in_time_s
        self._in_time: deque[_Cohort] = deque()
        self._overdue: deque[_Cohort] = deque()
        self.requests = 0.0
        self.work = 0.0

    def oldest_s(self, now: float) -> float:
        return now - min([cohorts[0].first for cohorts in (self._overdue, self._in_time) if cohorts], default=now)

    def tokens(self) -> float:
        """Prompt tokens that wait."""
        return self.overdue_tokens() + sum(cohort.requests * cohort.mix.prompt for cohort in self._in_time)

    def overdue_tokens(self) -> float:
        return sum(cohort.requests * cohort.mix.prompt for cohort in self._overdue)

    def join(self, start: float, end: float, requests: float, mix: RequestMix) -> None:
        if requests <= _NONE:
            return
        self._in_time.append(_Cohort(start, end, requests, mix))
        self.requests += requests
        self.work += requests * mix.prefill_s

    def serve(self, work: float, most: float, start: float, end: float) -> Iterator[Part]:
        """Serve up to `work` prefill seconds, and `most` requests, evenly from `start` to `end`, oldest first.

        When nothing is left to wait the last ones were served as they came. While some are overdue, a ninth of the work
        is theirs, and what those in time leave.
        """
        self._set_overdue(start)
        kept = _work(self._overdue, OVERDUE_SHARE * work)
        for part in self._serve(self._in_time, work - kept, most, start, end):
            work, most = work - part.requests * part.mix.prefill_s, most - part.requests
            yield part
        yield from self._serve(self._overdue, work, most, start, end)

    def expire(self, before: float) -> Iterator[Part]:
        """Remove those that arrived before then."""
        for cohorts in (self._overdue, self._in_time):
            while cohorts and cohorts[0].first < before - _NONE:
                gone = _cut(cohorts, before)
                self._left(gone.requests, gone.mix.prefill_s)
                yield Part(gone.first, gone.last, gone.requests, gone.mix, 0.0, 0.0)

    def _set_overdue(self, now: float) -> None:
        """Those that have waited longer than they may let the others go first."""
        while self._in_time:
            before = now - self._in_time_s(self._in_time[0].mix)
            if self._in_time[0].first >= before - _NONE:
                return
            self._overdue.append(_cut(self._in_time, before))

    def _serve(self, cohorts: deque[_Cohort], work: float, most: float, start: float, end: float) -> Iterator[Part]:
        left, begun = work, start
        per_second = work / (end - start)
        while cohorts and most > _NONE:
            cohort = cohorts[0]
            first, cost = cohort.first, cohort.mix.prefill_s
            if left < _NONE * cost:
                return
            requests = min(left / cost if cost > 0 else cohort.requests, most, cohort.requests)
            last = cohort.take(requests)
            until = begun + (requests * cost / per_second if cost > 0 else 0.0)
            if not cohort.requests:
                cohorts.popleft()
                until = max(until, last)
            self._left(requests, cost)
            left, most = left - requests * cost, most - requests
            yield Part(first, last, requests, cohort.mix, max(begun - first, 0.0), max(until - last, 0.0))
            begun = until

    def _left(self, requests: float, cost: float) -> None:
        self.requests -= requests
        self.work -= requests * cost
        if not self._in_time and not self._overdue:
            self.requests = self.work = 0.0


def _work(cohorts: Iterable[_Cohort], most: float) -> float:
    """Their prefill seconds, but at most so many."""
    found = 0.0
    for cohort in cohorts:
        found += cohort.requests * cohort.mix.prefill_s
        if found >= most:
            return most
    return found


def _cut(cohorts: deque[_Cohort], before: float) -> _Cohort:
    """Remove from the first cohort what arrived before then."""
    cohort = cohorts[0]
    first, span = cohort.first, cohort.last - cohort.first
    requests = cohort.requests * (min((before - first) / span, 1.0) if span > 0 else 1.0)
    last = cohort.take(requests)
    if not cohort.requests:
        cohorts.popleft()
    return _Cohort(first, last, requests, cohort.mix)
