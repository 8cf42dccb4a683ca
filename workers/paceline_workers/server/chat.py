"""Messages to a prompt, with the model's own chat template in a sandbox.

A template is code from the model folder: it runs in Jinja's immutable sandbox with the helpers that `transformers`
gives it (`raise_exception`, `strftime_now`, `tojson`), and is tried once at start, so that a broken one stops the
worker and not the first client.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from paceline_core.errors import Code, InvalidInput, RequestError
from paceline_workers.files import read_text
from paceline_workers.server.tokenizer import read_json

Now = Callable[[], datetime]
Message = Mapping[str, Any]
Tool = Mapping[str, Any]

_FAULTS = (TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError)


@dataclass(frozen=True, slots=True)
class Rendering:
    """How a chat becomes a prompt: `generation` ends it where the assistant's turn begins, `continues` within the last
    message. `variables` are the template's own, such as `enable_thinking`.
    """

    generation: bool = True
    continues: bool = False
    documents: tuple[Mapping[str, Any], ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)


PLAIN = Rendering()


class ChatTemplate:
    """A compiled template; `origin` names its file in errors. `source` is its text."""

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], now: Now, origin: str, *, tried: bool = True
    ) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: now().strftime(form)
        self.source = source
        self._special_tokens = dict(special_tokens)
        try:
            self._template = environment.from_string(source)
            if tried:
                self._render([{"role": "user", "content": "Hello"}])
        except _FAULTS as error:
            raise InvalidInput(origin, f"the chat template fails: {error}; mend it or take it out") from None

    @classmethod
    def sent(cls, source: str, special_tokens: Mapping[str, str], now: Now) -> "ChatTemplate":
        """One that came with a trusted request: nothing bounds what it computes. Raises RequestError."""
        try:
            return cls(source, special_tokens, now, "chat_template", tried=False)
        except InvalidInput as error:
            raise RequestError(Code.INVALID_REQUEST, f"`{error.field}`: {error.message}.", param=error.field) from None

    @classmethod
    def load(cls, folder: Path, special_tokens: Mapping[str, str], now: Now) -> "ChatTemplate | None":
        """`chat_template.jinja`, else `chat_template` of tokenizer_config.json, else None. Raises InvalidInput."""
        path = folder / "chat_template.jinja"
        if path.exists():
            return cls(_read(path), special_tokens, now, str(path))
        path = folder / "tokenizer_config.json"
        source = _default(read_json(path).get("chat_template"))
        return cls(source, special_tokens, now, f"{path}: chat_template") if source else None

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] = (), how: Rendering = PLAIN) -> str:
        """The prompt, by default ready for the assistant's turn. Raises RequestError when the template refuses it."""
        try:
            return self._continued(messages, tools, how) if how.continues else self._render(messages, tools, how)
        except _FAULTS as error:
            raise RequestError(
                Code.INVALID_REQUEST, f"The model's chat template refuses these messages: {error}", param="messages"
            ) from None

    def _continued(self, messages: Sequence[Message], tools: Sequence[Tool], how: Rendering) -> str:
        """The prompt up to the end of the last message, which a mark shows; transformers does the same."""
        *before, last = messages
        content, mark = last.get("content") or "", f"{secrets.token_hex(16)} "
        rendered = self._render([*before, {**last, "content": content + mark}], tools, how)
        text, found, rest = rendered.rpartition(mark.rstrip())
        if not found or content.strip() not in text:
            raise RequestError(
                Code.INVALID_REQUEST,
                "`continue_final_message` needs a last message with content that the chat template writes as it is.",
                param="continue_final_message",
            )
        return text if rest.startswith(" ") else text.rstrip()

    def _render(self, messages: Sequence[Message], tools: Sequence[Tool] = (), how: Rendering = PLAIN) -> str:
        named = {
            "messages": messages,
            "add_generation_prompt": how.generation,
            "tools": list(tools) or None,
            "documents": list(how.documents) or None,
        }
        return self._template.render({**self._special_tokens, **how.variables, **named})


def _default(value: Any) -> str:
    """Folders with several templates name one of them `default`."""
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else ""


def _read(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(str(path), f"cannot be read: {error}") from None


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
