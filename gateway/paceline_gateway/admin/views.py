"""What the admin port answers: plain data that `paceline top` reads too. Unknown fields are ignored by readers.

Seconds, bytes and tokens; money as decimal strings. No key, secret, prompt or answer stands in any of them.
"""

from enum import StrEnum
from typing import Literal

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import WorkerState
from paceline_core.wire.message import WireModel
from paceline_gateway.routing.circuit_breaker import BreakerState
from paceline_gateway.routing.worker import WorkerHealth


class Page(WireModel):
    """A part of a sorted list. `truncated`: there are more of `total` behind the last one; ask on with `after`."""

    v: Literal[1] = 1
    gateway: str
    time: str
    total: int
    truncated: bool


class Amount(WireModel):
    """One limit of the minute, or of requests at once. None: there is no limit, or nothing is known of what is left.

    used: taken and not refilled yet, what open requests here have `reserved` included; reset_s: until it is all there.
    """

    limit: float | None = None
    used: float | None = None
    reserved: float = 0.0
    remaining: float | None = None
    reset_s: float | None = None


class Month(WireModel):
    """Month to date, of all gateways as far as is known; `reserved_*`: what open requests here may use of a budget."""

    month: str
    requests: int
    input_tokens: int
    output_tokens: int
    dollars: str
    tokens_limit: int | None = None
    dollars_limit: str | None = None
    reserved_tokens: int = 0
    reserved_dollars: str = "0"


class TenantView(WireModel):
    """One tenant. `open` requests are `queued` in a line or at a worker; `asking` ones wait for the shared counters."""

    tenant: str
    weight: int
    default_class: RequestClass
    on_store_failure: str
    requests: Amount
    input_tokens: Amount
    output_tokens: Amount
    concurrency: Amount
    month: Month
    open: int
    queued: int
    in_flight: int
    asking: int


class Tenants(Page):
    """`shared`: gateways count in one place; `away`: it cannot be reached, and each serves its own share."""

    shared: bool
    away: bool
    tenants: tuple[TenantView, ...]


class LineTenant(WireModel):
    """A tenant in a line: how many wait, for how many tokens, its `share` of a full line, its fair `counter`."""

    tenant: str
    waiting: int
    share: float
    cost_tokens: int
    counter: float


class Line(WireModel):
    """One class's line. `wait_s`: until it has gone at its pace, None where that is unknown; of tenants the largest."""

    name: RequestClass
    waiting: int
    limit: int
    size_bytes: int
    prompt_tokens: int
    oldest_s: float
    deadline_s: float | None
    wait_s: float | None
    in_flight: int
    tenants_total: int
    truncated: bool
    tenants: tuple[LineTenant, ...]


class Queue(WireModel):
    """One service's waiting room. `reserved_slots` are left free for interactive requests by the other classes."""

    service: str
    waiting: int
    held: int
    held_limit: int
    size_bytes: int
    size_limit: int
    reserved_slots: int
    lines: tuple[Line, ...]


class Queues(Page):
    """By service."""

    queues: tuple[Queue, ...]


class WorkerView(WireModel):
    """One worker as this gateway sees it; None where it has not said.

    share: of its slots what is this gateway's; open_slots: how many of them it is given now (a slow start); taken:
    requests that ever went there; backlog: prompt tokens to compute; pause_s: until its circuit breaker lets one try.
    """

    service: str
    worker: str
    pool: str
    revision: str
    track: str
    address: str
    state: WorkerHealth
    reported: WorkerState | None
    emulated: bool
    slots: int | None
    share: int
    open_slots: int
    in_flight: int
    running: int | None
    waiting: int | None
    taken: int
    backlog_tokens: int
    backlog_by_class: dict[RequestClass, int]
    backlog_s: float
    kv_tokens: int
    kv_total: int
    circuit: BreakerState
    pause_s: float
    prefix_bytes: int
    heard_s_ago: float | None


class Workers(Page):
    """By service and name."""

    workers: tuple[WorkerView, ...]


class SloTargetView(WireModel):
    """One target: this quantile of a class's requests stays below so many seconds."""

    metric: str
    quantile: float
    seconds: float


class HistogramView(WireModel):
    """A histogram since the start: how many were at most each bound and above the one before; the last has none."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]


class ClassView(WireModel):
    """One class since the start. Prompt tokens are those estimated of bodies when they came, so other than what tenants
    have used; output tokens count when their answer has ended. `streaming_tokens` are those so far of answers that have
    not, which is no count that only grows.
    """

    name: RequestClass
    promises: tuple[SloTargetView, ...]
    arrivals: int
    completed: int
    good: int
    bad: int
    prompt_tokens: int
    output_tokens: int
    streaming_tokens: int = 0
    queued: int
    in_flight: int
    ttft: HistogramView
    tpot: HistogramView


class ServiceView(WireModel):
    """One service; `bytes_per_token` is the median of what was learned of its tenants' prompts."""

    service: str
    model: str
    emulated: bool
    held: int
    workers: dict[WorkerHealth, int]
    bytes_per_token: float
    classes: tuple[ClassView, ...]


class Services(Page):
    """By name."""

    services: tuple[ServiceView, ...]


class DrainStage(StrEnum):
    """The steps of an end, in their order."""

    SERVING = "serving"
    SETTLING = "settling"
    """New work is still taken, while load balancers learn of the end."""
    DRAINING = "draining"
    """New connections are turned away, open streams run on."""
    CUTTING = "cutting"
    """The rest is being ended."""


class DrainView(WireModel):
    """How far the end is: `open` requests, `connections` with one under way, and what is left of the stage at most."""

    stage: DrainStage
    open: int
    connections: int
    left_s: float | None


class LogLevel(WireModel):
    """`usual` is what the process was started with; after `left_s` it is that again. None: it stays."""

    level: str
    usual: str
    left_s: float | None = None
