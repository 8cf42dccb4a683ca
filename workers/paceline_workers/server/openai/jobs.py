"""One request, understood: what the engine gets for it, and how its answer is written, whole or as events."""

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
"""Tokens of scored prompts, or scores of an answer, that are written down at once: some milliseconds."""


async def at_once() -> None:
    """No turn is waited for."""


@dataclass(frozen=True, slots=True)
class JobInput:
    """One request as it came, and the engine it came to."""

    body: bytes
    caller: Caller
    started: Started
    turn: Callable[[], Awaitable[None]] = at_once
    """Returns in a turn of the loop that has no other long work."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer of a request: what the engine gets for it, and how its tokens become text and events.

    `finish`: it had ended in an earlier life of its stream, and why; `sent`: the client knows. `opened`: the client has
    the events that come before its text.
    """

    submit: Submit
    output: TextOutput
    shape: ResponseShape
    finish: str = ""
    sent: bool = False
    opened: bool = False


@dataclass(frozen=True, slots=True)
class GenerationJob:
    """`each` prompt has so many of the `choices` in turn, of which the `best` are told.

    `long`: scores of long prompts are to be written down.
    """

    choices: tuple[Choice, ...]
    writer: AnswerWriter
    stream: bool
    options: StreamOptions
    each: int
    best: int
    long: bool

    def usage(self) -> Usage:
        """Token counts so far: each prompt once, as its first choice found it cached."""
        firsts = [(len(choice.submit.prompt), choice.output.cached) for choice in self.choices[:: self.each]]
        prompt, cached = sum(length for length, _ in firsts), sum(min(length, found) for length, found in firsts)
        outputs = [choice.output for choice in self.choices]
        tokens = sum(output.tokens for output in outputs)
        details: OutputDetails | UnsetType = UNSET
        if any(output.reasons for output in outputs):
            details = OutputDetails(sum(output.reasoning_tokens for output in outputs))
        return Usage(prompt, tokens, prompt + tokens, CachedTokens(cached), details)

    def whole(self, pieces: Sequence[Sequence[Piece]]) -> bytes:
        """The body of an answer that is not streamed, from all pieces of each choice."""
        answers: list[object] = []
        for start in range(0, len(self.choices), self.each):
            candidates = pieces[start : start + self.each]
            kept = candidates if self.best == self.each else best(candidates, self.best)
            answers += [choice.shape.whole(own) for choice, own in zip(self.choices[start:], kept, strict=False)]
        return self.writer.body(answers, self.usage())


MakeJob = Callable[[ServedModel, JobInput], Coroutine[Any, Any, GenerationJob]]
"""What makes jobs of a route's bodies. Raises RequestError."""


def best(candidates: Sequence[Sequence[Piece]], count: int) -> list[Sequence[Piece]]:
    """The `count` candidates with the highest mean logprob of their tokens, best first, as OpenAI says; ties in order.

    The token that stops is no part of a text, so it does not count; a candidate of nothing else is the worst. Pure.
    """

    def mean(candidate: Sequence[Piece]) -> float:
        values = [value for piece in candidate for value, _ in piece.logprobs]
        return sum(values) / len(values) if values else -inf

    return sorted(candidates, key=mean, reverse=True)[:count]


async def written(
    write: Callable[[P], bytes], pieces_by_choice: P, pieces: Iterable[Piece], *, long: bool = False
) -> bytes:
    """What `write` makes of `pieces_by_choice`, which holds `pieces`.

    In a thread where the scores of a prompt (`long`) or of an answer make it long, so that others get turns.
    """
    long = long or sum(1 + len(candidates) for piece in pieces for _, candidates in piece.logprobs) > INLINE
    return await asyncio.to_thread(write, pieces_by_choice) if long else write(pieces_by_choice)


@dataclass(slots=True)
class Events:
    """A streamed answer as bytes, one write per batch of tokens: opening, text, finish reason, usage, `[DONE]`.

    Comments are written for a trusted caller alone, who strips them. Each stands right before its events, and travels
    in one write with them. `: prompt <tokens> <cached>` is the request's prompt, before its first event, so that who
    cuts the stream short pays it. `: p <position> <ids>` says which output tokens the next events bring, for a gateway
    that may have to resume here, `: c <choice> <position> <ids>` the same where a request has several choices. How many
    events that are is told where it is not one, and `end` where the finish reason is among them.
    """

    job: GenerationJob
    trusted: bool
    began: bool = False
    opened: set[int] = field(default_factory=set)

    def pieces(self, pieces: Iterable[tuple[int, Piece]]) -> bytes:
        """The events of what came for some choices; with a choice's first one, what comes before any text."""
        prompt = b""
        if self.trusted and not self.began:
            self.began, usage = True, self.job.usage()
            prompt = b": prompt %d %d\n" % (usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens)
        return prompt + b"".join(self._piece(index, piece) for index, piece in pieces)

    def end(self, spent: Mapping[Phase, float]) -> bytes:
        """What follows the last finish reason."""
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
        # an opening alone brings none of the ids
        steps = [([], begin), (piece.ids, [])] if begin and not events else [(piece.ids, [*begin, *events])]
        data = b""
        for ids, parts in steps:
            counted = f" {len(parts)} end" if piece.finish else "" if len(parts) == 1 else f" {len(parts)}"
            comment = f": {name} {piece.position} {','.join(map(str, ids)) or '-'}{counted}\n"
            data += comment.encode() + b"".join(parts)
        return data
