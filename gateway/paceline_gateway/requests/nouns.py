"""What a request is, and what is left of it when it has ended."""

from dataclasses import dataclass
from typing import NamedTuple

from paceline_core.errors import Code
from paceline_core.registry.enums import CutReason, Outcome, RequestClass


@dataclass(slots=True)
class TokenUsage:
    """Tokens as the answer reveals them; filled in while it passes, final when it ends.

    `counted`: the worker has said how many output tokens there are.
    """

    prompt: int = 0
    cached: int = 0
    output: int = 0
    counted: bool = False
    worker: "WorkerPhases | None" = None


class WorkerPhases(NamedTuple):
    """Seconds that the worker reports of its part."""

    tokenize: float = 0.0
    queue: float = 0.0
    batch_wait: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0
    post: float = 0.0

    @property
    def total(self) -> float:
        """All of the worker's time."""
        return self.tokenize + self.queue + self.batch_wait + self.prefill + self.decode + self.post


class RequestTerms(NamedTuple):
    """What a request was admitted under. Times in seconds, `hold_s` for waiting in the gateway.

    `promised`: its class's promises are about it. `onward`: its route has further destinations.
    """

    service: str
    request_class: RequestClass
    stream: bool
    prompt_tokens: int
    hold_s: float
    attempts: int
    promised: bool = True
    onward: bool = False


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a dispatched request may stay silent: to a stream's first token, inside it, a whole answer."""

    first_token_s: float
    stall_s: float
    answer_s: float
    resume_s: float = 60.0
    """From the loss of a stream's worker to its next token from another one."""


class RequestRecord(NamedTuple):
    """A request that has ended. Times are monotonic seconds; those of things that never happened are None.

    `received` is the last byte of the body, `first` the first content handed to the client, `ended` the last byte.
    `sent` is the dispatch that led to the answer, `queued` the moment of admission. A stream that had to go on at
    another worker was `resumed` so often: then `sent` is the last dispatch, `again` the first content of it, and
    `earlier` the time that other workers spent on what the client has. `cut`: why it could not go on. `diverted`: how
    often it went on to another destination of its route; `terms` are those of the last one.
    """

    outcome: Outcome
    status: int
    code: Code | None
    tenant: str
    terms: RequestTerms | None
    received: float
    queued: float | None
    sent: float | None
    first: float | None
    ended: float
    attempts: int
    worker: str
    meter: TokenUsage
    resumed: int = 0
    again: float | None = None
    earlier: WorkerPhases = WorkerPhases()
    cut: CutReason | None = None
    diverted: int = 0

    @property
    def e2e(self) -> float:
        """Body read to last byte handed over, seconds."""
        return self.ended - self.received

    @property
    def waited(self) -> float | None:
        """Seconds in the gateway's queue; None if it never reached a worker."""
        return None if self.sent is None or self.queued is None else self.sent - self.queued - self.earlier.total

    @property
    def ttft(self) -> float | None:
        """Body read to first content; None for answers that did not stream or never began."""
        streamed = self.terms is not None and self.terms.stream
        return self.first - self.received if streamed and self.first is not None else None

    @property
    def tpot(self) -> float | None:
        """(last - first) / (n - 1) over n >= 2 output tokens of a stream."""
        if self.ttft is None or self.first is None or self.meter.output < 2:
            return None
        return (self.ended - self.first) / (self.meter.output - 1)
