"""What a row of the table says of a field."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class FieldRoute(StrEnum):
    """Whose body has the field."""

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
    """Where clients know a field from."""

    OPENAI = "OpenAI"
    VLLM = "vLLM"
    OLD_VLLM = "older vLLM"


class Support(StrEnum):
    """What this worker does with a field.

    served: the answer follows it. ignored: it cannot change the answer, so any value passes. refused: it would change
    the answer in a way that is not served, so only the values that ask for nothing pass.
    """

    SERVED = "served"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class RequestField:
    """One field of some routes. `note`: of a refused field, why it is refused or what to send in its place, for docs
    and refusal. `neutral`: the values of a refused field that ask for nothing.
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
        """What a client reads that sent another value."""
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
    """The answer follows it."""
    return RequestField(name, routes, apis, Support.SERVED, note)


def ignored(name: str, routes: tuple[FieldRoute, ...], apis: tuple[Api, ...], note: str) -> RequestField:
    """It cannot change the answer."""
    return RequestField(name, routes, apis, Support.IGNORED, note)


def refused(name: str, routes: tuple[FieldRoute, ...], apis: tuple[Api, ...], note: str, *neutral: Any) -> RequestField:
    """Only `neutral` values and null pass."""
    return RequestField(name, routes, apis, Support.REFUSED, note, neutral)
