"""How the autoscaler retires a worker before it lowers a scale: `POST` and `DELETE /internal/retire`.

A retired worker is unready, refuses new requests as a draining one does, and finishes the requests that it has. A
ReplicaSet removes pods that are not ready before it compares anything else of them, so it removes this one. Until then
the worker can come back: on request, or when its time is over and nobody has renewed it.
"""

from typing import Final

from pydantic import Field

from paceline_core.wire.message import Message

RETIRE_PATH: Final = "/internal/retire"
RETIRE_LIMIT_S: Final = 30.0
"""The longest time of one request, so that a worker whose autoscaler has died serves again soon."""


class Retire(Message):
    """Be retired for so many seconds from now."""

    seconds: float = Field(gt=0, le=RETIRE_LIMIT_S)


class Retired(Message):
    """The answer to both requests: whether the worker is retired now. One that drains for good is not."""

    retired: bool
