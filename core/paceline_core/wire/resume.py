"""How a gateway continues a stream on another worker after the first one was lost.

It sends the client's body again, byte for byte, and right behind it one `Resume` as JSON; the header RESUME says how
many bytes at the body's end that is. So nothing of the client's has to be parsed or changed, and nothing that a client
writes can be taken for it. Like every such header it is believed from the bearer of a hop token alone.

A seed must be the same in both lives. A request that names none gets the one that the gateway sends in SEED, with the
first attempt already; a worker that is told none draws one, and such a stream has another continuation.
"""

from pydantic import Field

from paceline_core.wire.message import Message, Part

RESUME = "x-paceline-resume"
SEED = "x-paceline-seed"
CHOICES_LIMIT = 128


class ResumedChoice(Part):
    """One choice so far: all output ids whose events the client has; `ended` if it has the finish reason too."""

    ids: list[int]
    ended: bool = False


class Resume(Message):
    """The stream so far. `id` and `created` are those of its events, which go on unchanged."""

    id: str = Field(max_length=128)
    created: int
    choices: list[ResumedChoice] = Field(min_length=1, max_length=CHOICES_LIMIT)
