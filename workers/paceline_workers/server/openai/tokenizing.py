"""`/tokenize` and `/detokenize`, in vLLM's shapes: what a prompt costs before it is sent, and what ids spell.

They count as open requests, so that their number is bounded, and long texts go to the tokenizer's threads.
"""

from typing import Annotated, Any

from fastapi import Request, Response
from msgspec import Struct, json
from pydantic import Field, PlainValidator

from paceline_core.errors import Code, RequestError
from paceline_workers.server.body import read_body
from paceline_workers.server.conduct import Parts
from paceline_workers.server.openai.body import Body
from paceline_workers.server.openai.messages import MESSAGES_LIMIT, Message
from paceline_workers.server.openai.requests import parse
from paceline_workers.server.openai.tools import TOOLS_LIMIT, Tool

IDS_LIMIT = 1 << 20


class TokenizeRequest(Body):
    """`POST /tokenize`: a prompt, or messages; `add_special_tokens` is as the generating route would do."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = Field(default=None, min_length=1, max_length=MESSAGES_LIMIT)
    tools: list[Tool] = Field(default=[], max_length=TOOLS_LIMIT)
    add_special_tokens: bool | None = None
    add_generation_prompt: bool = True
    return_token_strs: bool = False

    def check(self) -> None:
        """One of the two forms. Raises RequestError."""
        if (self.prompt is None) is (self.messages is None):
            raise RequestError(Code.INVALID_REQUEST, "Send `prompt` or `messages`, one of them.", param="prompt")
        for index, message in enumerate(self.messages or ()):
            message.check_at(f"messages[{index}]")


def _ids(value: Any) -> list[int]:
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise ValueError("must be a list of token ids")
    if len(value) > IDS_LIMIT:
        raise ValueError(f"holds at most {IDS_LIMIT} ids")
    return value


class DetokenizeRequest(Body):
    """`POST /detokenize`."""

    model: str | None = None
    tokens: Annotated[list[int], PlainValidator(_ids)]


class Tokenized(Struct, frozen=True):
    """Ids, how many, and how many the model takes."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(Struct, frozen=True):
    """Text."""

    prompt: str


class TokenRoutes:
    """The two handlers over a worker's parts."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def tokenize(self, request: Request) -> Response:
        """Ids of a prompt or of messages."""
        with self._parts.gate.entered():
            asked = parse(TokenizeRequest, await self._body(request))
            self._known(asked.model)
            ids = await self._tokens(asked)
            names = (
                [self._parts.model.tokenizer.token_text(token) for token in ids] if asked.return_token_strs else None
            )
            return _answer(Tokenized(len(ids), self._parts.engine.ready().max_model_len, ids, names))

    async def detokenize(self, request: Request) -> Response:
        """Text of ids."""
        with self._parts.gate.entered():
            asked = parse(DetokenizeRequest, await self._body(request))
            self._known(asked.model)
            tokenizer = self._parts.model.tokenizer
            if not all(0 <= token < tokenizer.size for token in asked.tokens):
                words = f"`tokens` holds a token id that is not in 0 to {tokenizer.size - 1}."
                raise RequestError(Code.INVALID_REQUEST, words, param="tokens")
            return _answer(Detokenized(await tokenizer.spell(asked.tokens)))

    def _known(self, name: str | None) -> None:
        if name is not None:
            self._parts.model.known(name)

    async def _body(self, request: Request) -> bytes:
        return await read_body(request.scope["headers"], request.receive, self._parts.body_limit)

    async def _tokens(self, asked: TokenizeRequest) -> list[int]:
        model = self._parts.model
        if asked.prompt is not None:
            return await model.tokenizer.encode(asked.prompt, special=asked.add_special_tokens is not False)
        text = model.render(asked.messages or [], asked.tools, generation=asked.add_generation_prompt)
        return await model.tokenizer.encode(text, special=asked.add_special_tokens is True)


def _answer(content: Struct) -> Response:
    return Response(json.encode(content), media_type="application/json")
