"""Limits on a request's body as JSON and on its answers, the same at gateway and worker.

JSON: checked before the body is parsed, in addition to its bytes. A parser makes an object for each list, key and
number, so 8 MB of brackets cost seconds where 8 MB of text cost milliseconds. The counts are taken on the bytes, by
calls that run in C: escapes are removed, then strings by their quotes, then the rest is counted. A bracket inside a
string never counts. The count is exact up to the first byte that is not JSON, where a parser stops, so a bound on the
count is a bound on what any parser makes. JSON parsers have different depth limits; LEVELS is below all of them.
Cost on one core: 1 us for a chat of 2 KB, at most 50 ms for 8 MiB (nothing but escaped quotes). The worst body that
passes, a million numbers, parses in 50 ms.

Answers: the number that a request may ask for. The gateway refuses more before it reserves quota, a worker before it
runs. Invariant: both use the same numbers, so a worker accepts every request that the gateway reserves quota for.
"""

from typing import NamedTuple

from paceline_core.errors import Code, RequestError

LEVELS = 128
CONTAINERS = 32_768
"""Objects and lists. A chat of 2,048 messages, each of three parts, has 10,241."""
STRINGS = 131_072
"""Strings, including keys."""
VALUES = 1 << 20
"""Entries of lists and objects, by their commas: a prompt of a million token ids passes."""
_SMALL = 3 * STRINGS
"""A body of this many bytes or fewer cannot hold more strings than STRINGS, nor more commas than VALUES."""
_ALIKE = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))


class JsonShape(NamedTuple):
    """The objects that a parser would make of a body. `strings` includes keys, `commas` counts the entries."""

    containers: int
    levels: int
    strings: int
    commas: int


def check_shape(body: bytes) -> None:
    """Raises RequestError for a body, valid JSON or not, that costs more to parse than its size allows."""
    if _few_brackets(body) and (
        len(body) <= _SMALL or (body.count(b'"') <= 2 * STRINGS and body.count(b",") <= VALUES)
    ):
        return
    shape = shape_of(body)
    if shape.strings > STRINGS:
        raise _too_many(STRINGS, "strings, keys included")
    if shape.containers > CONTAINERS:
        raise _too_many(CONTAINERS, "objects and lists")
    if shape.commas > VALUES:
        raise _too_many(VALUES, "values")
    if shape.levels > LEVELS:
        raise too_deep()


def _few_brackets(body: bytes) -> bool:
    """Whether there are too few brackets to be deep. It searches for each one: counting them takes longer."""
    found = 0
    for bracket in b"{[":
        at = body.find(bracket)
        while at >= 0 and found <= LEVELS:
            found += 1
            at = body.find(bracket, at + 1)
    return found <= LEVELS


def shape_of(body: bytes) -> JsonShape:
    """Count; the counts after one that is over its bound stay 0. `levels` is at most LEVELS + 1."""
    if b"\\" in body:
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    strings = (body.count(b'"') + 1) // 2
    if strings > STRINGS:
        return JsonShape(0, 0, strings, 0)
    plain = b"".join(body.split(b'"')[::2])
    containers, commas = plain.count(b"[") + plain.count(b"{"), plain.count(b",")
    if containers > CONTAINERS:
        return JsonShape(containers, 0, strings, commas)
    return JsonShape(containers, _levels(plain.translate(_ALIKE, _OTHERS), containers), strings, commas)


def _levels(brackets: bytes, containers: int) -> int:
    """The depth of nesting: how often the innermost pairs can be removed; brackets that never close all count.

    Brackets beyond two for each container are not JSON.
    """
    brackets = brackets[: 2 * containers]
    for level in range(LEVELS + 1):
        rest = brackets.replace(b"[]", b"")
        if len(rest) == len(brackets):
            return max(level, min(rest.count(b"["), LEVELS + 1))
        brackets = rest
    return LEVELS + 1


def too_deep() -> RequestError:
    """The error for a body that is nested too deep, even if it is valid JSON."""
    return RequestError(Code.INVALID_REQUEST, f"The body is nested deeper than {LEVELS} levels.")


def not_json(body: bytes, reason: str) -> RequestError:
    """The error for a body that a parser refused for this reason; a body that is not UTF-8 has an error of its own."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return RequestError(Code.INVALID_JSON, f"The body is not UTF-8: its byte {error.start} begins no character.")
    return RequestError(Code.INVALID_JSON, f"The body is not valid JSON{reason}.")


def _too_many(limit: int, what: str) -> RequestError:
    return RequestError(Code.INVALID_REQUEST, f"The body holds more than {limit} {what}; send fewer.")


CHOICES_PER_PROMPT = 32
"""The limit of `n` and `best_of`: each choice is a sequence of its own in the engine's queue."""
CHOICES_PER_REQUEST = 128
"""The limit over all prompts: with more choices a stream cannot be resumed."""


def too_many_choices(prompts: int, each: int) -> str:
    """Why so many prompts of `each` answers are refused; "" if they are not."""
    if prompts * each <= CHOICES_PER_REQUEST:
        return ""
    held = f"`prompt` holds {prompts} prompts of {each} answers each"
    return f"{held}; at most {CHOICES_PER_REQUEST} are answered at a time."
