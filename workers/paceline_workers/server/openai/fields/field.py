"""A row of the table of request fields."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class FieldRoute(StrEnum):
    """The route whose body has the field."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    EMBEDDINGS = "/v1/embeddings"
    SCORE = "/v1/score"
    RERANK = "/v1/rerank"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"
    COUNT_TOKENS = "/v1/messages/count_tokens"
    TOKENIZE = "/tokenize"
    DETOKENIZE = "/detokenize"


class Api(StrEnum):
    """The API that defines the field."""

    OPENAI = "OpenAI"
    VLLM = "vLLM"
    OLD_VLLM = "older vLLM"


class Support(StrEnum):
    """What this worker does with a field.

    served: the answer follows it. ignored: it cannot change the answer, so every value is accepted. refused: it would
    change the answer in a way that the worker does not support, so only values that request nothing are accepted.
    """

    SERVED = "served"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class RequestField:
    """One field of some routes. `note`: for a refused field, why it is refused or what to send instead; the docs and
    the refusal show it. `neutral`: the values of a refused field that request nothing.
    """

    name: str
    routes: tuple[FieldRoute, ...]
    apis: tuple[Api, ...]
    support: Support
    note: str
    neutral: tuple[Any, ...] = ()

    @property
    def passing(self) -> str:
        """The neutral values as JSON, for the docs and for the refusal."""
        return " and ".join(f"`{json.dumps(value)}`" for value in self.neutral)

    @property
    def refusal(self) -> str:
        """The message for a client that sent another value."""
        instead = f", or send {self.passing.replace(' and ', ' or ')}" if self.neutral else ""
        return f"`{self.name}` is not supported here: {self.note}. Leave it out{instead}."


CHAT = (FieldRoute.CHAT,)
COMPLETIONS = (FieldRoute.COMPLETIONS,)
GENERATING = (FieldRoute.CHAT, FieldRoute.COMPLETIONS)
EMBEDDINGS = (FieldRoute.EMBEDDINGS,)
SCORE = (FieldRoute.SCORE,)
RERANK = (FieldRoute.RERANK,)
SCORING = (FieldRoute.SCORE, FieldRoute.RERANK)
RESPONSES = (FieldRoute.RESPONSES,)
MESSAGES = (FieldRoute.MESSAGES,)
COUNT_TOKENS = (FieldRoute.COUNT_TOKENS,)
COUNTED = (FieldRoute.MESSAGES, FieldRoute.COUNT_TOKENS)
TOKENIZE = (FieldRoute.TOKENIZE,)
DETOKENIZE = (FieldRoute.DETOKENIZE,)

BOTH = (Api.OPENAI, Api.VLLM)
OPENAI = (Api.OPENAI,)
VLLM = (Api.VLLM,)
OLD_VLLM = (Api.OLD_VLLM,)


def served(name: str, routes: tuple[FieldRoute, ...], apis: tuple[Api, ...], note: str) -> RequestField:
    """A field that the answer follows."""
    return RequestField(name, routes, apis, Support.SERVED, note)


def ignored(name: str, routes: tuple[FieldRoute, ...], apis: tuple[Api, ...], note: str) -> RequestField:
    """A field that cannot change the answer."""
    return RequestField(name, routes, apis, Support.IGNORED, note)


def refused(name: str, routes: tuple[FieldRoute, ...], apis: tuple[Api, ...], note: str, *neutral: Any) -> RequestField:
    """A field that accepts only `neutral` values and null."""
    return RequestField(name, routes, apis, Support.REFUSED, note, neutral)
