"""Turns messages into a prompt with the model's chat template, compiled as `transformers` compiles templates.

A template is code from the model folder or from a trusted request: it runs in Jinja's immutable sandbox. Besides what
Jinja offers, it can use `{% generation %}` (which marks the assistant's words for training and has no effect here),
`break` and `continue`, `tojson` with the options of `json.dumps`, `raise_exception` and `strftime_now`.

At start the template is compiled and tried on a few conversations, so that a broken one stops the worker instead of
failing the first client. A template that refuses them all with `raise_exception`, or that only lacks variables that a
request may bring (`chat_template_kwargs`), does not count as broken. If a folder has a template named `tool_use`,
requests with tools use that one, as in `transformers`.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from paceline_core.errors import Code, InvalidInput, RequestError
from paceline_workers.model_source import read_text
from paceline_workers.server.text.reasoning import ReasoningMarkers, begun, reasoning_of
from paceline_workers.server.text.tokenizer import read_json
from paceline_workers.server.tools.formats import PROBE_TOOL, format_of
from paceline_workers.server.tools.parser import ToolCallFormat

Message = Mapping[str, Any]
Tool = Mapping[str, Any]

_DEFAULT, _TOOL_USE = "default", "tool_use"
_USER: Message = {"role": "user", "content": "Hello"}
_SYSTEM: Message = {"role": "system", "content": "Be brief."}
_OPENINGS: tuple[tuple[list[Message], list[Tool]], ...] = (
    ([_USER], []),
    ([_SYSTEM, _USER], []),
    ([_USER], [PROBE_TOOL]),
)
Now = Callable[[], datetime]
FAULTS = (TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RuntimeError)
"""The exceptions that a template may raise, including that of `raise_exception`."""
_DEVELOPER = "developer"


class InvalidTemplate(TemplateError):
    """The template itself refuses the conversation (`raise_exception`)."""


@dataclass(frozen=True, slots=True)
class CompiledTemplate:
    """A template, whether it compares a role to `developer`, and the external variables that it reads."""

    template: Template
    knows_developer: bool
    variables: frozenset[str]

    def render(self, messages: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> str:
        """Its text. The role `developer` becomes `system` if the template does not support it. Raises FAULTS."""
        if not self.knows_developer:
            messages = [{**one, "role": "system"} if one["role"] == _DEVELOPER else one for one in messages]
        return self.template.render({**values, "messages": messages})


class _Generation(Extension):
    """`{% generation %}`: renders its body, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


