"""The text and the ids of each token: `tokens` and `text_offset` in OpenAI's `logprobs`, and `return_token_ids`.

A token's bytes go through one UTF-8 decoder, so a token that is part of a character adds nothing, and the token that
completes it adds the character. Where the tokenizer's decoder drops the blank at the start of a text, the first token
adds its bytes without the blank. Special tokens that the text omits keep their names and have no length.

Invariant: the visible tokens joined together are the text. Known holes: bytes that are not UTF-8 may become more or
fewer U+FFFD in the text than here; an echoed prompt that begins with a blank, which its tokenizer drops, is one
character longer than its tokens.

`return_token_ids` adds the ids to the text of any shape, and the prompt's ids to a completion.
"""

import codecs
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from paceline_workers.server.openai.response_writer import ResponseShape, ShapeWrapper
from paceline_workers.server.text.output import Piece, recent
from paceline_workers.server.text.tokenizer import Tokenizer


def as_id(token: int) -> bytes:
    """The name of a token in `logprobs` with `return_tokens_as_token_ids`."""
    return f"token_id:{token}".encode()


class WithTokenIds(ShapeWrapper):
    """A shape that adds `token_ids` to its choices. `prompt`: the ids for a completion's first chunk, None for a chat.

    Text lags behind its tokens, so a chunk has the ids of all tokens since the previous chunk, even if part of their
    text is still to come. All chunks together have all ids of the answer, including the token that stopped it.
    """

    def __init__(self, shape: ResponseShape, prompt: Sequence[int] | None = None) -> None:
        super().__init__(shape)
        self._prompt = prompt
        self._unsent: list[int] = []

    def opening(self) -> list[Any]:
        return [self._with(choice, []) for choice in self.shape.opening()]

    def chunks(self, piece: Piece) -> list[Any]:
        """The first of the chunks has the ids."""
        self._unsent += piece.ids
        chunks = []
        for choice in self.shape.chunks(piece):
            chunks.append(self._with(choice, self._unsent))
            self._unsent = []
        return chunks

    def skip(self, piece: Piece) -> None:
        """The client has these ids, and the prompt's."""
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
    """The tokens of one text in order. `before`: the tokens of the prompt, if the text only continues it."""

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
        """The text that `token` completes or adds, and the bytes of a character that it leaves incomplete."""
        raw = self._tokenizer.token_bytes(token)
        decoder = _utf8("replace")
        text = decoder.decode(self._open + (raw if self._begun else raw.removeprefix(b" ")))
        return text, decoder.getstate()[0]
