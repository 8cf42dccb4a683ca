"""The model as text sees it: its names, its tokenizer, its chat template."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline_core.clock import Clock
from paceline_core.errors import Code, RequestError
from paceline_workers.server.chat import ChatTemplate
from paceline_workers.server.openai.requests import Message
from paceline_workers.server.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ServedModel:
    """`new_seed` gives the seed of a request that names none."""

    names: tuple[str, ...]
    tokenizer: Tokenizer
    template: ChatTemplate | None
    clock: Clock
    new_seed: Callable[[], int] = lambda: secrets.randbits(63)

    def known(self, name: str) -> None:
        """Raises RequestError unless this model answers to `name`."""
        if name not in self.names:
            raise RequestError(Code.MODEL_NOT_FOUND, f"The model `{name}` does not exist here.", param="model")

    def render(self, messages: Sequence[Message], *, generation: bool = True) -> str:
        """The prompt of a chat, by default up to where the assistant's turn begins. Raises RequestError."""
        if self.template is None:
            words = "This model has no chat template; use /v1/completions."
            raise RequestError(Code.INVALID_REQUEST, words, param="messages")
        return self.template.render([message.plain() for message in messages], generation=generation)
