"""What it takes to go on with a call's stream at another worker: what was told, and how a loss looks to the machine."""

from dataclasses import replace

from paceline_core.registry.enums import CutReason, ResumeReason
from paceline_core.wire import encode
from paceline_gateway.http.upstream import DisconnectReason
from paceline_gateway.queues.ticket import QueuedRequest
from paceline_gateway.requests import events as e
from paceline_gateway.requests.suspicion import SuspectGroup
from paceline_gateway.requests.told import StreamJournal
from paceline_gateway.routing.fleet import WorkerPool
from paceline_gateway.routing.worker import Worker

NO_STREAM = 502
"""What a worker's answer is that should have been the rest of a stream and is no stream."""

_LOST = {
    DisconnectReason.STALE: e.Lost(harmless=True, suspect=False),
    DisconnectReason.REFUSED: e.Lost(harmless=True),
    DisconnectReason.CLOSED: e.Lost(),
    DisconnectReason.INVALID: e.Lost(),
}
_MOVED = {
    ResumeReason.ENGINE: e.Lost(reason=ResumeReason.ENGINE),
    ResumeReason.DRAIN: e.Lost(harmless=True, suspect=False, reason=ResumeReason.DRAIN),
    ResumeReason.EVACUATE: e.Lost(harmless=True, suspect=False, reason=ResumeReason.EVACUATE),
}


class ResumeState:
    """One call's. `told` is None while its stream could not be resumed anyway; `message` is what a resumption sends.

    `vocabulary`: what the stream's ids mean, as the worker said that began it. `earlier`: the workers that were lost,
    each with the output tokens there were by then.
    """

    __slots__ = ("_limit", "_prompt_tokens", "earlier", "message", "told", "vocabulary")

    def __init__(self, limit: int, prompt_tokens: int) -> None:
        self._limit = limit
        self._prompt_tokens = prompt_tokens
        self.told: StreamJournal | None = None
        self.message = b""
        self.vocabulary = b""
        self.earlier: list[tuple[Worker, int]] = []

    def restart(self) -> None:
        """Nothing of it has reached the client."""
        self.told = StreamJournal(self._limit)

    def tokens(self, output: int) -> int:
        """What another worker would have to compute to go on, after so many output tokens."""
        return self._prompt_tokens + output

    def cut(self) -> CutReason | None:
        """What keeps the stream from going on elsewhere; None if nothing does, and then `message` is how."""
        if self.told is None:
            return CutReason.FOREIGN
        resume = self.told.resume()
        if resume is not None:
            self.message = encode(resume.model_copy(update={"vocabulary": self.vocabulary.decode("latin-1")}))
        return self.told.cut

    def lost(
        self, loss: DisconnectReason, moved: ResumeReason | None, part: SuspectGroup | None, *, begun: bool
    ) -> e.Lost:
        """The event for a worker's answer that broke off; `part`: because the worker has died."""
        lost = _LOST[loss] if moved is None else _MOVED.get(moved, _LOST[loss])
        if part is not None:
            lost = replace(lost, harmless=False, suspect=True, part=part)
        return replace(lost, cut=self.cut()) if begun else lost

    def carry(self, ticket: QueuedRequest, output: int, fleet: WorkerPool, worker: Worker) -> None:
        """What was told is part of the prompt now, and better not read by another revision's model."""
        ticket.resumed = True
        self.earlier.append((worker, output))
        ticket.prompt_tokens = self.tokens(output)
        others = {other.name for other in fleet if other.endpoint.revision != worker.endpoint.revision}
        ticket.avoid |= others
