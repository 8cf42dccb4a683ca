"""Where a request's time went in this worker.

The engine reports its own phases with a sequence's last frame. One that ended here first (a stop string) has none, so
its engine time is split at its first token. `post` is the rest of the worker's time: the phases add up to it exactly.
"""

from collections.abc import Mapping

from paceline_core.registry import Phase
from paceline_workers.messages import Timing

Phases = Mapping[Phase, float]


class Stopwatch:
    """The moments of one request, in monotonic seconds."""

    def __init__(self, came: float) -> None:
        self._came = came
        self._submitted = came
        self._first: float | None = None

    def submit(self, now: float) -> None:
        """The body is understood and the engine has it."""
        self._submitted = now

    def token(self, now: float) -> None:
        """Tokens came; only the first time counts."""
        if self._first is None:
            self._first = now

    def phases(self, now: float, timing: Timing | None) -> Phases:
        """Seconds by phase from the request's headers to `now`."""
        first = self._first or now
        engine = timing or Timing(queue=0.0, batch_wait=0.0, prefill=first - self._submitted, decode=now - first)
        known = {
            Phase.TOKENIZE: self._submitted - self._came,
            Phase.QUEUE: engine.queue,
            Phase.BATCH_WAIT: engine.batch_wait,
            Phase.PREFILL: engine.prefill,
            Phase.DECODE: engine.decode,
        }
        return known | {Phase.POST: max(now - self._came - sum(known.values()), 0.0)}


def server_timing(spent: Phases) -> str:
    """The value of the `Server-Timing` header, in milliseconds as its standard wants."""
    return ", ".join(f"{phase.value};dur={value * 1000:.3f}" for phase, value in spent.items())
