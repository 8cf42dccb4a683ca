"""Which bins of a work history are not known, and a history with some of them filled in from another. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import floor

from paceline_autoscaler.model.work_history import BIN_S, MAX_BINS, WorkHistory

DAY_BINS = MAX_BINS // 7
TOLERATED_BINS = 10
"""Five minutes of a day: a restart leaves as much unknown."""


@dataclass(frozen=True, slots=True)
class UnknownSpan:
    """A part of a day from the first to the last bin that is not known, in Unix seconds."""

    begin: float
    end: float


def unknown_spans(histories: Iterable[WorkHistory], now: float) -> tuple[UnknownSpan, ...]:
    """What one of them does not know of the last seven days, a span for each day, newest first."""
    end = floor(now / BIN_S) * BIN_S
    rows = [_until(end, history) for history in histories] or [bytes(MAX_BINS)]
    known = bytes(map(min, zip(*rows, strict=True)))
    days = (_unknown(known[-(day + 1) * DAY_BINS :][:DAY_BINS], end - (day + 1) * DAY_BINS * BIN_S) for day in range(7))
    return tuple(span for span in days if span is not None)


def filled(history: WorkHistory, other: WorkHistory) -> WorkHistory:
    """With the other's bins where this one has none; how they vary is known from the longer one."""
    end = max(each.begin + len(each.codes) * BIN_S for each in (history, other) if each.codes or each is history)
    codes = bytes(own or found for own, found in zip(_until(end, history), _until(end, other), strict=True))
    varying = max(history, other, key=lambda each: each.known)
    kept = codes.lstrip(b"\0")
    begin = end - len(kept) * BIN_S
    return replace(history, begin=begin, codes=kept, variance=varying.variance, mean=varying.mean)


def _unknown(codes: bytes, begin: float) -> UnknownSpan | None:
    if codes.count(0) <= TOLERATED_BINS:
        return None
    return UnknownSpan(begin + codes.find(0) * BIN_S, begin + (codes.rfind(0) + 1) * BIN_S)


def _until(end: float, history: WorkHistory) -> bytes:
    """The codes of the MAX_BINS bins before `end`."""
    after = round((end - history.begin) / BIN_S) - len(history.codes)
    codes = history.codes + bytes(after) if after >= 0 else history.codes[:after]
    return codes[-MAX_BINS:].rjust(MAX_BINS, b"\0")
