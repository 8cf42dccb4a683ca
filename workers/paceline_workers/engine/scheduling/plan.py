"""The scheduler's interface: limits in, a plan for one step out, samples back in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import msgspec

from paceline_core.registry.enums import RequestClass
from paceline_planner.steptime import StepWork
from paceline_workers.engine.kv_cache.offload import Copy
from paceline_workers.engine.scheduling.request import Request, RequestStatus
from paceline_workers.engine.scheduling.search import Candidates, TokenLogprobs

NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Bounds and targets of one engine.

    `max_seqs`: requests that may run at once, at most `step_tokens`: each can get one token in every step.
    `windows`: seconds that a class may wait for others to join its batch. `tpot`: seconds per output token, which
    prefill must not make a step exceed while that class decodes. `class_waiting` caps one class's queue, `weights` are
    shares of tokens. `reserved`: shares of all pages, and of all slots, that less urgent classes leave to this one.
    """

    max_model_len: int
    vocab_size: int
    page_tokens: int
    max_seqs: int
    step_tokens: int
    max_waiting: int = 4096
    windows: Mapping[RequestClass, float] = field(default_factory=dict)
    tpot: Mapping[RequestClass, float] = field(default_factory=dict)
    weights: Mapping[RequestClass, float] = field(default_factory=dict)
    class_waiting: Mapping[RequestClass, int] = field(default_factory=dict)
    batching: str = "continuous"
    reserved: Mapping[RequestClass, float] = field(default_factory=dict)

    def pages(self, tokens: int) -> int:
        return -(-tokens // self.page_tokens)


class Chunk(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Tokens `start` to `start + count` of one request; `samples` if they close its gap. The first `scored` of them
    score the prompt token behind them.

    No dataclass: one is made for each running request in each step, and a dataclass takes three times as long. Nothing
    that it refers to leads back to it, so the garbage collector need not look.
    """

    request: Request
    start: int
    count: int
    samples: bool
    scored: int = 0


@dataclass(frozen=True)
class StepPlan:
    """One step. Empty when there is nothing to do before `wake` (monotonic seconds), a commit or a message.

    `copies` are made in their order, before any chunk is computed. No token attends to over `visible`.
    """

    chunks: tuple[Chunk, ...] = ()
    wake: float | None = None
    window: float = 0.0
    copies: tuple[Copy, ...] = ()
    visible: float = inf

    @property
    def live(self) -> list[Request]:
        """The requests that have not ended or been preempted since."""
        return [chunk.request for chunk in self.chunks if chunk.request.state is RequestStatus.RUNNING]

    @cached_property
    def work(self) -> StepWork:
        """What the step computes; of each context that a decode (one token of output) reads, the visible part.

        With a window `context` is a little too large.
        """
        prefill, pairs = 0, 0.0
        reads: list[int] = []
        for chunk in self.chunks:
            if chunk.count == 1 and chunk.samples and chunk.start >= chunk.request.prompt_len:
                reads.append(chunk.start + 1)
            else:
                prefill += chunk.count
                pairs += chunk.count * min(chunk.start + (chunk.count + 1) / 2, self.visible)
        return StepWork(prefill, pairs / max(prefill, 1), len(reads), read_tokens(reads, self.visible))


def read_tokens(contexts: Sequence[int], visible: float) -> int:
    """What decodes with contexts of these lengths read of them."""
    return sum(contexts) if visible == inf else int(sum([min(context, visible) for context in contexts]))


class SampledToken(msgspec.Struct, frozen=True, gc=False):
    """The token sampled for one request; log-probabilities only if it asked for them; `ended`: its grammar ends here.

    No dataclass, for the same reason as a chunk.

    A request to embed has a `vector` (float32, little-endian) and NO_TOKEN, a beam has `candidates` instead. `error`:
    why there is no sample, in words for the client; `refused`: because of the request, not of the engine.
    """

    token: int
    logprobs: TokenLogprobs | None = None
    ended: bool = False
    vector: bytes = b""
    candidates: Candidates = ()
    error: str = ""
    refused: bool = False


@dataclass(slots=True)
class Counters:
    """Growing totals. Prefix tokens are counted when a request is first admitted, not when it comes back.

    `recomputed_tokens`: computed again after a preemption, since the cache no longer had them.
    `shed_by`: requests not served, by reason: queue_full, backlog (predicted to be late), deadline (late).
    """

    steps: int = 0
    preemptions: int = 0
    lookup_tokens: int = 0
    hit_tokens: int = 0
    recomputed_tokens: int = 0
    shed_by: dict[str, int] = field(default_factory=dict)

    def shed(self, reason: str) -> None:
        self.shed_by[reason] = self.shed_by.get(reason, 0) + 1
