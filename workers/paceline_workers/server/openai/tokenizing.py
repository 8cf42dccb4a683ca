"""`/tokenize` and `/detokenize` in vLLM's form: the number of tokens of a prompt, and the text of ids.

They count as open requests, which bounds their number. The tokenizer's threads encode long texts; a text stops waiting
for one when its client leaves.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, ClassVar

from msgspec import Struct, json
from pydantic import Field, PlainValidator

from paceline_workers.server.http.exchange import Receive, Scope, Send, understood
from paceline_workers.server.openai.chat_fields import MESSAGES_LIMIT, ChatFields, ChatMessage
from paceline_workers.server.openai.fields import FieldRoute
from paceline_workers.server.openai.inputs import is_ids, refuse_uncountable
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.openai.validation import Body, invalid, parse
from paceline_workers.server.request_handler import ServerDeps

IDS_LIMIT = 1 << 17
"""The most ids to decode, unless the context is longer. A million block the event loop for 60 ms."""


class TokenizeRequest(ChatFields):
    """`POST /tokenize`: a prompt, or messages; `add_special_tokens` has the default of the generating route."""

    route: ClassVar[str] = FieldRoute.TOKENIZE

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = Field(default=None, min_length=1, max_length=MESSAGES_LIMIT)
    return_token_strs: bool = False

    def check(self) -> None:
        """Check that the body has exactly one of the two forms. Raises RequestError."""
        super().check()
        if (self.prompt is None) is (self.messages is None):
            raise invalid("Send `prompt` or `messages`, one of them.", "prompt")
        for index, message in enumerate(self.messages or ()):
            message.check_at(f"messages[{index}]")


def _ids(value: Any) -> list[int]:
    if not is_ids(value):
        raise ValueError("must be a list of token ids")
    ids: list[int] = value
    return ids


class DetokenizeRequest(Body):
    """`POST /detokenize`."""

    route: ClassVar[str] = FieldRoute.DETOKENIZE

    model: str | None = None
    tokens: Annotated[list[int], PlainValidator(_ids)]


class Tokenized(Struct, frozen=True):
    """The ids, their number, and the model's context length."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(Struct, frozen=True):
    """Text."""

    prompt: str


TokenHandler = Callable[[ServerDeps, bytes], Coroutine[Any, Any, Struct]]
"""Makes the answer from a body. Raises RequestError."""


class TokenRoute:
    """Either route as an ASGI application."""

    def __init__(self, parts: ServerDeps, answer: TokenHandler) -> None:
        self._parts = parts
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises RequestError."""
        parts = self._parts
        exchange = parts.exchange(scope, receive, send)
        with parts.gate.entered():
            try:
                document = await understood(exchange, parts.turns, partial(self._answer, parts))
            finally:
                exchange.release()
            await exchange.reply.whole(HTTPStatus.OK, {"content-type": "application/json"}, json.encode(document))


async def tokenize(parts: ServerDeps, body: bytes) -> Tokenized:
    """The ids of a prompt or of messages."""
    asked, model = parse(TokenizeRequest, body), parts.model
    if asked.model is not None:
        model.known(asked.model)
    context = parts.engine.ready().max_model_len
    ids = await _tokens(model, asked, context)
    names = await model.tokenizer.names(ids) if asked.return_token_strs else None
    return Tokenized(len(ids), context, ids, names)


async def detokenize(parts: ServerDeps, body: bytes) -> Detokenized:
    """The text of ids."""
    asked, tokenizer = parse(DetokenizeRequest, body), parts.model.tokenizer
    if asked.model is not None:
        parts.model.known(asked.model)
    most = max(IDS_LIMIT, parts.engine.ready().max_model_len)
    if len(asked.tokens) > most:
        raise invalid(f"`tokens` holds at most {most} ids.", "tokens")
    if asked.tokens and not 0 <= min(asked.tokens) <= max(asked.tokens) < tokenizer.size:
        raise invalid(f"`tokens` holds a token id that is not in 0 to {tokenizer.size - 1}.", "tokens")
    return Detokenized(await tokenizer.spell(asked.tokens))


async def _tokens(model: ServedModel, asked: TokenizeRequest, context: int) -> list[int]:
    if asked.prompt is not None:
        refuse_uncountable(asked.prompt, context, "prompt")
        return await model.tokenizer.encode(asked.prompt, special=asked.add_special_tokens is not False)
    model = model.with_template(asked.chat_template)
    model.parser(asked)  # refuses tools that the model cannot call
    text = model.render(asked.messages or [], asked)
    refuse_uncountable(text, context, "messages")
    return await model.tokenizer.encode(text, special=asked.add_special_tokens is True)
