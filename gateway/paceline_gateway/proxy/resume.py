"""Resumption of a stream at another worker: the text so far, and what a loss means to the request machine."""

from dataclasses import replace

from paceline_core.registry.enums import AbortReason, ResumeReason
from paceline_core.wire import encode
from paceline_gateway.http.connection_pool import DisconnectReason
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.request import events as e
from paceline_gateway.request.group_testing import SuspectGroup
from paceline_gateway.request.sse_scanner import StreamJournal
from paceline_gateway.routing.worker import Worker
from paceline_gateway.routing.worker_pool import WorkerPool

NO_STREAM = 502
"""The status for a worker that was to resume a stream and answered without a stream."""

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
    """The resumption of one request. `journal` is None while its stream cannot be resumed; `message` is a resumption's
    body.

    `vocabulary`: what the stream's ids mean, from the worker that began it. `earlier`: the workers that were lost, each
    with the number of output tokens by then.
    """

    __slots__ = ("earlier", "journal", "message", "prompt_tokens", "vocabulary")

    def __init__(self, prompt_tokens: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.journal: StreamJournal | None = None
        self.message = b""
        self.vocabulary = b""
        self.earlier: list[tuple[Worker, int]] = []

    def abort_reason(self) -> AbortReason | None:
        """Why the stream cannot resume at another worker; None if it can, and then `message` is set."""
        if self.journal is None:
            return AbortReason.UNSUPPORTED_RUNTIME
        resume = self.journal.resume()
        if resume is not None:
            self.message = encode(resume.model_copy(update={"vocabulary": self.vocabulary.decode("latin-1")}))
        return self.journal.abort_reason

    def lost(
        self, loss: DisconnectReason, moved: ResumeReason | None, part: SuspectGroup | None, *, begun: bool
    ) -> e.Lost:
        """The event for a worker's answer that broke off; `part` is set if the worker died."""
        lost = _LOST[loss] if moved is None else _MOVED.get(moved, _LOST[loss])
        if part is not None:
            lost = replace(lost, harmless=False, suspect=True, part=part)
        return replace(lost, abort=self.abort_reason()) if begun else lost

    def requeue(self, queued: QueuedRequest, output: int, pool: WorkerPool, worker: Worker) -> None:
        """Count the text so far as prompt, and avoid workers of another revision for it."""
        self.earlier.append((worker, output))
        others = (other.name for other in pool if other.endpoint.revision != worker.endpoint.revision)
        queued.resume(self.prompt_tokens + output, others)
