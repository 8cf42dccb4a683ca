"""Where a request's time went in this worker.

The engine reports its own phases with a sequence's last frame. One that ended here first (a stop string) has none, so
its engine time is split at its first token. `post` is the rest of the worker's time: the phases add up to it exactly.
"""

from collections.abc import Mapping, Sequence

from paceline_core.registry import Phase
from paceline_core.telemetry import Histogram
from paceline_workers.messages import Timing, Tokens

Phases = Mapping[Phase, float]


class TokenMeter:
    """What all requests of a worker have in common while tokens come: gaps between them, and a plain count."""

    __slots__ = ("itl", "output", "ttft")

    def __init__(self, ttft: Histogram, itl: Histogram) -> None:
        self.ttft = ttft
        self.itl = itl
        self.output = 0


class Stopwatch:
    """The moments of one request, in monotonic seconds; `first` and `last` are None before any token."""

    def __init__(self, came: float, meter: TokenMeter | None = None) -> None:
        self.came = came
        self.first: float | None = None
        self.last = came
        self._submitted = came
        self._meter = meter

    def submit(self, now: float) -> None:
        """The body is understood and the engine has it."""
        self._submitted = now

    def token(self, now: float) -> None:
        """An answer came; only the first time counts."""
        if self.first is None:
            self.first = now

    def read(self, now: float, frames: Sequence[Tokens]) -> None:
        """Frames came, of one step or of several. The gap since the last ones is shared by the steps."""
        count = len(frames[0].ids) if len(frames) == 1 else sum(len(frame.ids) for frame in frames)
        if not count:
            return
        since, self.last = self.last, now
        meter = self._meter
        if meter is not None:
            meter.output += count
        if self.first is None:
            self.first = now
            if meter is not None:
                meter.ttft.observe(now - self.came)
        elif meter is not None:
            sequences = 1 if len(frames) == 1 else len({frame.id for frame in frames})
            meter.itl.observe((now - since) * sequences / count)

    def phases(self, now: float, timing: Timing | None) -> Phases:
        """Seconds by phase from the request's headers to `now`."""
        first = self.first or now
        engine = timing or Timing(queue=0.0, batch_wait=0.0, prefill=first - self._submitted, decode=now - first)
        known = {
            Phase.TOKENIZE: self._submitted - self.came,
            Phase.QUEUE: engine.queue,
            Phase.BATCH_WAIT: engine.batch_wait,
            Phase.PREFILL: engine.prefill,
            Phase.DECODE: engine.decode,
        }
        return known | {Phase.POST: max(now - self.came - sum(known.values()), 0.0)}


def server_timing(spent: Phases) -> str:
    """The value of the `Server-Timing` header, in milliseconds as its standard wants."""
    return ", ".join(f"{phase.value};dur={value * 1000:.3f}" for phase, value in spent.items())