def _raise(message: str) -> NoReturn:
    raise InvalidTemplate(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def compiled(source: str, now: Now) -> CompiledTemplate:
    """Compile a template; raises FAULTS if it is invalid."""
    extensions: list[type[Extension]] = [loopcontrols, _Generation]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: now().strftime(form)
    tree = environment.parse(source)
    knows = any(constant.value == _DEVELOPER for constant in tree.find_all(nodes.Const))
    variables = meta.find_undeclared_variables(tree) - environment.globals.keys()
    return CompiledTemplate(environment.from_string(tree), knows, frozenset(variables))


@dataclass(frozen=True, slots=True)
class Rendering:
    """How to render a chat: with `generation` the prompt ends at the start of the assistant's turn, with `continues`
    within the last message. `variables` are the template's own, such as `enable_thinking`.
    """

    generation: bool = True
    continues: bool = False
    documents: tuple[Mapping[str, Any], ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)


PLAIN = Rendering()


class ChatTemplate:
    """A compiled template; `origin` names its file in errors. `tool_use` renders requests with tools instead."""

    def __init__(  # noqa: PLR0913 - what a folder defines about its template
        self,
        source: str,
        special_tokens: Mapping[str, str],
        now: Now,
        origin: str,
        *,
        tool_use: str = "",
        tried: bool = True,
    ) -> None:
        self._special_tokens = dict(special_tokens)
        self.reasoning = reasoning_of(source)
        try:
            self._template = self._for_tools = compiled(source, now)
            if tried:
                self._try(_OPENINGS)
            if tool_use:
                self._for_tools = compiled(tool_use, now)
                self._try(_OPENINGS[-1:])
        except FAULTS as error:
            raise InvalidInput(origin, f"the chat template fails: {error}; mend it or take it out") from None

    @classmethod
    def sent(cls, source: str, special_tokens: Mapping[str, str], now: Now) -> "ChatTemplate":
        """A template from a trusted request: its computing time is unbounded. Raises RequestError."""
        try:
            return cls(source, special_tokens, now, "chat_template", tried=False)
        except InvalidInput as error:
            raise RequestError(Code.INVALID_REQUEST, f"`{error.field}`: {error.message}.", param=error.field) from None

    @classmethod
    def load(cls, folder: Path, special_tokens: Mapping[str, str], now: Now) -> "ChatTemplate | None":
        """The template in `chat_template.jinja` and `additional_chat_templates`, or in tokenizer_config.json, or None.

        Raises InvalidInput.
        """
        path = folder / "chat_template.jinja"
        if path.exists():
            more = folder / "additional_chat_templates" / f"{_TOOL_USE}.jinja"
            return cls(_read(path), special_tokens, now, str(path), tool_use=_read(more) if more.exists() else "")
        path = folder / "tokenizer_config.json"
        named = _by_name(read_json(path).get("chat_template"))
        if not named.get(_DEFAULT):
            return None
        origin = f"{path}: chat_template"
        return cls(named[_DEFAULT], special_tokens, now, origin, tool_use=named.get(_TOOL_USE, ""))

    @cached_property
    def form(self) -> ToolCallFormat | None:
        """How the model writes calls; None if it cannot be offered tools."""
        return format_of(self.render)

    def begun(self, prompt: str, continued: str | None) -> ReasoningMarkers | None:
        """How reasoning in an answer to `prompt` begins, None without any. `continued`: the message to continue."""
        return begun(self.reasoning, prompt, continued) if self.reasoning else None

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] = (), how: Rendering = PLAIN) -> str:
        """The prompt, by default up to the start of the assistant's turn. Raises RequestError if the template does."""
        rendered = self._continued if how.continues else self._render
        try:
            return rendered(messages, tools, how)
        except FAULTS as error:
            fault = error
        try:
            return rendered(messages, whole, how) if (whole := _whole(tools)) else _refuse(fault, messages)
        except FAULTS:
            return _refuse(fault, messages)

    def _continued(self, messages: Sequence[Message], tools: Sequence[Tool], how: Rendering) -> str:
        """The prompt up to the end of the last message, located with a marker, as transformers does."""
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

    def _render(self, messages: Sequence[Message], tools: Sequence[Tool], how: Rendering) -> str:
        named = {
            "add_generation_prompt": how.generation,
            "tools": list(tools) or None,
            "documents": list(how.documents) or None,
        }
        template = self._for_tools if tools else self._template
        return template.render(messages, {**self._special_tokens, **how.variables, **named})

    def _try(self, openings: Sequence[tuple[Sequence[Message], Sequence[Tool]]]) -> None:
        """Render the first conversation that works, also with variables from requests. Raises FAULTS if none does."""
        faults: list[Exception] = []
        for messages, tools in openings:
            brought = dict.fromkeys((self._for_tools if tools else self._template).variables, "")
            for variables in ({}, brought):
                try:
                    self._render(messages, tools, Rendering(variables=variables))
                except InvalidTemplate:
                    return
                except FAULTS as error:
                    faults.append(error)
                else:
                    return
        raise faults[0]


def _by_name(value: Any) -> dict[str, str]:
    """The templates of a folder by name; a single one is the default."""
    if not isinstance(value, list):
        return {_DEFAULT: value} if isinstance(value, str) else {}
    entries = [entry for entry in value if isinstance(entry, dict)]
    return {str(entry.get("name")): text for entry in entries if isinstance(text := entry.get("template"), str)}


def _whole(tools: Sequence[Tool]) -> list[Tool]:
    """Tools with the description and the parameters that some templates read without a check."""
    least = {"description": "", "parameters": {"type": "object", "properties": {}}}
    return [{**tool, "function": least | {k: v for k, v in tool["function"].items() if v}} for tool in tools]


def _refuse(fault: Exception, messages: Sequence[Message]) -> NoReturn:
    """Raise the refusal. Some templates lack the role of a call's result, which in some APIs is not a role at all."""
    results = [place for place, message in enumerate(messages) if message["role"] == "tool"]
    first = f" (`messages[{results[0]}]`, the result of a call, has the role `tool`)" if results else ""
    message = f"The model's chat template refuses these messages: {fault}{first}"
    raise RequestError(Code.INVALID_REQUEST, message, param="messages") from None


def _read(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(str(path), f"cannot be read: {error}") from None
