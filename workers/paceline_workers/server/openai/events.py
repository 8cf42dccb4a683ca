"""A streamed answer as bytes, one write per batch of tokens: opening, text, finish reason, usage, `[DONE]`."""

from msgspec import UNSET, UnsetType

from paceline_workers.server import sse
from paceline_workers.server.openai.answers import Usage
from paceline_workers.server.openai.jobs import Job
from paceline_workers.server.output import Piece
from paceline_workers.server.phases import Phases


class Events:
    """One stream. Comments (positions, usage, phases) are written for a trusted caller alone, who strips them."""

    def __init__(self, job: Job, *, trusted: bool) -> None:
        self._job = job
        self._writer = job.writer
        self._trusted = trusted
        self._opened = False

    def piece(self, piece: Piece) -> bytes:
        """The events of a piece; with the first one, what comes before any text."""
        shape = self._writer.shape
        events = sse.position(piece) if self._trusted else b""
        if piece.text:
            events += self._event([shape.delta(piece)])
        if piece.finish:
            events += self._event([shape.closing(piece.finish)])
        opening, self._opened = ([] if self._opened else shape.opening()), True
        return self._event(opening) + events if opening else events

    def end(self, spent: Phases) -> bytes:
        """What follows the finish reason."""
        usage = self._job.usage()
        asked = sse.event(self._writer.chunk([], usage)) if self._job.options.include_usage else b""
        comments = sse.comment("usage", usage) + sse.comment("phases", spent) if self._trusted else b""
        return asked + comments + sse.DONE

    def _event(self, choices: list[object]) -> bytes:
        return sse.event(self._writer.chunk(choices, self._usage()))

    def _usage(self) -> Usage | UnsetType | None:
        options = self._job.options
        if not options.include_usage:
            return UNSET
        return self._job.usage() if options.continuous_usage_stats else None
