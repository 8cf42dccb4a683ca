"""Text that each token of a completion adds: the `tokens` and `text_offset` of OpenAI's `logprobs`.

A token's bytes go through one UTF-8 decoder, so a token that is half a character adds nothing and the one that ends it
adds the character. Where the tokenizer's decoder drops the blank that begins a text, the first token adds its bytes
without it. Special tokens that the text leaves out keep their names and take no place in it.

Invariant: the tokens that are shown, put together, are the text. Known holes: bytes that are no UTF-8 may become more
or fewer U+FFFD in the text than here; a prompt that is echoed with a blank of its own in front, which its tokenizer
drops, is one character longer than its tokens.

`return_token_ids`: the ids beside the text of any shape, and of a completion the prompt's own.
"""

import codecs
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from paceline_workers.server.openai.response_writer import ResponseShape, ShapeWrapper
from paceline_workers.server.text.output import Piece, recent
from paceline_workers.server.text.tokenizer import Tokenizer


def as_id(token: int) -> bytes:
    """What `logprobs` call a token with `return_tokens_as_token_ids`."""
    return f"token_id:{token}".encode()


class WithTokenIds(ShapeWrapper):
    """A shape whose choices have `token_ids`. `prompt`: ids for a completion's first chunk, None for a chat.

    Text lags behind its tokens, so a chunk has the ids of all tokens since the chunk before, whether or not their whole
    text is in it; put together they are the answer's, the one that stopped it included.
    """

    def __init__(self, shape: ResponseShape, prompt: Sequence[int] | None = None) -> None:
        super().__init__(shape)
        self._prompt = prompt
        self._unsent: list[int] = []

    def opening(self) -> list[Any]:
        return [self._with(choice, []) for choice in self.shape.opening()]

    def chunks(self, piece: Piece) -> list[Any]:
        """The ids are in the first of the chunks."""
        self._unsent += piece.ids
        chunks = []
        for choice in self.shape.chunks(piece):
            chunks.append(self._with(choice, self._unsent))
            self._unsent = []
        return chunks

    def skip(self, piece: Piece) -> None:
        """These were sent, and the prompt's."""
        self._prompt = None
        self.shape.skip(piece)

    def whole(self, pieces: Sequence[Piece]) -> Any:
        return self._with(self.shape.whole(pieces), [token for piece in pieces for token in piece.ids])

    def _with(self, choice: Any, ids: list[int]) -> Any:
        ids_fields: dict[str, Any] = {"token_ids": ids}
        if self._prompt is not None:
            ids_fields["prompt_token_ids"] = list(self._prompt)
        self._prompt = None
        return structs.replace(choice, **ids_fields)


_utf8 = codecs.getincrementaldecoder("utf-8")


class TokenTexts:
    """The tokens of one text in order. `before`: those of a prompt that the text goes on and does not hold."""

    def __init__(
        self, tokenizer: Tokenizer, before: Sequence[int] = (), *, special: bool = False, as_ids: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._as_ids = as_ids
        self._begun = not tokenizer.drops_first_blank
        self._open = b""
        self.offset = 0
        for token in recent(tokenizer.decode_all if special else tokenizer.decode, before):
            self.add(token)
        self.offset = 0

    def name(self, token: int) -> str:
        """The name of `token` if it comes next."""
        if self._as_ids:
            return as_id(token).decode()
        return self._tokenizer.token_text(token) if self._left_out(token) else self._added(token)[0]

    def add(self, token: int) -> None:
        """Append a token; the next one begins where it ends."""
        if self._left_out(token):
            return
        text, self._open = self._added(token)
        self.offset += len(text)
        self._begun = self._begun or bool(text or self._open or self._tokenizer.token_bytes(token))

    def _left_out(self, token: int) -> bool:
        return not self._special and token in self._tokenizer.special_ids

    def _added(self, token: int) -> tuple[str, bytes]:
        """The text that `token` ends or adds, and the bytes of a character that it leaves open."""
        raw = self._tokenizer.token_bytes(token)
        decoder = _utf8("replace")
        text = decoder.decode(self._open + (raw if self._begun else raw.removeprefix(b" ")))
        return text, decoder.getstate()[0]
