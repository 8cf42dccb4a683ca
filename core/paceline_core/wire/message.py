"""The frame of every internal message: one JSON object a line, versioned."""

from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from paceline_core.errors import InvalidInput

VERSION = 1
LINE_LIMIT = 1 << 20


class WireModel(BaseModel):
    """A piece of a message: immutable, unknown fields ignored (an older reader meets a newer writer)."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Message(WireModel):
    """A whole line. `seq` grows by one within a stream, so that a reader sees gaps."""

    v: Literal[1] = 1
    seq: int = 0


M = TypeVar("M", bound=Message)


def encode(message: Message) -> bytes:
    """One line of JSON, newline included."""
    return message.model_dump_json(exclude_defaults=False).encode() + b"\n"


def decode(kind: type[M], line: bytes) -> M:
    """Read one line; raises InvalidInput on an unknown version or a malformed message."""
    if len(line) > LINE_LIMIT:
        raise InvalidInput("", f"a message of {len(line)} bytes is over the limit of {LINE_LIMIT}")
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInput(".".join(str(part) for part in first["loc"]), first["msg"]) from None
