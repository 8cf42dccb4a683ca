"""Chat templates compiled as `transformers` compiles them: the same sandbox, blocks, filters and functions.

A template is code from the model folder, or of a trusted request: it runs in Jinja's immutable sandbox. Beside what
Jinja has, it finds `{% generation %}` (which marks the assistant's words for training and changes nothing here),
`break` and `continue`, `tojson` with the options of `json.dumps`, `raise_exception` and `strftime_now`.

Limits on the JSON values that a request may hand to the chat template.

Templates write tools, documents and the arguments of earlier calls out as JSON, often indented: a million numbers that
lie 100 levels deep are 3 MB in a body and 500 MB so. Arguments are JSON within a text, which the bounds of a body's own
JSON do not see: 8 MB of `[],` in it take 1.3 s to parse. Pure.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from paceline_core.errors import RequestError
from paceline_core.json_limits import shape_of
from paceline_workers.server.openai.validation import invalid

VALUES = 32_768
"""Values of each kind in a request: 128 tools of 256 values."""


def check_values(field: str, value: Any) -> None:
    """Raises RequestError where `value` holds more than VALUES, itself and keys not counted."""
    count, left = 0, [value]
    while left:
        one = left.pop()
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple) else ()
        count += len(inner)
        if count > VALUES:
            raise _too_many(field)
        left.extend(inner)


def check_arguments(texts: Iterable[str]) -> None:
    """Raises RequestError where the arguments of all calls together hold more than VALUES; they are not parsed yet."""
    body = ",".join(texts).encode(errors="replace")
    if body.count(b"[") + body.count(b"{") + body.count(b",") <= VALUES:
        return
    shape = shape_of(body)
    if shape.strings > VALUES or shape.containers + shape.commas > VALUES:
        raise _too_many("messages", "The arguments of the calls in ")


def _too_many(field: str, part: str = "") -> RequestError:
    return invalid(f"{part}`{field}` hold more than {VALUES} JSON values; send fewer.", field)


Now = Callable[[], datetime]
FAULTS = (TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RuntimeError)
"""What a template may raise, `raise_exception` included."""
_DEVELOPER = "developer"


class InvalidTemplate(TemplateError):
    """The template itself takes no such conversation (`raise_exception`)."""


@dataclass(frozen=True, slots=True)
class CompiledTemplate:
    """A template, whether it compares a role to `developer`, and the variables that it reads from outside."""

    template: Template
    knows_developer: bool
    variables: frozenset[str]

    def render(self, messages: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> str:
        """Its text. The role `developer` becomes `system` where the template does not know it. Raises FAULTS."""
        known = messages if self.knows_developer else [_as_system(message) for message in messages]
        return self.template.render({**values, "messages": known})


def compiled(source: str, now: Now) -> CompiledTemplate:
    """Raises FAULTS on what is no template."""
    environment = _environment(now)
    tree = environment.parse(source)
    knows = any(constant.value == _DEVELOPER for constant in tree.find_all(nodes.Const))
    variables = meta.find_undeclared_variables(tree) - environment.globals.keys()
    return CompiledTemplate(environment.from_string(tree), knows, frozenset(variables))


class _Generation(Extension):
    """`{% generation %}`: its body, with assignments of its own."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


def _environment(now: Now) -> ImmutableSandboxedEnvironment:
    extensions: list[type[Extension]] = [loopcontrols, _Generation]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: now().strftime(form)
    return environment


def _as_system(message: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**message, "role": "system"} if message["role"] == _DEVELOPER else message


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
