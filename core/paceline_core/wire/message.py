"""The frame of every internal message, one JSON object a line, versioned; and the two reports that are streams of it.

Worker -> gateway: `GET /internal/load`, a stream of `LoadReport`, on change and at most 4 a second. The step-time model
(seconds of one engine step from its content) is shared by planner, worker, gateway and autoscaler.

Gateway -> autoscaler: `GET /internal/demand`, a stream of `DemandReport`, once a second and at once when held > 0.
Counts are cumulative since `started` (a gateway's start, RFC 3339 UTC): a lost line costs nothing, a restart is seen.

Prefix keys name the beginnings of a prompt that the gateway has not tokenized, so that a worker can tell which it has.
A key is 16 hex digits, chained: the first one stands for the first of REACHES bytes of the prompt as the gateway writes
it down, the next one for the second, and so on, under the tenant's salt. The header PREFIX carries how many bytes there
are in all and the keys in order: `5300;5f0c...,8a1e...`. Only the gateway knows how keys are made. A worker takes a
key to cover the same share of the prompt's tokens as of its bytes; that is near enough to say which pages it is about.
Within the first 32 KiB every KiB has its key; beyond, keys stand an eighth of a power of two apart, so that the
longest prompt has not many of them, and what two prompts share is known to an eighth.
"""

import re
from bisect import bisect_right
from enum import StrEnum
from typing import Final, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from paceline_core.errors import InvalidInput
from paceline_core.registry.enums import RequestClass

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


class StepTime(WireModel):
    """`base + prefill * p + sequence * b + kv * k + context * p * c`.

    p: prefill tokens in the step; b: sequences; k: KV tokens read by all sequences; c: mean context of the prefill
    tokens. Coefficients in seconds (per token, per sequence, per token pair). `observations` is 0 for a prior.
    """

    base: float
    prefill: float
    sequence: float = 0.0
    kv: float = 0.0
    context: float = 0.0
    observations: int = 0

    def seconds(self, *, prefill_tokens: int, sequences: int, kv_tokens: int, context: float = 0.0) -> float:
        """Predicted seconds of one step; never negative."""
        linear = self.base + self.prefill * prefill_tokens + self.sequence * sequences + self.kv * kv_tokens
        return max(linear + self.context * prefill_tokens * context, 0.0)


class WorkerState(StrEnum):
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


PREFIX = "x-paceline-prefix"
ATTRIBUTION: Final = "x-anthropic-billing-header"
"""Begins a block of `system` in which a client tells of itself: no part of the prompt, and new in each request."""
BLOCK = 1024
_FINE = 32 * BLOCK
_COARSE = tuple((_FINE << double) * eighths // 8 for double in range(8) for eighths in range(9, 17))
REACHES: Final = (*range(BLOCK, _FINE + 1, BLOCK), *_COARSE)
"""How many bytes each key stands for, up to 8 MiB."""
_HEADER = re.compile(r"(\d{1,9});([0-9a-f]{16}(?:,[0-9a-f]{16})*)")


class PrefixKeys(NamedTuple):
    """Keys of the beginnings of a prompt of `size` bytes, the shortest first."""

    size: int
    keys: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> "PrefixKeys | None":
        """From a header; None if it is none, or names more than there can be: it is a hint, and nothing rests on it."""
        found = _HEADER.fullmatch(text)
        if found is None:
            return None
        size, keys = int(found[1]), tuple(found[2].split(","))
        return cls(size, keys) if len(keys) <= len(reaches(size)) else None

    def header(self) -> str:
        """What `read` reads."""
        return f"{self.size};{','.join(self.keys)}"

    def tokens(self, count: int) -> list[tuple[str, int]]:
        """Each key, and how many of a prompt's `count` tokens it covers."""
        return [(key, count * reach // self.size) for key, reach in zip(self.keys, REACHES, strict=False)]


def reaches(size: int) -> tuple[int, ...]:
    """What keys of a prompt of so many bytes stand for."""
    return REACHES[: bisect_right(REACHES, size)]


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
