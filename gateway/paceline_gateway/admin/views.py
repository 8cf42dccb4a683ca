"""The admin port's answers as plain data, which `paceline top` reads too. Readers ignore unknown fields.

Seconds, bytes and tokens; money as decimal strings. They contain no key, secret, prompt or answer.
"""

from enum import StrEnum
from typing import Literal

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import WorkerState
from paceline_core.wire.message import WireModel
from paceline_gateway.routing.circuit_breaker import BreakerState
from paceline_gateway.routing.worker import WorkerHealth


class Page(WireModel):
    """A part of a sorted list. `truncated`: more of the `total` follow; continue with `after`, the last one's name."""

    v: Literal[1] = 1
    gateway: str
    time: str
    total: int
    truncated: bool


class Amount(WireModel):
    """One limit per minute, or of concurrent requests. None: there is no limit, or what is left is unknown.

    used: taken and not refilled yet, including what open requests here have `reserved`; reset_s: until all is refilled.
    """

    limit: float | None = None
    used: float | None = None
    reserved: float = 0.0
    remaining: float | None = None
    reset_s: float | None = None


class Month(WireModel):
    """Month to date, of all gateways as far as known; `reserved_*`: what open requests here may use of a budget."""

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
    """One tenant. `open` requests are `queued` or at a worker; `asking` ones wait for the shared counters."""

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
    """`shared`: gateways share their counters; `away`: the store is unreachable, and each serves its own share."""

    shared: bool
    away: bool
    tenants: tuple[TenantView, ...]


class LineTenant(WireModel):
    """A tenant in a queue: its waiting requests, their tokens, its `share` of a full queue, its fair `counter`."""

    tenant: str
    waiting: int
    share: float
    cost_tokens: int
    counter: float


class Line(WireModel):
    """One class's queue. `wait_s`: until it has drained at its rate, None if unknown; `tenants` are the largest."""

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
    """One service's queues. `reserved_slots`: slots that other classes leave free for interactive requests.

    `overloaded`: batch and offline requests are deferred, and new offline ones refused.
    """

    service: str
    waiting: int
    held: int
    held_limit: int
    size_bytes: int
    size_limit: int
    reserved_slots: int
    overloaded: bool
    lines: tuple[Line, ...]


class Queues(Page):
    """By service."""

    queues: tuple[Queue, ...]


class WorkerView(WireModel):
    """One worker as this gateway sees it; None where it has not reported.

    share: this gateway's part of its slots; open_slots: how many of them may be used now (slow start); taken: requests
    ever dispatched to it; backlog: prompt tokens to compute; pause_s: until its circuit breaker allows a probe.
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
    """One target: this quantile of a class's requests stays below these seconds, for a prompt of mean length."""

    metric: str
    quantile: float
    seconds: float


class HistogramView(WireModel):
    """A histogram since the start: counts above the previous bound and at most each bound; the last has no bound."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]


class ClassView(WireModel):
    """One class since the start. Prompt tokens are estimated from the bodies on arrival, so they differ from what
    tenants have used; output tokens count when their answer has ended. `streaming_tokens` are those so far of answers
    that have not ended; that number can fall.
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
    """One service; `bytes_per_token` is the median learned from its tenants' prompts."""

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
    """The stages of a drain, in order."""

    SERVING = "serving"
    SETTLING = "settling"
    """New requests are accepted while load balancers notice the drain."""
    DRAINING = "draining"
    """New connections are refused, open streams run on."""
    CUTTING = "cutting"
    """The rest is being ended."""


class DrainView(WireModel):
    """The progress of a drain: `open` requests, `connections` with a request under way, the stage's remaining time."""

    stage: DrainStage
    open: int
    connections: int
    left_s: float | None


class LogLevel(WireModel):
    """`usual` is the level at the start of the process, which returns after `left_s`; None: this level stays."""

    level: str
    usual: str
    left_s: float | None = None
