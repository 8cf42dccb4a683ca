"""Structured output beside tools: a grammar of either the answer that is asked for or calls in the model's own form.

The text is llguidance's dialect of Lark, made here alone; a client cannot send this kind. Each schema is on a line of
its own, where the engine checks it. A marker that is such a token is named by its id, any other is spelled out.
Known hole: where calls have no marker (Llama), an answer whose schema fits a call too is read as a call.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from paceline_workers.server.tools.calls import Syntax
from paceline_workers.server.tools.forced import Schemas, any_call

Special = Callable[[str], int | None]
"""The id of a token that a grammar names by it, None for any other text."""
_SPACES = {"x-guidance": {"whitespace_pattern": " ?"}}
_OBJECT: Mapping[str, Any] = {"type": "object"}
_PART = re.compile(r"\\.|[/%\n]", re.DOTALL)
_WRITTEN = {"/": r"\/", "%": r"\x25", "\n": r"\n"}


def alternative(answer: str, syntax: Syntax, schemas: Schemas, special: Special, *, most: int) -> str:
    """The grammar of `answer`, which is of JSON or a regular expression, or of calls; one call if `most` is 1.

    Raises ValueError where `answer` is of another kind.
    """
    rule = rule_of(answer)
    if rule is None:
        raise ValueError("only JSON and regular expressions can be followed beside `tools`")
    return "calls:" + "\n".join(
        ["start: answer | calls", f"answer: {rule}", *_calls(syntax, schemas, special, most > 1)]
    )


def rule_of(answer: str) -> str | None:
    """The grammar of JSON or a regular expression as what stands behind the name of a rule; None for another kind.

    Raises ValueError for what is no schema.
    """
    kind, _, text = answer.partition(":")
    if kind == "regex":
        return _regex(text)
    return _json(_schema(text)) if kind in ("json", "json_schema") else None


def _calls(syntax: Syntax, schemas: Schemas, special: Special, many: bool) -> Iterator[str]:
    opening, middle, closing = (spelled(text, special) for text in (syntax.opening, syntax.middle, syntax.closing))
    if syntax.named:
        yield "calls: call" + ("+" if many else "")
        yield "call: " + " | ".join(f"call_{place}" for place in range(len(schemas)))
        for place, (name, schema) in enumerate(schemas.items()):
            yield f"call_{place}: {opening} {json.dumps(name)} {middle} arguments_{place}"
            yield f"arguments_{place}: {_json(schema or _OBJECT)}"
        return
    if syntax.listed:
        more = '(", " one)*' if many else ""
        yield f'calls: {opening} "[" one {more} "]"'
    else:
        between = '"\\n"' if syntax.opening else '"; "'
        yield "calls: call" + (f" ({between} call)*" if many else "")
        yield f"call: {opening} one {closing}"
    yield f"one: {_json(any_call(schemas, syntax.key))}"


def spelled(text: str, special: Special) -> str:
    """A marker and the line ends around it, as a grammar writes them."""
    marker = text.strip()
    token = special(marker) if marker else None
    if token is None:
        return json.dumps(text) if text else ""
    before, after = text.split(marker)
    return " ".join(part for part in (spelled(before, special), f"<[{token}]>", spelled(after, special)) if part)


def _schema(text: str) -> Any:
    try:
        return json.loads(text) if text else _OBJECT
    except (ValueError, RecursionError):
        raise ValueError("its schema is not JSON") from None


def _json(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        raise ValueError("its schema must be a JSON object")  # noqa: TRY004 - it is the value that is wrong
    return f"%json {json.dumps({**_SPACES, **schema})}"


def _regex(text: str) -> str:
    """The expression between slashes, on one line; `%`, with which a schema begins in Lark, by its code."""
    if not text or (len(text) - len(text.rstrip("\\"))) % 2:
        raise ValueError("its regular expression is empty, or ends within an escape")
    return "/" + _PART.sub(lambda part: _WRITTEN.get(part[0][-1], part[0]), text) + "/"
