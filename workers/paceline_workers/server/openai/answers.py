"""The structs of answers and stream chunks, and their one envelope. msgspec writes them: this is the per-token path."""

from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

from paceline_workers.server.output import Output, Piece

_json = msgspec.json.Encoder()


class CachedTokens(Struct, frozen=True):
    """Prompt tokens that were not computed again."""

    cached_tokens: int


class Usage(Struct, frozen=True):
    """OpenAI's token counts of one request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens

    @classmethod
    def of(cls, prompt: int, output: Output) -> "Usage":
        """Counts so far."""
        return cls(prompt, output.tokens, prompt + output.tokens, CachedTokens(output.cached))


class Envelope(Struct, frozen=True):
    """Everything around the choices; `usage` is left out, null, or counts."""

    id: str
    object: str
    created: int
    model: str
    choices: list[Any]
    usage: Usage | UnsetType | None = UNSET

    def encode(self) -> bytes:
        """As JSON."""
        return _json.encode(self)


class Shape(Protocol):
    """How one route writes output down. Choices are the route's own structs."""

    id_prefix: str
    object: str
    chunk_object: str

    def opening(self) -> list[Any]:
        """Choices of the chunk that comes before any text; empty for none."""
        ...

    def delta(self, piece: Piece) -> Any:
        """The choice with a piece's text."""
        ...

    def closing(self, finish: str) -> Any:
        """The choice that ends the stream."""
        ...

    def whole(self, pieces: list[Piece]) -> Any:
        """The one choice of an answer that is not streamed; the last piece holds the finish reason."""
        ...


@dataclass(frozen=True, slots=True)
class Writer:
    """One request's answers: the same id, time and model in each."""

    id: str
    created: int
    model: str
    shape: Shape

    def chunk(self, choices: list[Any], usage: Usage | UnsetType | None = UNSET) -> bytes:
        """One event's JSON."""
        return Envelope(self.id, self.shape.chunk_object, self.created, self.model, choices, usage).encode()

    def whole(self, pieces: list[Piece], usage: Usage) -> bytes:
        """The body of an answer that is not streamed."""
        choices = [self.shape.whole(pieces)]
        return Envelope(self.id, self.shape.object, self.created, self.model, choices, usage).encode()
