"""Worker -> gateway: `GET /internal/load`, a stream of these lines, on change and at most 4 a second."""

from enum import StrEnum

from paceline_core.registry.enums import RequestClass
from paceline_core.wire.message import Message, WireModel
from paceline_core.wire.steptime import StepTime


class WorkerState(StrEnum):
    """A worker's own word on itself."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


class KVLoad(WireModel):
    """The KV pool in pages; `cached` pages are free to take but hold a reusable prefix."""

    page_tokens: int
    total: int
    free: int
    cached: int = 0


class PrefixDelta(WireModel):
    """Prefix keys (`wire.prefix`) that became reusable or were evicted since the last line; at first there are none."""

    added: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()


class LoadReport(Message):
    """How one worker is. Token counts are prompt tokens not yet computed; `slots` bounds running requests.

    `gateways` read this stream now, the reader included; each keeps at most its share of the slots in flight.
    `cleared`: the last suspects (`wire.SUSPECT`) that have got on here. `engine_restarts`: how often another engine was
    started in the place of one that had ended.
    """

    worker: str
    service: str
    revision: str
    pool: str
    state: WorkerState
    emulated: bool = False
    slots: int
    running: int = 0
    waiting: dict[RequestClass, int] = {}
    queued_tokens: dict[RequestClass, int] = {}
    kv: KVLoad
    step_time: StepTime
    max_model_len: int
    gateways: int = 1
    engine_restarts: int = 0
    cleared: tuple[str, ...] = ()
    prefix: PrefixDelta = PrefixDelta()
