"""The text side of the model: its names, its tokenizer and its chat template."""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from paceline_core.clock import Clock
from paceline_core.errors import Code, RequestError
from paceline_workers.server.filters.runner import Filters
from paceline_workers.server.grammar.checks import checked_here
from paceline_workers.server.openai.chat_fields import CALLS_LIMIT, ChatFields, ChatMessage
from paceline_workers.server.prefix_warmup import WarmPrefixes
from paceline_workers.server.text.chat import ChatTemplate
from paceline_workers.server.text.tokenizer import Tokenizer
from paceline_workers.server.tools.grammar import Forced
from paceline_workers.server.tools.parser import ToolCallFormat

NAMED = 128
"""The most characters of a model's name that a refusal repeats."""
Check = Callable[[str, str], Awaitable[str]]
"""Checks a grammar for a tenant: returns why it cannot be followed, "" if it can. Raises RequestError."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """`new_seed` makes the seed of a request without one. `no_embeddings`: why the model cannot embed, "" if it can.

    `filters` makes the filters of one answer, if there are any. `fingerprint` identifies model, revision and backend:
    for a given seed, answers depend on these. `check` says whether a grammar can be followed. `trusts_templates`:
    requests may bring chat templates.
    """

    names: tuple[str, ...]
    tokenizer: Tokenizer
    template: ChatTemplate | None
    clock: Clock
    new_seed: Callable[[], int] = lambda: secrets.randbits(63)
    no_embeddings: str = ""
    filters: Callable[[], Filters] | None = None
    warm: WarmPrefixes = field(default_factory=WarmPrefixes)
    fingerprint: str = ""
    check: Check = checked_here
    trusts_templates: bool = False

    def with_template(self, source: str | None) -> "ServedModel":
        """The same model with the request's chat template, if it has one. Raises RequestError."""
        if source is None:
            return self
        if not self.trusts_templates:
            words = "`chat_template` is code, which this worker takes from no request (trust_request_chat_template)."
            raise RequestError(Code.INVALID_REQUEST, words, param="chat_template")
        template = ChatTemplate.sent(source, self.tokenizer.special_tokens, self.clock.utc)
        return replace(self, template=template)

    def known(self, name: str) -> None:
        """Raises RequestError unless `name` is one of this model's names."""
        if name not in self.names:
            raise RequestError(Code.MODEL_NOT_FOUND, f"The model `{name[:NAMED]}` does not exist here.", param="model")

    def parser(self, fields: ChatFields, most: int = CALLS_LIMIT) -> "ToolParsing | None":
        """How to find calls in an answer, at most `most`; None if calls are not allowed. Raises RequestError."""
        if not fields.tools or fields.tool_choice == "none":
            return None
        form = self.template.form if self.template else None
        if form is None:
            words = "This model's chat template takes no tools, or writes calls in an unknown form; leave `tools` out."
            raise RequestError(Code.INVALID_REQUEST, words, param="tools")
        names, forced = frozenset(tool.function.name for tool in fields.tools), fields.forced
        return ToolParsing(form if forced is None else Forced(forced), names, most)

    def render(self, messages: Sequence[ChatMessage], fields: ChatFields) -> str:
        """The prompt of a chat. Raises RequestError."""
        if self.template is None:
            words = "This model has no chat template; use /v1/completions."
            raise RequestError(Code.INVALID_REQUEST, words, param="messages")
        return self.template.render(*fields.for_template(messages))


@dataclass(frozen=True, slots=True)
class ToolParsing:
    """The form of calls, the offered functions, and the most calls of one answer."""

    form: ToolCallFormat
    names: frozenset[str]
    most: int = CALLS_LIMIT
