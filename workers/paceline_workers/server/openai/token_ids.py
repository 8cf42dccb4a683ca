"""`return_token_ids`: the ids beside the text of any shape, and of a completion the prompt's own.

Text lags behind its tokens, so a chunk has the ids of all tokens since the chunk before, whether or not their whole
text is in it; put together they are the answer's, the one that stopped it included.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from paceline_workers.server.openai.answers import ResponseShape
from paceline_workers.server.output import Piece


def as_id(token: int) -> bytes:
    """What `logprobs` call a token with `return_tokens_as_token_ids`."""
    return f"token_id:{token}".encode()


class WithTokenIds:
    """A shape whose choices have `token_ids`. `prompt`: ids for a completion's first chunk, None for a chat."""

    def __init__(self, shape: ResponseShape, prompt: Sequence[int] | None = None) -> None:
        self._shape = shape
        self._prompt = prompt
        self._untold: list[int] = []
        self._first = True

    def opening(self) -> list[Any]:
        """No token is told yet."""
        return [self._with(choice, []) for choice in self._shape.opening()]

    def chunks(self, piece: Piece) -> list[Any]:
        """The ids are in the first of the chunks."""
        self._untold += piece.ids
        chunks = []
        for choice in self._shape.chunks(piece):
            chunks.append(self._with(choice, self._untold))
            self._untold = []
        return chunks

    def skip(self, piece: Piece) -> None:
        """These were told, and the prompt's."""
        self._first = False
        self._shape.skip(piece)

    def whole(self, pieces: Sequence[Piece]) -> Any:
        """All of them."""
        return self._with(self._shape.whole(pieces), [token for piece in pieces for token in piece.ids])

    def _with(self, choice: Any, ids: list[int]) -> Any:
        told: dict[str, Any] = {"token_ids": ids}
        if self._first and self._prompt is not None:
            told["prompt_token_ids"] = list(self._prompt)
        self._first = False
        return structs.replace(choice, **told)
