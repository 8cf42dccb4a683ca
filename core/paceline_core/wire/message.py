"""The frame of every internal message, one JSON object a line, versioned; and the two reports that are streams of it.

Worker -> gateway: `GET /internal/load`, a stream of `LoadReport`, on change and at most 4 a second. The step-time model
(seconds of one engine step from its content) is shared by planner, worker, gateway and autoscaler.

Gateway -> autoscaler: `GET /internal/demand`, a stream of `DemandReport`, once a second and at once when held > 0.
Counts are cumulative since `started` (a gateway's start, RFC 3339 UTC): a lost line costs nothing, a restart is seen.

Prefix keys identify the prefixes of a prompt that the gateway has not tokenized, so that a worker can tell which it has
cached. A key is 16 hex digits, chained: the first one covers the first of REACHES bytes of the prompt's canonical form,
the next one the second, and so on, with the tenant's salt. The header PREFIX has the size in bytes and the keys in
order: `5300;5f0c...,8a1e...`. Only the gateway knows how keys are made. A worker assumes that a key covers the same
share of the prompt's tokens as of its bytes; that is exact enough to find its pages. Within the first 32 KiB every KiB
has its key; beyond, keys are an eighth of a power of two apart, so that the longest prompt has few of them, and the
common prefix of two prompts is known to an eighth.
"""

import re
from bisect import bisect_right
from enum import StrEnum
from math import log2
from typing import Final, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from paceline_core.errors import InvalidInput
from paceline_core.registry.enums import RequestClass

VERSION = 1
LINE_LIMIT = 1 << 20


class WireModel(BaseModel):
    """A part of a message: immutable, unknown fields ignored (an older reader meets a newer writer)."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Message(WireModel):
    """A whole line. `seq` increases by one within a stream, so that a reader sees gaps."""

    v: Literal[1] = 1
    seq: int = 0


M = TypeVar("M", bound=Message)


def encode(message: Message) -> bytes:
    return message.model_dump_json(exclude_defaults=False).encode() + b"\n"


def decode(kind: type[M], line: bytes) -> M:
    """Parse one line; raises InvalidInput on an unknown version or a malformed message."""
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
    """The KV pool in pages; `cached` pages may be taken but hold a reusable prefix."""

    page_tokens: int
    total: int
    free: int
    cached: int = 0


class PrefixDelta(WireModel):
    """Prefix keys (`wire.prefix`) that became reusable or were evicted since the last line; at first there are none."""

    added: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()


class LoadReport(Message):
    """One worker's state. Token counts are prompt tokens not yet computed; `slots` bounds running requests.

    `gateways` read this stream now, the reader included; each keeps at most its share of the slots in flight.
    `cleared`: the last suspects (`wire.SUSPECT`) that made progress here. `engine_restarts`: how often a new engine
    replaced one that had ended. `remaining_tokens`: output tokens that the running requests are still expected to
    produce. `retired`: it drains for a scale-down, and comes back if that does not follow (`wire.Retire`); its state is
    draining meanwhile.
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
    remaining_tokens: int = 0
    retired: bool = False
    prefix: PrefixDelta = PrefixDelta()


PREFIX = "x-paceline-prefix"
ATTRIBUTION: Final = "x-anthropic-billing-header"
"""The start of a block of `system` in which a client describes itself: not part of the prompt, new in each request."""
BLOCK = 1024
_FINE = 32 * BLOCK
_COARSE = tuple((_FINE << double) * eighths // 8 for double in range(8) for eighths in range(9, 17))
REACHES: Final = (*range(BLOCK, _FINE + 1, BLOCK), *_COARSE)
"""How many bytes each key covers, up to 8 MiB."""
_HEADER = re.compile(r"(\d{1,9});([0-9a-f]{16}(?:,[0-9a-f]{16})*)")


class PrefixKeys(NamedTuple):
    """Keys of the prefixes of a prompt of `size` bytes, the shortest first."""

    size: int
    keys: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> "PrefixKeys | None":
        """Parse a header; None if it is invalid or has too many keys: it is a hint that no decision depends on."""
        found = _HEADER.fullmatch(text)
        if found is None:
            return None
        size, keys = int(found[1]), tuple(found[2].split(","))
        return cls(size, keys) if len(keys) <= len(reaches(size)) else None

    def header(self) -> str:
        """The header that `read` parses."""
        return f"{self.size};{','.join(self.keys)}"

    def tokens(self, count: int) -> list[tuple[str, int]]:
        """Each key, and how many of a prompt's `count` tokens it covers."""
        return [(key, count * reach // self.size) for key, reach in zip(self.keys, REACHES, strict=False)]


def reaches(size: int) -> tuple[int, ...]:
    """The bytes that each key of a prompt of `size` bytes covers."""
    return REACHES[: bisect_right(REACHES, size)]


class ClassDemand(WireModel):
    """One class of one service, for one tenant; the rows of a class add up to it.

    `tenant` is `_other` for those beyond a gateway's cap and for requests that moved to another service, empty for all.
    `completed` requests were answered in full, with `output_tokens`. Where workers count tokens, their prompts had
    `completed_prompt_tokens`, of which `cached_tokens` needed no computation. `attended_pairs`: pairs of tokens that
    prefill attended to, u·(p - u/2) for a prompt of p tokens of which u were computed. `kv_reads`: KV tokens that
    decode steps read, o·(p + o/2) for o output tokens.
    `overdue_prompt_tokens`: of queued requests that are too late for their targets.
    """

    name: RequestClass
    tenant: str = ""
    arrivals: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    completed: int = 0
    completed_prompt_tokens: int = 0
    cached_tokens: int = 0
    attended_pairs: int = 0
    kv_reads: int = 0
    queued: int = 0
    queued_prompt_tokens: int = 0
    overdue_prompt_tokens: int = 0
    oldest_wait_s: float = 0.0
    nearest_deadline_s: float | None = None
    held: int = 0
    in_flight: int = 0
    good: int = 0
    bad: int = 0


LENGTH_BUCKETS = 40


def length_bucket(tokens: int) -> int:
    """The bucket of a length of one token or more: bucket n is from 2^(n/2) to below 2^((n+1)/2)."""
    return min(int(2 * log2(tokens)), LENGTH_BUCKETS - 1)


class ClassLengths(WireModel):
    """How long the completed requests of one class were, cumulative, where workers count tokens.

    `prompts`, `outputs`: requests by `length_bucket`. `cached_tokens`: prompt tokens that needed no computation.
    """

    name: RequestClass
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    prompts: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()


class Isolated(WireModel):
    """A request that two workers died of, refused `at` (RFC 3339 UTC); `worker`: the one that died last."""

    tenant: str
    request: str
    worker: str
    at: str


class ServiceDemand(WireModel):
    """All classes of one service (`namespace/name`). `workers` is the number of load streams of this gateway.

    `isolated`: the last few requests that this gateway isolated, in every line. `lengths`: of classes that have
    some, in a line now and then.
    """

    service: str
    classes: tuple[ClassDemand, ...] = ()
    workers: int = 0
    isolated: tuple[Isolated, ...] = ()
    lengths: tuple[ClassLengths, ...] = ()


class DemandReport(Message):
    gateway: str
    started: str
    services: tuple[ServiceDemand, ...] = ()
