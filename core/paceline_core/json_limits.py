"""How large a request's body may be as JSON, beside its bytes: at gateway and worker alike, before it is parsed.

A parser makes an object for each list, key and number, so 8 MB of brackets cost seconds where 8 MB of text cost
milliseconds. The bounds are counted on the bytes, by calls that run in C: escapes are taken out, then strings by their
quotes, then what is left is counted. A bracket inside a string never counts. Up to the first byte that is not JSON,
the count is exact; a parser stops there, so a bound that holds for the count holds for what any parser makes.
JSON readers have limits of depth of their own, each another one; LEVELS is below all of them.
Cost on one core: 1 us for a chat of 2 KB, at most 50 ms for 8 MiB (nothing but escaped quotes). The worst body that
passes, a million numbers, parses in 50 ms.

How many answers a request may ask for. The gateway refuses more before it reserves quota, a worker before it runs.

Invariant: gateway and workers take the same numbers, so what the gateway reserves for, a worker takes.
"""

from typing import NamedTuple

from paceline_core.errors import Code, RequestError

LEVELS = 128
CONTAINERS = 32_768
"""Objects and lists. A chat of 2,048 messages, each of three parts, has 10,241."""
STRINGS = 131_072
"""Keys count too."""
VALUES = 1 << 20
"""Entries of lists and objects, by their commas: a prompt of a million token ids passes."""
_SMALL = 3 * STRINGS
"""A body of so many bytes cannot hold more strings than STRINGS, nor more commas than VALUES."""
_ALIKE = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))


class JsonShape(NamedTuple):
    """Objects that a parser would make of a body. `strings` counts keys too, `commas` stands for the entries."""

    containers: int
    levels: int
    strings: int
    commas: int


def check_shape(body: bytes) -> None:
    """Raises RequestError where a body, valid JSON or not, is more to parse than its bytes are worth."""
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
    """Whether there are too few to be deep, wherever they stand. Looks for each: to count them takes longer."""
    found = 0
    for bracket in b"{[":
        at = body.find(bracket)
        while at >= 0 and found <= LEVELS:
            found += 1
            at = body.find(bracket, at + 1)
    return found <= LEVELS


def shape_of(body: bytes) -> JsonShape:
    """Count; what comes after a count that is over its bound is left at 0. `levels` is at most LEVELS + 1."""
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
    """How deep they lie in each other: how often the innermost pairs can be taken out; of those never closed, all.

    What is beyond two brackets a container is no JSON.
    """
    brackets = brackets[: 2 * containers]
    for level in range(LEVELS + 1):
        rest = brackets.replace(b"[]", b"")
        if len(rest) == len(brackets):
            return max(level, min(rest.count(b"["), LEVELS + 1))
        brackets = rest
    return LEVELS + 1


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


def _too_many(limit: int, what: str) -> RequestError:
    return RequestError(Code.INVALID_REQUEST, f"The body holds more than {limit} {what}; send fewer.")


CHOICES_PER_PROMPT = 32
"""Of `n` and `best_of`: each is a sequence of its own in the engine's queue."""
CHOICES_PER_REQUEST = 128
"""Of all prompts together: as many as a stream can be resumed with."""


def too_many_choices(prompts: int, each: int) -> str:
    """Return why so many prompts of so many answers each are refused, "" if they are not."""
    if prompts * each <= CHOICES_PER_REQUEST:
        return ""
    held = f"`prompt` holds {prompts} prompts of {each} answers each"
    return f"{held}; at most {CHOICES_PER_REQUEST} are answered at a time."
