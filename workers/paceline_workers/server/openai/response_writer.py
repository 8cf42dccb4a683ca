"""The structs of answers and stream chunks, and their envelope. msgspec encodes them: this is the per-token path."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from paceline_workers.server.text.output import Piece

LOWEST = -9999.0
"""JSON has no minus infinity; OpenAI writes this number instead."""
TokenBytes = Callable[[int], bytes]
"""The name of a token in `logprobs`."""

_json = msgspec.json.Encoder()


class CachedTokens(Struct, frozen=True):
    """Prompt tokens that the engine did not compute again."""

    cached_tokens: int


class OutputDetails(Struct, frozen=True):
    """How the output tokens were used; the markers around reasoning count as reasoning."""

    reasoning_tokens: int


class Usage(Struct, frozen=True):
    """OpenAI's token counts of one request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: OutputDetails | UnsetType = UNSET


class PromptCandidate(Struct, frozen=True):
    """A candidate token at a position of the prompt."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptCandidate] | None]
"""One entry for each prompt token: candidates by id, null for the first token."""


class Envelope(Struct, frozen=True):
    """Everything around the choices; `usage` is absent, null, or the counts."""

    id: str
    object: str
    created: int
    model: str
    choices: list[Any]
    usage: Usage | UnsetType | None = UNSET
    system_fingerprint: str | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_text: str | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


def written_event(event: Mapping[str, Any]) -> bytes:
    """A server-sent event named after its `type`."""
    return b"event: " + str(event["type"]).encode() + b"\ndata: " + _json.encode(event) + b"\n\n"


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """The names of the objects in one route's answers."""

    id_prefix: str
    object: str
    chunk_object: str


class ResponseShape(Protocol):
    """Writes one choice's output in the route's structs. Each choice has one, because it keeps state."""

    def opening(self) -> list[Any]:
        """The choices of the chunk before any text; may be empty."""

    def chunks(self, piece: Piece) -> list[Any]:
        """The choice of each chunk that this piece makes; a piece with `finish` makes the last one."""

    def skip(self, piece: Piece) -> None:
        """Process a piece that the client already has, from before a resumption; with `finish` it is the last one."""

    def whole(self, pieces: Sequence[Piece]) -> Any:
        """The choice of an answer that is not streamed; the last piece has the finish reason."""


class ShapeWrapper:
    """Base of a shape that wraps another one and overrides part of what it writes."""

    def __init__(self, shape: ResponseShape) -> None:
        self.shape = shape

    def opening(self) -> list[Any]:
        return self.shape.opening()

    def chunks(self, piece: Piece) -> list[Any]:
        return self.shape.chunks(piece)

    def skip(self, piece: Piece) -> None:
        self.shape.skip(piece)

    def whole(self, pieces: Sequence[Piece]) -> Any:
        return self.shape.whole(pieces)


class AnswerWriter(Protocol):
    """Writes one request's answers as bytes, all with the same id, time and model."""

    @property
    def id(self) -> str: ...

    @property
    def created(self) -> int:
        """Unix seconds."""

    @property
    def model(self) -> str:
        """The model's name as the request gives it."""

    @property
    def kind(self) -> ObjectKind: ...

    def events(self, choices: list[Any], usage: Usage | UnsetType | None, *, opening: bool = False) -> list[bytes]:
        """The server-sent events for what a shape made of one piece, or of its opening."""

    def ending(self, usage: Usage, *, asked: bool) -> bytes:
        """What comes before the stream's `[DONE]`; `asked`: the client requested its usage."""

    def body(self, choices: list[Any], usage: Usage) -> bytes:
        """The body of an answer that is not streamed."""


class WritingShape(ResponseShape, AnswerWriter, Protocol):
    """A shape that writes the whole answer, which has only this choice."""


@dataclass(frozen=True, slots=True)
class ChunkWriter:
    """Writes one request's answers, all with the same id, time, model and fingerprint.

    The ids and the text of a chat's prompt, if requested, are in whole answers and opening chunks; `prompt_logprobs`
    only in whole answers.
    """

    id: str
    created: int
    model: str
    kind: ObjectKind
    fingerprint: str | UnsetType = UNSET
    prompt_ids: list[int] | UnsetType = UNSET
    prompt_text: str | UnsetType = UNSET
    prompt_logprobs: Callable[[], PromptLogprobs] | None = None

    def events(self, choices: list[Any], usage: Usage | UnsetType | None, *, opening: bool = False) -> list[bytes]:
        """One event, or none if there are no choices."""
        return [self._event(choices, usage, prompt=opening)] if choices else []

    def ending(self, usage: Usage, *, asked: bool) -> bytes:
        """The usage in a separate chunk."""
        return self._event([], usage, prompt=False) if asked else b""

    def body(self, choices: list[Any], usage: Usage) -> bytes:
        answer = self._envelope(self.kind.object, choices, usage, prompt=True)
        if self.prompt_logprobs is not None:
            answer = structs.replace(answer, prompt_logprobs=self.prompt_logprobs())
        return _json.encode(answer)

    def _event(self, choices: list[Any], usage: Usage | UnsetType | None, *, prompt: bool) -> bytes:
        chunk = self._envelope(self.kind.chunk_object, choices, usage, prompt=prompt)
        return b"data: " + _json.encode(chunk) + b"\n\n"  # the encoder writes no newlines

    def _envelope(self, kind: str, choices: list[Any], usage: Usage | UnsetType | None, *, prompt: bool) -> Envelope:
        ids, text = (self.prompt_ids, self.prompt_text) if prompt else (UNSET, UNSET)
        return Envelope(self.id, kind, self.created, self.model, choices, usage, self.fingerprint, ids, text)
