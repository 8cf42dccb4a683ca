"""The structs of answers and stream chunks, and their one envelope. msgspec writes them: this is the per-token path."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from paceline_workers.server.text.output import Piece

LOWEST = -9999.0
"""JSON has no minus infinity; OpenAI writes this for it."""
TokenBytes = Callable[[int], bytes]
"""What `logprobs` call a token."""

_json = msgspec.json.Encoder()


class CachedTokens(Struct, frozen=True):
    """Prompt tokens that were not computed again."""

    cached_tokens: int


class OutputDetails(Struct, frozen=True):
    """What the output tokens were for; the markers around reasoning count as such."""

    reasoning_tokens: int


class Usage(Struct, frozen=True):
    """OpenAI's token counts of one request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: OutputDetails | UnsetType = UNSET


class PromptCandidate(Struct, frozen=True):
    """A token that could have stood at a place of the prompt."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptCandidate] | None]
"""One entry for each token of the prompt: candidates by their ids, null for the first."""


class Envelope(Struct, frozen=True):
    """Everything around the choices; `usage` is left out, null, or counts."""

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
    """A server-sent event that has a name, its `type`."""
    return b"event: " + str(event["type"]).encode() + b"\ndata: " + _json.encode(event) + b"\n\n"


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """What the answers of one route are called."""

    id_prefix: str
    object: str
    chunk_object: str


class ResponseShape(Protocol):
    """How one choice's output is written down, in the route's own structs. One for each choice: it keeps state."""

    def opening(self) -> list[Any]:
        """Choices of the chunk that comes before any text; empty for none."""

    def chunks(self, piece: Piece) -> list[Any]:
        """The choice of each chunk that this piece makes; with its `finish`, the one that ends the stream."""

    def skip(self, piece: Piece) -> None:
        """Take in what an earlier life of the stream has written; with its `finish`, all of it."""

    def whole(self, pieces: Sequence[Piece]) -> Any:
        """The choice of an answer that is not streamed; the last piece holds the finish reason."""


class ShapeWrapper:
    """A shape that writes what another one does, but for what it writes itself."""

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
    """How one request's answers become bytes: the same id, time and model in each."""

    @property
    def id(self) -> str: ...

    @property
    def created(self) -> int:
        """Unix seconds."""

    @property
    def model(self) -> str:
        """As it was asked for."""

    @property
    def kind(self) -> ObjectKind: ...

    def events(self, choices: list[Any], usage: Usage | UnsetType | None, *, opening: bool = False) -> list[bytes]:
        """Server-sent events of what a shape has made of one piece, or of its opening."""

    def ending(self, usage: Usage, *, asked: bool) -> bytes:
        """What stands before the stream's `[DONE]`; `asked`: the client wants to be told its usage."""

    def body(self, choices: list[Any], usage: Usage) -> bytes:
        """The body of an answer that is not streamed."""


class WritingShape(ResponseShape, AnswerWriter, Protocol):
    """A shape that writes the whole answer, which has this one choice."""


@dataclass(frozen=True, slots=True)
class ChunkWriter:
    """One request's answers: the same id, time, model and fingerprint in each.

    What was asked to be told of a chat's prompt, its ids and its text, stands in whole answers and opening chunks;
    `prompt_logprobs` in whole answers alone.
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
        """One for what there is."""
        return [self._event(choices, usage, prompt=opening)] if choices else []

    def ending(self, usage: Usage, *, asked: bool) -> bytes:
        """The usage in a chunk of its own."""
        return self._event([], usage, prompt=False) if asked else b""

    def body(self, choices: list[Any], usage: Usage) -> bytes:
        answer = self._envelope(self.kind.object, choices, usage, prompt=True)
        if self.prompt_logprobs is not None:
            answer = structs.replace(answer, prompt_logprobs=self.prompt_logprobs())
        return _json.encode(answer)

    def _event(self, choices: list[Any], usage: Usage | UnsetType | None, *, prompt: bool) -> bytes:
        chunk = self._envelope(self.kind.chunk_object, choices, usage, prompt=prompt)
        return b"data: " + _json.encode(chunk) + b"\n\n"  # JSON from an encoder holds no newline

    def _envelope(self, kind: str, choices: list[Any], usage: Usage | UnsetType | None, *, prompt: bool) -> Envelope:
        ids, text = (self.prompt_ids, self.prompt_text) if prompt else (UNSET, UNSET)
        return Envelope(self.id, kind, self.created, self.model, choices, usage, self.fingerprint, ids, text)
