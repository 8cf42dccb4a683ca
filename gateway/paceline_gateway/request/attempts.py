"""Limits on repeated attempts.

`Resumption`: how often and how long a stream that lost its worker may look for another one, and the time that its
earlier workers spent. Only losses held against a request count towards RESUMES: one whose connections break again and
again must end, one that scale-downs move need not. Deaths of workers are counted in `group_testing`. There is no other
budget, because each stream was accepted once already.

`RetryBudget`: retries of a service may be only a share of its requests, so that they cannot feed an overload. It is a
sliding window of ten seconds in one-second steps. It always allows `min_retries`; otherwise a service with little
traffic could not survive the death of one worker.
"""

from collections import deque

from paceline_core.registry.enums import AbortReason, ResumeReason
from paceline_gateway.request.types import WorkerPhases

WINDOW_S = 10
MIN_RETRIES = 100


class RetryBudget:
    """Counts requests and retries by the second."""

    def __init__(self, share: float, min_retries: int = MIN_RETRIES) -> None:
        self._share = share
        self._min_retries = min_retries
        self._seconds: deque[list[int]] = deque()  # [second, requests, retries]

    def request(self, now: float) -> None:
        self._second(now)[1] += 1

    def take(self, now: float) -> bool:
        """Whether one more retry is allowed now; if so, it is counted."""
        second = self._second(now)
        requests = sum(entry[1] for entry in self._seconds)
        retries = sum(entry[2] for entry in self._seconds)
        allowed = retries + 1 <= max(self._min_retries, self._share * requests)
        second[2] += allowed
        return allowed

    def _second(self, now: float) -> list[int]:
        second = int(now)
        while self._seconds and self._seconds[0][0] <= second - WINDOW_S:
            self._seconds.popleft()
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append([second, 0, 0])
        return self._seconds[-1]


RESUMES = 3


class Resumption:
    """The losses of one stream. `deadline` and `reason` are those of a loss from which it has not resumed yet."""

    __slots__ = ("_heard", "_losses", "count", "deadline", "decode", "prefill", "reason")

    def __init__(self) -> None:
        self._losses = 0
        self._heard: float | None = None
        self.count = 0
        self.deadline = 0.0
        self.reason = ResumeReason.CONNECTION
        self.prefill = 0.0
        self.decode = 0.0

    @property
    def earlier(self) -> WorkerPhases:
        """Time spent by the lost workers."""
        return WorkerPhases(prefill=self.prefill, decode=self.decode)

    def lost(self, reason: ResumeReason, heard: float, deadline: float) -> None:
        """A worker is lost; its last tokens came at `heard`."""
        if self._heard is None:
            self._heard, self.reason, self.deadline = heard, reason, deadline

    def refusal(self, *, harmless: bool, now: float) -> AbortReason | None:
        """Count the loss; returns why the stream must end, or None."""
        self._losses += not harmless
        if self._losses > RESUMES:
            return AbortReason.MAX_ATTEMPTS
        return AbortReason.DEADLINE_EXCEEDED if now >= self.deadline else None

    def began(self, now: float) -> float:
        """The stream resumed; returns the gap in seconds."""
        heard, self._heard = self._heard, None
        self.count += 1
        return now - (now if heard is None else heard)

    def spent(self, sent: float, begun: float, lost: float) -> None:
        """Add the times of a worker that is lost now."""
        self.prefill += begun - sent
        self.decode += lost - begun
