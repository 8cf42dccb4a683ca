"""What of a stream its client has, kept raw: comment lines as they came, read only when it must go on elsewhere.

Invariant: the lines are exactly the comments whose events were passed on, in order. Above `limit` bytes, and after
anything that contradicts itself, nothing is kept and the stream cannot be resumed.

What it takes to go on with a request's stream at another worker: what was told, and how a loss looks to the machine.
"""

import re
from dataclasses import replace

from paceline_core.json_limits import CHOICES_PER_REQUEST
from paceline_core.registry.enums import AbortReason, ResumeReason
from paceline_core.wire import Resume, ResumedChoice, encode
from paceline_gateway.http.connection_pool import DisconnectReason
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.request import events as e
from paceline_gateway.request.group_testing import SuspectGroup
from paceline_gateway.routing.worker import Worker
from paceline_gateway.routing.worker_pool import WorkerPool

BEGINNING = 512
_IDENTITY = re.compile(rb'"id":\s*"([^"\\]{1,128})"')
_CREATED = re.compile(rb'"created(?:_at)?":\s*(\d{1,15})\b')


class StreamJournal:
    """One stream, over all workers that had a part in it."""

    __slots__ = ("_beginning", "_limit", "_lines", "abort_reason")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines = bytearray()
        self._beginning = b""
        self.abort_reason: AbortReason | None = None
        """Why the stream cannot be resumed, if that is known already."""

    def begin(self, first: bytes) -> None:
        """The first events, which name the stream."""
        if not self._beginning:
            self._beginning = first[:BEGINNING]

    def add(self, line: bytes) -> None:
        """A comment whose events are passed on."""
        if self.abort_reason is None:
            self._lines += line
            if len(self._lines) > self._limit:
                self.give_up(AbortReason.JOURNAL_OVERFLOW)

    def give_up(self, why: AbortReason) -> None:
        """Keep nothing more."""
        self.abort_reason = why
        self._lines = bytearray()

    def resume(self) -> Resume | None:
        """The stream so far; None where it cannot be resumed, and `abort_reason` says why."""
        if self.abort_reason is None:
            identity, created = _IDENTITY.search(self._beginning), _CREATED.search(self._beginning)
            choices = _choices(self._lines.splitlines())
            if identity and choices and (created or b"message_start" in self._beginning):
                return Resume(id=identity[1].decode(), created=int(created[1]) if created else 0, choices=choices)
            self.give_up(AbortReason.INCONSISTENT)
        return None


def _choices(lines: list[bytearray]) -> list[ResumedChoice]:
    """Empty unless each choice's ids begin at 0 and have no gap.

    Ids that brought no event may come a second time: a worker that goes on may generate them anew.
    """
    ids_of: dict[int, list[int]] = {}
    delivered: dict[int, int] = {}
    ended: set[int] = set()
    try:
        for choice, position, ids, events, last in map(_read, lines):
            so_far = ids_of.setdefault(choice, [])
            if not delivered.get(choice, 0) <= position <= len(so_far) or choice >= CHOICES_PER_REQUEST:
                return []
            so_far[position:] = ids
            if events:
                delivered[choice] = len(so_far)
            if last:
                ended.add(choice)
    except ValueError:
        return []
    numbers = range(max(ids_of, default=-1) + 1)
    return [_choice(ids_of.get(at, []), delivered.get(at), ended=at in ended) for at in numbers]


def _choice(ids: list[int], delivered: int | None, *, ended: bool) -> ResumedChoice:
    """Without `delivered` where it says nothing more: all of some ids, or no event at all."""
    if ids and (delivered := delivered or 0) == len(ids):
        delivered = None
    return ResumedChoice(ids=ids, ended=ended, delivered=delivered)


def _read(line: bytearray) -> tuple[int, int, list[int], int, bool]:
    fields = bytes(line[2:]).split()
    choice, (position, ids, *rest) = (0, fields[1:]) if fields[0] == b"p" else (int(fields[1]), fields[2:])
    new = [] if ids == b"-" else [int(token) for token in ids.split(b",")]
    return choice, int(position), new, int(rest[0]) if rest else 1, b"end" in rest


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
    """One request's. `journal` is None while its stream could not be resumed anyway; `message` is a resumption's body.

    `vocabulary`: what the stream's ids mean, as the worker said that began it. `earlier`: the workers that were lost,
    each with the output tokens there were by then.
    """

    __slots__ = ("_limit", "_prompt_tokens", "earlier", "journal", "message", "vocabulary")

    def __init__(self, limit: int, prompt_tokens: int) -> None:
        self._limit = limit
        self._prompt_tokens = prompt_tokens
        self.journal: StreamJournal | None = None
        self.message = b""
        self.vocabulary = b""
        self.earlier: list[tuple[Worker, int]] = []

    def restart(self) -> None:
        """Nothing of it has reached the client."""
        self.journal = StreamJournal(self._limit)

    def tokens(self, output: int) -> int:
        """What another worker would have to compute to go on, after so many output tokens."""
        return self._prompt_tokens + output

    def abort_reason(self) -> AbortReason | None:
        """What keeps the stream from going on elsewhere; None if nothing does, and then `message` is how."""
        if self.journal is None:
            return AbortReason.UNSUPPORTED_RUNTIME
        resume = self.journal.resume()
        if resume is not None:
            self.message = encode(resume.model_copy(update={"vocabulary": self.vocabulary.decode("latin-1")}))
        return self.journal.abort_reason

    def lost(
        self, loss: DisconnectReason, moved: ResumeReason | None, part: SuspectGroup | None, *, begun: bool
    ) -> e.Lost:
        """The event for a worker's answer that broke off; `part`: because the worker has died."""
        lost = _LOST[loss] if moved is None else _MOVED.get(moved, _LOST[loss])
        if part is not None:
            lost = replace(lost, harmless=False, suspect=True, part=part)
        return replace(lost, abort=self.abort_reason()) if begun else lost

    def requeue(self, ticket: QueuedRequest, output: int, fleet: WorkerPool, worker: Worker) -> None:
        """What was told is part of the prompt now, and better not read by another revision's model."""
        ticket.resumed = True
        self.earlier.append((worker, output))
        ticket.prompt_tokens = self.tokens(output)
        others = {other.name for other in fleet if other.endpoint.revision != worker.endpoint.revision}
        ticket.avoid |= others
