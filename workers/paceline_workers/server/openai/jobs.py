"""One parsed request: what the engine receives for it, and how its answer is written, whole or as events."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from paceline_core.registry import Phase
from paceline_workers.messages import Started, Submit
from paceline_workers.server.http.caller import Caller
from paceline_workers.server.openai.requests import StreamOptions
from paceline_workers.server.openai.response_writer import (
    AnswerWriter,
    CachedTokens,
    OutputDetails,
    ResponseShape,
    Usage,
)
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.text.output import Piece, TextOutput

P = TypeVar("P")
INLINE = 1024
"""Scored prompt tokens, or scores of an answer, that the event loop serializes itself: this takes some milliseconds."""


async def at_once() -> None:
    """Returns without waiting for a turn."""


@dataclass(frozen=True, slots=True)
class JobInput:
    """One request as received, and the engine that serves it."""

    body: bytes
    caller: Caller
    started: Started
    turn: Callable[[], Awaitable[None]] = at_once
    """Waits for a turn of the event loop without other long work."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer of a request: what the engine receives for it, and how its tokens become text and events.

    `finish`: why it had already ended before the stream was resumed, "" if it had not; `sent`: the client has the
    finish reason. `opened`: the client has the events that come before the text.
    """

    submit: Submit
    output: TextOutput
    shape: ResponseShape
    finish: str = ""
    sent: bool = False
    opened: bool = False


@dataclass(frozen=True, slots=True)
class GenerationJob:
    """`each`: candidates for each prompt in `choices`; the answer contains the `best` of them.

    `long`: there are so many prompt scores to serialize that a thread does it.
    """

    choices: tuple[Choice, ...]
    writer: AnswerWriter
    stream: bool
    options: StreamOptions
    each: int
    best: int
    long: bool

    def usage(self) -> Usage:
        """Token counts so far: each prompt counts once, with the cached tokens of its first choice."""
        firsts = [(len(choice.submit.prompt), choice.output.cached) for choice in self.choices[:: self.each]]
        prompt, cached = sum(length for length, _ in firsts), sum(min(length, found) for length, found in firsts)
        outputs = [choice.output for choice in self.choices]
        tokens = sum(output.tokens for output in outputs)
        details: OutputDetails | UnsetType = UNSET
        if any(output.reasons for output in outputs):
            details = OutputDetails(sum(output.reasoning_tokens for output in outputs))
        return Usage(prompt, tokens, prompt + tokens, CachedTokens(cached), details)

    def whole(self, pieces: Sequence[Sequence[Piece]]) -> bytes:
        """The body of an answer that is not streamed, from all pieces of every choice."""
        answers: list[object] = []
        for start in range(0, len(self.choices), self.each):
            candidates = pieces[start : start + self.each]
            kept = candidates if self.best == self.each else best(candidates, self.best)
            answers += [choice.shape.whole(own) for choice, own in zip(self.choices[start:], kept, strict=False)]
        return self.writer.body(answers, self.usage())


MakeJob = Callable[[ServedModel, JobInput], Coroutine[Any, Any, GenerationJob]]
"""Makes a job from a route's body. Raises RequestError."""


def best(candidates: Sequence[Sequence[Piece]], count: int) -> list[Sequence[Piece]]:
    """The `count` candidates with the highest mean logprob per token, best first, as OpenAI specifies; ties keep order.

    The token that stops is not part of the text, so it does not count; a candidate of no other tokens is last. Pure.
    """

    def mean(candidate: Sequence[Piece]) -> float:
        values = [value for piece in candidate for value, _ in piece.logprobs]
        return sum(values) / len(values) if values else -inf

    return sorted(candidates, key=mean, reverse=True)[:count]


async def written(
    write: Callable[[P], bytes], pieces_by_choice: P, pieces: Iterable[Piece], *, long: bool = False
) -> bytes:
    """The result of `write` for `pieces_by_choice`; `pieces` are the pieces in it.

    Runs in a thread if the scores of a prompt (`long`) or of an answer make it slow, so that the loop stays free.
    """
    long = long or sum(1 + len(candidates) for piece in pieces for _, candidates in piece.logprobs) > INLINE
    return await asyncio.to_thread(write, pieces_by_choice) if long else write(pieces_by_choice)


@dataclass(slots=True)
class Events:
    """A streamed answer as bytes, one write per batch of tokens: opening, text, finish reason, usage, `[DONE]`.

    Only a trusted caller gets comments; it strips them. Each comment comes right before its events, in the same write.
    `: prompt <tokens> <cached>` gives the prompt's size before the first event, so that a client that cuts the stream
    short still pays for it. `: p <position> <ids>` gives the output tokens of the next events, for a gateway that may
    resume the stream; with several choices it is `: c <choice> <position> <ids>`. The comment ends with the number of
    its events unless that is one, and with `end` if the finish reason is among them.
    """

    job: GenerationJob
    trusted: bool
    began: bool = False
    opened: set[int] = field(default_factory=set)

    def pieces(self, pieces: Iterable[tuple[int, Piece]]) -> bytes:
        """The events for new pieces of some choices; a choice's first piece comes after its opening."""
        prompt = b""
        if self.trusted and not self.began:
            self.began, usage = True, self.job.usage()
            prompt = b": prompt %d %d\n" % (usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens)
        return prompt + b"".join(self._piece(index, piece) for index, piece in pieces)

    def end(self, spent: Mapping[Phase, float]) -> bytes:
        """The events after the last finish reason."""
        usage, comments = self.job.usage(), b""
        if self.trusted:
            encode = msgspec.json.encode
            comments = b": usage " + encode(usage) + b"\n: phases " + encode(spent) + b"\n"
        return comments + self.job.writer.ending(usage, asked=self.job.options.include_usage) + b"data: [DONE]\n\n"

    def _piece(self, index: int, piece: Piece) -> bytes:
        choice, job, writer = self.job.choices[index], self.job, self.job.writer
        usage: Usage | UnsetType | None = UNSET
        opening = [] if choice.opened or index in self.opened else choice.shape.opening()
        self.opened.add(index)
        chunks = choice.shape.chunks(piece)
        if job.options.include_usage:
            usage = job.usage() if job.options.continuous_usage_stats else None
        begin = writer.events(opening, usage, opening=True)
        events = [event for chunk in chunks for event in writer.events([chunk], usage)]
        if not self.trusted:
            return b"".join((*begin, *events))
        name = "p" if len(job.choices) == 1 else f"c {index}"
        # an opening on its own carries none of the ids
        steps = [([], begin), (piece.ids, [])] if begin and not events else [(piece.ids, [*begin, *events])]
        data = b""
        for ids, parts in steps:
            counted = f" {len(parts)} end" if piece.finish else "" if len(parts) == 1 else f" {len(parts)}"
            comment = f": {name} {piece.position} {','.join(map(str, ids)) or '-'}{counted}\n"
            data += comment.encode() + b"".join(parts)
        return data
