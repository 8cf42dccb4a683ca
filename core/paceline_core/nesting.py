"""How deep a request's body may be nested, and what is said of one that is no JSON: at gateway and worker alike.

JSON readers have limits of their own, each another one; LEVELS is below all of them. Known hole: a body with many
brackets is walked once, some 0.1 ms for a chat of a thousand messages.
"""

from typing import Any

from paceline_core.errors import Code, RequestError

LEVELS = 128


def check_depth(body: bytes, data: Any) -> None:
    """`data` is what `body` says. Raises RequestError where objects and lists lie in each other too deep."""
    if may_be_deep(body) and _deeper(data):
        raise too_deep()


def may_be_deep(body: bytes) -> bool:
    """False where there are not even so many brackets. Looks for each: to count them takes as long as to parse."""
    found = 0
    for bracket in b"{[":
        at = body.find(bracket)
        while at >= 0 and found <= LEVELS:
            found += 1
            at = body.find(bracket, at + 1)
    return found > LEVELS


def too_deep() -> RequestError:
    """The refusal of a body, valid JSON though it may be."""
    return RequestError(Code.INVALID_REQUEST, f"The body is nested deeper than {LEVELS} levels.")


def not_json(body: bytes, reason: str) -> RequestError:
    """The refusal of a body that a reader could not read, for this reason; of one that is no text, its own."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return RequestError(Code.INVALID_JSON, f"The body is not UTF-8: its byte {error.start} begins no character.")
    return RequestError(Code.INVALID_JSON, f"The body is not valid JSON{reason}.")


def _deeper(data: Any) -> bool:
    level = [data]
    for _ in range(LEVELS):
        level = [inner for outer in level for inner in _values(outer) if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def _values(outer: Any) -> Any:
    return outer.values() if isinstance(outer, dict) else outer
