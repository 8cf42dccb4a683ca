"""What a row of the table says of a field."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Route(StrEnum):
    """Whose body a field stands in."""

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
class Field:
    """One field of some routes. `note`: of a refused field, why it is refused or what to send in its place, for docs
    and refusal. `neutral`: the values of a refused field that ask for nothing.
    """

    name: str
    routes: tuple[Route, ...]
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


CHAT = (Route.CHAT,)
COMPLETIONS = (Route.COMPLETIONS,)
GENERATING = (Route.CHAT, Route.COMPLETIONS)
EMBEDDINGS = (Route.EMBEDDINGS,)
SCORE = (Route.SCORE,)
RERANK = (Route.RERANK,)
SCORING = (Route.SCORE, Route.RERANK)
RESPONSES = (Route.RESPONSES,)
MESSAGES = (Route.MESSAGES,)
COUNT_TOKENS = (Route.COUNT_TOKENS,)
COUNTED = (Route.MESSAGES, Route.COUNT_TOKENS)
TOKENIZE = (Route.TOKENIZE,)
DETOKENIZE = (Route.DETOKENIZE,)

BOTH = (Api.OPENAI, Api.VLLM)
OPENAI = (Api.OPENAI,)
VLLM = (Api.VLLM,)
OLD_VLLM = (Api.OLD_VLLM,)


def served(name: str, routes: tuple[Route, ...], apis: tuple[Api, ...], note: str) -> Field:
    """The answer follows it."""
    return Field(name, routes, apis, Support.SERVED, note)


def ignored(name: str, routes: tuple[Route, ...], apis: tuple[Api, ...], note: str) -> Field:
    """It cannot change the answer."""
    return Field(name, routes, apis, Support.IGNORED, note)


def refused(name: str, routes: tuple[Route, ...], apis: tuple[Api, ...], note: str, *neutral: Any) -> Field:
    """Only `neutral` values and null pass."""
    return Field(name, routes, apis, Support.REFUSED, note, neutral)
