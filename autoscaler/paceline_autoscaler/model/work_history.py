"""The work that arrived in the last days, by bins of 30 s: what demand does next is learned from it. Pure.

A bin has its mean rate in replica-s/s, in steps of 5 %, as one byte; 0 means that it is not known. Seven days of them
compress to less than 20 KB. Within a bin demand varies, too: `variance` and `mean` are those of thirds of bins, over
about the last day.
"""

import zlib
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import floor, fsum
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

BIN_S = 30.0
MAX_BINS = 7 * 24 * 120
_THIRDS = 3
_DAY_BINS = 24 * 120
_MIN_SHARE = 0.5
"""A bin of which less was observed is not known."""


def _levels() -> tuple[float, ...]:
    """The rate of each code: 0.01 to 2,300, in steps of 5 %; codes 0 and 1 mean unknown and no work."""
    rates = [0.0, 0.0, 0.01]
    while len(rates) < 256:
        rates.append(rates[-1] * 1.05)
    return tuple(rates)


RATES = _levels()


def code_of(rate: float) -> int:
    """The code of the nearest rate."""
    above = min(bisect_left(RATES, rate, lo=2), len(RATES) - 1)
    below = above - 1
    return below if rate - RATES[below] < RATES[above] - rate else above


def packed(codes: bytes) -> str:
    """Codes as text, for ConfigMaps and ledgers."""
    return b64encode(zlib.compress(codes, 9)).decode()


def unpacked(text: str | bytes) -> bytes:
    """The inverse; codes stay as they are. Raises ValueError if the text is damaged."""
    if isinstance(text, bytes):
        return text
    try:
        return zlib.decompress(b64decode(text, validate=True))[-MAX_BINS:]
    except zlib.error as error:
        raise ValueError(f"the codes of a work history are damaged: {error}") from None


@dataclass(frozen=True, slots=True, weakref_slot=True)
class WorkHistory:
    """`codes` of consecutive bins, the first of which began at `begin` (as `now`)."""

    begin: float = 0.0
    codes: Annotated[bytes, PlainSerializer(packed), PlainValidator(unpacked)] = b""
    variance: float = 0.0
    mean: float = 0.0

    @property
    def dispersion(self) -> float:
        """The variance of the rates of thirds of bins over their mean, in replica-s/s: about that of one request."""
        return self.variance / self.mean if self.mean > 0 else 0.0

    @property
    def known(self) -> int:
        """How many bins are known."""
        return len(self.codes) - self.codes.count(0)

    def worked(self, least: float) -> int:
        """How many bins had work at this rate at least."""
        return len(self.codes.translate(None, bytes(range(code_of(least)))))

    def segments(self) -> Iterator[list[float]]:
        """The rates of bins without a gap between them, oldest first."""
        for part in self.codes.split(b"\0"):
            if part:
                yield [RATES[code] for code in part]

    def having(self, begin: float, rate: float | None) -> "WorkHistory":
        """With the bin that began then, None where it is not known; bins in between are not known either."""
        return self._with(begin, b"\0" if rate is None else bytes([code_of(rate)]))

    def continued_by(self, recent: "WorkHistory") -> "WorkHistory":
        """With the bins of a later one, that another process has seen; how they vary is known from the longer one."""
        varying = max(self, recent, key=lambda history: history.known)
        joined = self._with(recent.begin, recent.codes) if recent.codes else self
        return replace(joined, variance=varying.variance, mean=varying.mean)

    def _with(self, begin: float, codes: bytes) -> "WorkHistory":
        """With more bins, the first of which began then; alone, if they do not come after these within MAX_BINS."""
        missing = round((begin - self.begin) / BIN_S) - len(self.codes)
        if not self.codes or not 0 <= missing < MAX_BINS:
            return replace(self, begin=begin, codes=codes)
        found = self.codes + bytes(missing) + codes
        dropped = max(len(found) - MAX_BINS, 0)
        return replace(self, begin=self.begin + dropped * BIN_S, codes=found[dropped:])


@dataclass(slots=True)
class WorkMeter:
    """Fills a history from the rates that decisions see."""

    history: WorkHistory = WorkHistory()
    _begin: float | None = None
    _work: list[float] = field(default_factory=lambda: [0.0] * _THIRDS)
    _seconds: list[float] = field(default_factory=lambda: [0.0] * _THIRDS)

    def add(self, now: float, rate: float, passed_s: float) -> None:
        """Work came at this rate in the `passed_s` seconds before `now`."""
        at = now - passed_s / 2
        begin = floor(at / BIN_S) * BIN_S
        if self._begin is not None and begin > self._begin:
            self._close(self._begin)
        if self._begin is None or begin > self._begin:
            self._begin, self._work, self._seconds = begin, [0.0] * _THIRDS, [0.0] * _THIRDS
        third = min(max(int((at - self._begin) / BIN_S * _THIRDS), 0), _THIRDS - 1)
        self._work[third] += rate * passed_s
        self._seconds[third] += passed_s

    def _close(self, begin: float) -> None:
        seconds = fsum(self._seconds)
        known = seconds >= _MIN_SHARE * BIN_S
        rate = fsum(self._work) / seconds if known else None
        self.history = self.history.having(begin, rate)
        if rate is not None and all(self._seconds):
            thirds = [work / passed for work, passed in zip(self._work, self._seconds, strict=True)]
            variance = fsum((third - rate) ** 2 for third in thirds) / (_THIRDS - 1)
            new = max(1 / _DAY_BINS, 1 / self.history.known)
            self.history = replace(
                self.history,
                variance=self.history.variance + new * (variance - self.history.variance),
                mean=self.history.mean + new * (rate - self.history.mean),
            )
