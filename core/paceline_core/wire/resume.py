"""How a gateway resumes a stream at another worker after the first one was lost.

It sends the client's body again, byte for byte, followed by one `Resume` as JSON; the header RESUME has the length of
that in bytes. So no part of the client's body has to be parsed or changed, and nothing that a client writes can be
taken for it. Like every such header it is accepted only with an internal token.

Both workers need the same seed. A request without a seed gets the one that the gateway sends in SEED, from the first
attempt on; a worker that gets none draws one, and such a stream continues differently.

A worker that releases a healthy stream ends it with the comment MOVED and the reason. It does so on request
(`Evacuate`), when its time to drain is over, and when its engine has died.
"""

from enum import StrEnum

from pydantic import Field

from paceline_core.json_limits import CHOICES_PER_REQUEST
from paceline_core.wire.message import Message, WireModel

RESUME = "x-paceline-resume"
SEED = "x-paceline-seed"
SUSPECT = "x-paceline-suspect"
"""`<name>;<tokens>`: a worker may have died of this request; this many tokens clear it. One at a time at a worker."""
VOCABULARY = "x-paceline-vocabulary"
"""With a stream's status: what its ids mean. Only a worker with the same vocabulary can resume it."""

MOVED = ": moved "
MOVED_HEADER = "x-paceline-moved"
"""The same for a request that has not begun: the reason, with the status of an error."""


class MoveReason(StrEnum):
    """Why a worker releases a stream that can resume elsewhere."""

    DRAIN = "drain"
    EVACUATE = "evacuate"
    ENGINE = "engine"


class ResumedChoice(WireModel):
    """One choice so far: its output ids, and `ended` if the client has the finish reason too.

    `delivered`: the client has the events of this many ids; the others brought no event yet, since the worker held
    their text back. None: of all of them. 0 without ids: it has the events that open the choice. Choices beyond the
    last one listed have no output yet.
    """

    ids: list[int]
    ended: bool = False
    delivered: int | None = Field(default=None, ge=0, exclude_if=lambda count: count is None)


class Resume(Message):
    """The stream so far. `id` and `created` are those of its events and do not change.

    `vocabulary` is the value of VOCABULARY from its first worker; "" if it sent none.
    """

    id: str = Field(max_length=128)
    created: int
    vocabulary: str = Field(default="", max_length=64)
    choices: list[ResumedChoice] = Field(min_length=1, max_length=CHOICES_PER_REQUEST)


class Evacuate(Message):
    """Release these requests (by x-request-id; None: all of them) if they have not ended after `deadline_ms`."""

    requests: list[str] | None = None
    deadline_ms: int = Field(default=0, ge=0, le=3_600_000)


class Evacuated(Message):
    """The result: the number of released requests."""

    moved: int
