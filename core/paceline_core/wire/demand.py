"""Gateway -> autoscaler: `GET /internal/demand`, a stream of these lines, once a second and at once when held > 0.

Counts are cumulative since `started` (a gateway's start, RFC 3339 UTC): a lost line costs nothing, a restart is seen.
"""

from paceline_core.registry.enums import RequestClass
from paceline_core.wire.message import Message, WireModel


class ClassDemand(WireModel):
    """One class of one service, for one tenant; the rows of a class add up to it.

    `tenant` is `_other` for those beyond a gateway's cap and for what went to another service, empty for all of them.
    """

    name: RequestClass
    tenant: str = ""
    arrivals: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    completed: int = 0
    queued: int = 0
    queued_prompt_tokens: int = 0
    oldest_wait_s: float = 0.0
    nearest_deadline_s: float | None = None
    held: int = 0
    in_flight: int = 0
    good: int = 0
    bad: int = 0


class Isolated(WireModel):
    """A request that two workers died of, refused `at` (RFC 3339 UTC); `worker`: the one that died last."""

    tenant: str
    request: str
    worker: str
    at: str


class ServiceDemand(WireModel):
    """All classes of one service (`namespace/name`). `workers` is how many load streams this gateway holds.

    `isolated`: the last few of its requests that this gateway isolated, in every line.
    """

    service: str
    classes: tuple[ClassDemand, ...] = ()
    workers: int = 0
    isolated: tuple[Isolated, ...] = ()


class DemandReport(Message):
    gateway: str
    started: str
    services: tuple[ServiceDemand, ...] = ()
