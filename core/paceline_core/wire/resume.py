"""How a gateway continues a stream on another worker after the first one was lost.

It sends the client's body again, byte for byte, and right behind it one `Resume` as JSON; the header RESUME says how
many bytes at the body's end that is. So nothing of the client's has to be parsed or changed, and nothing that a client
writes can be taken for it. Like every such header it is believed from the bearer of an internal token alone.

A seed must be the same in both lives. A request that names none gets the one that the gateway sends in SEED, with the
first attempt already; a worker that is sent none draws one, and such a stream has another continuation.

A worker that gives a stream up, though nothing is wrong with it, ends it with the comment MOVED and the reason. It does
so when it is asked to (`Evacuate`), when its time to drain is over, and when its engine has died.
"""

from enum import StrEnum

from pydantic import Field

from paceline_core.json_limits import CHOICES_PER_REQUEST
from paceline_core.wire.message import Message, WireModel

RESUME = "x-paceline-resume"
SEED = "x-paceline-seed"
SUSPECT = "x-paceline-suspect"
"""`<name>;<tokens>`: a worker may have died of this request; so many tokens clear it. A worker takes one at a time."""
VOCABULARY = "x-paceline-vocabulary"
"""With a stream's status: what its ids mean. Only a worker of the same vocabulary can go on with it."""

MOVED = ": moved "
MOVED_HEADER = "x-paceline-moved"
"""The same of what has not begun: the reason, beside the status of an error."""


class MoveReason(StrEnum):
    """Why a worker gives up a stream that can go on elsewhere."""

    DRAIN = "drain"
    EVACUATE = "evacuate"
    ENGINE = "engine"


class ResumedChoice(WireModel):
    """One choice so far: its output ids, and `ended` if the client has the finish reason too.

    `delivered`: the client has the events of so many of these ids; the others brought no event yet, since the worker
    held their text back. None: of all of them. 0 without ids: it has the events that open the choice. Choices beyond
    the last one that is told have said nothing yet.
    """

    ids: list[int]
    ended: bool = False
    delivered: int | None = Field(default=None, ge=0, exclude_if=lambda count: count is None)


class Resume(Message):
    """The stream so far. `id` and `created` are those of its events, which go on unchanged.

    `vocabulary` is what its first worker said in VOCABULARY; "" where it said nothing.
    """

    id: str = Field(max_length=128)
    created: int
    vocabulary: str = Field(default="", max_length=64)
    choices: list[ResumedChoice] = Field(min_length=1, max_length=CHOICES_PER_REQUEST)


class Evacuate(Message):
    """Give these requests up (by x-request-id; None: all of them), once they have had `deadline_ms` to end."""

    requests: list[str] | None = None
    deadline_ms: int = Field(default=0, ge=0, le=3_600_000)


class Evacuated(Message):
    """What became of them: so many were given up."""

    moved: int
