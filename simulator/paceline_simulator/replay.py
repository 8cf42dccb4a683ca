"""The part of a request log that is played, and how many times at once: the same for a simulation and over HTTP.

One copy is played as it was logged. Several start at random phases, so that their bursts do not coincide, or as a crowd
within seconds of each other, so that they do; each repeats from its end. Time is never compressed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random

from paceline_core.errors import InvalidInput
from paceline_simulator.traces import TraceRequest, spread
from paceline_simulator.workloads import copies, window


@dataclass(frozen=True, slots=True)
class Replay:
    """`times` copies of a log's `span_s` seconds (None: all that follow) from `start_s` on.

    `crowd_s`: the deviation of the copies' starts in seconds; None: at random phases. Raises InvalidInput.
    """

    times: int = 1
    crowd_s: float | None = None
    start_s: float = 0.0
    span_s: float | None = None

    def __post_init__(self) -> None:
        if self.times < 1:
            raise InvalidInput("--times", f"{self.times} copies offer nothing; use 1 or more")
        if self.crowd_s is not None and self.times == 1:
            raise InvalidInput("--crowd", "shifts copies of the trace; add --times with 2 or more")
        if self.span_s == 0:
            raise InvalidInput("--span", "is 0; use a longer part of the trace")

    def requests(self, trace: Sequence[TraceRequest], seed: int) -> list[TraceRequest]:
        """The requests in the order of arrival, from 0 s on; one copy is equal for all seeds. Raises InvalidInput."""
        even = spread(trace)
        if self.times == 1:
            rows, _ = window(even, self.start_s, self._end_s)
            return [replace(request, at=request.at - self.start_s) for request in rows]
        random = Random(seed)  # noqa: S311 - a repeatable workload, no secret
        return copies(even, self.times, random, start_s=self.start_s, end_s=self._end_s, crowd_s=self.crowd_s)

    def seconds(self, trace: Sequence[TraceRequest]) -> float:
        """How long the replay offers requests. Raises InvalidInput if that part of the trace is empty."""
        return window(trace, self.start_s, self._end_s)[1]

    @property
    def _end_s(self) -> float:
        return inf if self.span_s is None else self.start_s + self.span_s
