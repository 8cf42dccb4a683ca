"""Limits on the JSON values that a request may hand to the chat template.

Templates write tools, documents and the arguments of earlier calls out as JSON, often indented: a million numbers that
lie 100 levels deep are 3 MB in a body and 500 MB so. Arguments are JSON within a text, which the bounds of a body's own
JSON do not see: 8 MB of `[],` in it take 1.3 s to parse. Pure.
"""

from collections.abc import Iterable
from typing import Any

from paceline_core.errors import RequestError
from paceline_core.nesting import shape_of
from paceline_workers.server.openai.body import invalid

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
