"""Bodies: JSON that is long to read, deep, odd, or not JSON at all."""

import json
from collections.abc import Callable, Iterator

from benchmarks.attacks.case import Case, Key, Kind, Parts, parts
from benchmarks.attacks.wire import BODY, CHAT, COMPLETIONS, MB, chat, post

FULL = BODY - (64 << 10)
"""Of repeated text, so that the fields around it still fit."""
_MESSAGE = '{"role": "user", "content": "a"},'
_PART = '{"type": "text", "text": "a"},'


def kinds() -> Iterator[Kind]:
    """All of them."""
    yield Kind("body: brackets as arrays", "depth, and work for each container", tuple(_nested("[", "]")))
    yield Kind("body: brackets as objects", "the same with keys", tuple(_nested('{"a":', "}")))
    yield Kind("body: brackets, mixed", "the same in turn", tuple(_nested('[{"a":', "}]")))
    yield Kind("body: brackets in strings", "a count that takes text for containers", tuple(_texts()))
    yield Kind("body: empty containers", "an object in memory for each two bytes", tuple(_flat()))
    yield Kind("body: content parts", "checks for each part", tuple(_long(_parts_of)))
    yield Kind("body: messages", "checks for each message", tuple(_long(_messages_of)))
    yield Kind("body: keys", "a table of keys", tuple(_keys()))
    yield Kind("body: numbers", "digits", tuple(_numbers()))
    yield Kind("body: the same key again", "readers that disagree", tuple(_doubled()))
    yield Kind("body: no end", "text that never ends", tuple(_open()))
    yield Kind("body: not UTF-8", "decoding", tuple(_bytes()))
    yield Kind("body: escapes", "texts that shrink or grow when read", tuple(_escapes()))
    yield Kind("body: from a tenant with nothing left", "work for who may not ask", tuple(_for_nothing()))


def _case(name: str, body: Parts, key: Key = Key.GUEST, connections: int = 2) -> Case:
    return Case(name, post(CHAT, body, key=key), key=key, connections=connections)


def _nested(begin: str, end: str) -> Iterator[Case]:
    wide = (begin * 120 + "1" + end * 120 + ",", FULL // (120 * len(begin + end) + 2))
    yield _case("120 deep side by side", chat('"metadata": [', wide, "1]"))
    for size in (FULL, MB):
        count = size // len(begin + end)
        yield _case(f"{size // 1000} kB, closed", chat('"metadata": ', (begin, count), "1", (end, count)))
    yield _case("8 MB, open", parts((begin, FULL // len(begin))))


def _texts() -> Iterator[Case]:
    yield _case("8 MB of [", chat('"metadata": "', ("[", FULL), '"'))
    yield _case(r"8 MB of \"[", chat('"metadata": "', ('\\"[', FULL // 3), '"'))
    yield _case(
        "in a message", parts('{"model": "chat", "messages": [{"role": "user", "content": "', ("[{", MB), '"}]}')
    )
    yield _case("as a key", chat('"', ("[", FULL), '": 1'))


def _flat() -> Iterator[Case]:
    for unit in ("[],", "{},", "[[],{}],", '{"a":[]},'):
        yield _case(f"8 MB of {unit}", chat('"metadata": [', (unit, FULL // len(unit)), "1]"))


def _parts_of(count: int) -> Parts:
    content = parts('"messages": [{"role": "user", "content": [', (_PART, count - 1), _PART[:-1], "]}]")
    return parts('{"model": "chat", "max_tokens": 1, ', content, "}")


def _messages_of(count: int) -> Parts:
    return parts('{"model": "chat", "max_tokens": 1, "messages": [', (_MESSAGE, count - 1), _MESSAGE[:-1], "]}")


def _long(made: Callable[[int], Parts]) -> Iterator[Case]:
    for count in (250_000, 20_000, 2_049):
        yield _case(f"{count:,}", made(count))
    yield Case("250,000, eight at once", post(CHAT, made(250_000)), connections=8)


def _keys() -> Iterator[Case]:
    distinct = ", ".join(f'"key{number}": 1' for number in range(400_000))
    yield _case("400,000 of the body", chat(distinct))
    yield _case("400,000 of metadata", chat('"metadata": {', distinct, "}"))
    yield _case("as bias", chat('"logit_bias": {', ", ".join(f'"{number}": 1' for number in range(400_000)), "}"))


def _numbers() -> Iterator[Case]:
    yield _case("8 MB of digits", chat('"seed": ', ("9", FULL)))
    yield _case("8 MB behind the point", chat('"temperature": 0.', ("3", FULL)))
    yield _case("1e999999999", chat('"temperature": 1e999999999'))
    yield _case("10^6 digits of n", chat('"n": ', ("1", 1_000_000)))
    yield _case("a million numbers", chat('"metadata": [', ("-1.5e-300,", FULL // 10), "1]"))
    yield _case("NaN and Infinity", chat('"temperature": NaN, "top_p": Infinity'))


def _doubled() -> Iterator[Case]:
    yield _case("model, 400,000 times", chat(('"model": "chat",', 400_000), '"model": "chat"'))
    yield _case("model, then another", chat('"model": "demo"'))
    yield _case("messages, 100,000 times", chat(('"messages": [{"role": "user", "content": "a"}],', 100_000), '"n": 1'))


def _open() -> Iterator[Case]:
    yield _case("a string of 8 MB", parts('{"model": "chat", "messages": "', ("a", FULL)))
    yield _case("an array of 8 MB", parts('{"model": "chat", "messages": [', ("1,", FULL // 2)))
    yield _case("blanks", parts((" ", FULL)))
    yield _case("an escape", parts('{"model": "chat", "messages": "', ("\\\\", FULL // 2), "\\"))
    yield _case("nothing", ())


def _bytes() -> Iterator[Case]:
    for name, unit in {"0xff": b"\xff", "half a character": b"\xe2\x82", "a surrogate": b"\xed\xa0\x80"}.items():
        yield _case(f"8 MB of {name}", parts('{"model": "chat", "messages": "', (unit, FULL // len(unit)), '"}'))
    yield _case("NUL", parts((b"\x00", FULL)))
    yield _case("UTF-16", parts('{"model": "chat"}'.encode("utf-16")))


def _escapes() -> Iterator[Case]:
    for unit in ("\\u0000", "\\ud83d\\ude00", "\\ud800", "\\\\", "\\n"):
        text = (unit, FULL // len(unit))
        yield _case(f"8 MB of {unit}", parts('{"model": "chat", "max_tokens": 1, "prompt": "', text, '"}'))


def _for_nothing() -> Iterator[Case]:
    zero = Key.ZERO
    yield _case("brackets", chat('"metadata": ', ("[", FULL // 2), ("]", FULL // 2)), zero)
    yield _case("objects", chat('"metadata": ', ('{"a":', FULL // 6), "1", ("}", FULL // 6)), zero)
    yield _case("messages", _messages_of(250_000), zero)
    yield _case("parts", _parts_of(250_000), zero)
    yield _case("a text of 8 MB", parts('{"model": "chat", "messages": "', ("a", FULL), '"}'), zero)
    prompt = json.dumps({"model": "chat", "prompt": [1] * 1000})
    yield Case("ids", post(COMPLETIONS, parts(prompt), key=zero), key=zero, connections=16)
