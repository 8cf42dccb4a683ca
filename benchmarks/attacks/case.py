"""The nouns of an attack: what is sent, to which port, with whose key, and within which bounds.

A message is written down as parts, each some bytes and how often they follow one another, so that eight megabytes of
brackets are one line. `$NAME` in a part stands for a key or token that exists only while the processes run, `$NUMBER`
for eight digits that differ from one message to the next.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

NUMBER = b"$NUMBER"
DIGITS = 8
Parts = tuple[tuple[bytes, int], ...]


class Port(StrEnum):
    """Where it goes."""

    PUBLIC = "public"
    ADMIN = "admin"
    WORKER = "worker"


class Key(StrEnum):
    """Whose key is sent; `ZERO` belongs to a tenant that may use nothing."""

    NONE = "none"
    WRONG = "wrong"
    ZERO = "zero"
    GUEST = "guest"


class Reads(StrEnum):
    """What becomes of the answers."""

    ALL = "all"
    FIRST = "first"
    """The connection is reset once an answer has begun."""
    NOTHING = "nothing"


class Model(StrEnum):
    """`EMULATED` has an H100's pace and computes nothing, `REAL` is the demo model on the CPU."""

    EMULATED = "chat"
    REAL = "demo"


@dataclass(frozen=True, slots=True)
class Case:
    """One attack. All of `opening` and then `repeated` again and again are written over each of `connections`.

    `rate` and `limit` are bytes a second and bytes of all connections together, `piece` the bytes of one write.
    `again`: an answer is followed by the same message over the same connection, or over a new one where it was closed.
    `key` has the names in `$NAME`; `model` is the one that the neighbour's streams come from meanwhile.
    """

    name: str
    opening: Parts
    repeated: Parts = ()
    port: Port = Port.PUBLIC
    key: Key = Key.GUEST
    model: Model = Model.EMULATED
    connections: int = 4
    rate: int | None = None
    limit: int = 128 << 20
    piece: int = 1 << 16
    reads: Reads = Reads.ALL
    again: bool = True

    @property
    def size(self) -> int:
        """Bytes of one opening, or of one round of what is repeated."""
        return length(self.opening) + length(self.repeated)


@dataclass(frozen=True, slots=True)
class Kind:
    """`aim`: what its cases would use up or break if nothing bounded it."""

    name: str
    aim: str
    cases: tuple[Case, ...]


def parts(*given: str | bytes | tuple[str | bytes, int] | Parts) -> Parts:
    """Parts from texts, repeated texts and other parts."""
    found: list[tuple[bytes, int]] = []
    for one in given:
        match one:
            case str() | bytes():
                found.append((_bytes(one), 1))
            case (str() | bytes() as text, int(count)):
                found.append((_bytes(text), count))
            case _:
                found += one
    return tuple(found)


def length(given: Parts) -> int:
    """Bytes, once numbers are filled in. `$NAME` stands in heads alone, whose length nobody announces."""
    return sum((len(text) + text.count(NUMBER) * (DIGITS - len(NUMBER))) * count for text, count in given)


def written(given: Parts, names: Mapping[str, str], number: int) -> bytes:
    """As it goes over the wire."""
    return b"".join(_filled(text, names, number) * count for text, count in given)


def _filled(text: bytes, names: Mapping[str, str], number: int) -> bytes:
    if b"$" not in text:
        return text
    text = text.replace(NUMBER, b"%0*d" % (DIGITS, number))
    for name, value in names.items():
        text = text.replace(f"${name}".encode(), value.encode())
    return text


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()
