"""`echo` of a chat: the answer begins with the message that it continues."""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from paceline_workers.server.openai.answers import ResponseShape
from paceline_workers.server.output import Piece


class Echo:
    """A chat's shape behind the text of the last message."""

    def __init__(self, shape: ResponseShape, text: str) -> None:
        self._shape = shape
        self._text = text

    def opening(self) -> list[Any]:
        """The role, and the text."""
        return [
            structs.replace(choice, delta=structs.replace(choice.delta, content=self._text))
            for choice in self._shape.opening()
        ]

    def chunks(self, piece: Piece) -> list[Any]:
        """As they are."""
        return self._shape.chunks(piece)

    def skip(self, piece: Piece) -> None:
        """The text has been told too."""
        self._shape.skip(piece)

    def whole(self, pieces: Sequence[Piece]) -> Any:
        """The text and the answer as one content."""
        choice = self._shape.whole(pieces)
        message = structs.replace(choice.message, content=self._text + (choice.message.content or ""))
        return structs.replace(choice, message=message)
