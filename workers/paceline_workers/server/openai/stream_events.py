"""A streamed answer as bytes, one write per batch of tokens: opening, text, finish reason, usage, `[DONE]`."""

from collections.abc import Iterable
from dataclasses import replace

from msgspec import UNSET, UnsetType

from paceline_workers.server.http import sse
from paceline_workers.server.openai.jobs import GenerationJob
from paceline_workers.server.openai.response_writer import Usage
from paceline_workers.server.phases import Phases
from paceline_workers.server.text.output import Piece


class Events:
    """One stream. Comments (positions, usage, phases) are written for a trusted caller alone, who strips them."""

    def __init__(self, job: GenerationJob, *, trusted: bool) -> None:
        self._job = job
        self._trusted = trusted
        self._began = False
        self._opened = {index for index, choice in enumerate(job.choices) if choice.opened}

    def pieces(self, pieces: Iterable[tuple[int, Piece]]) -> bytes:
        """The events of what came for some choices; with a choice's first one, what comes before any text."""
        return self._beginning() + b"".join(self._piece(index, piece) for index, piece in pieces)

    def end(self, spent: Phases) -> bytes:
        """What follows the last finish reason."""
        usage = self._job.usage()
        ending = self._job.writer.ending(usage, asked=self._job.options.include_usage)
        comments = sse.comment("usage", usage) + sse.comment("phases", spent) if self._trusted else b""
        return comments + ending + sse.DONE

    def _beginning(self) -> bytes:
        """What its prompt is, once."""
        if self._began or not self._trusted:
            return b""
        self._began = True
        usage = self._job.usage()
        return sse.prompt(usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens)

    def _piece(self, index: int, piece: Piece) -> bytes:
        shape = self._job.choices[index].shape
        opening = [] if index in self._opened else shape.opening()
        self._opened.add(index)
        writer = self._job.writer
        begin = writer.events(opening, self._usage(), opening=True)
        events = [event for choice in shape.chunks(piece) for event in writer.events([choice], self._usage())]
        if begin and not events:  # the opening brings none of the ids
            begin = [self._position(index, replace(piece, ids=[]), len(begin)), *begin]
            return b"".join((*begin, self._position(index, piece, 0)))
        return b"".join((self._position(index, piece, len(begin) + len(events)), *begin, *events))

    def _position(self, index: int, piece: Piece, events: int) -> bytes:
        if not self._trusted:
            return b""
        alone = len(self._job.choices) == 1
        return sse.position(piece, events) if alone else sse.choice_position(index, piece, events)

    def _usage(self) -> Usage | UnsetType | None:
        options = self._job.options
        if not options.include_usage:
            return UNSET
        return self._job.usage() if options.continuous_usage_stats else None
