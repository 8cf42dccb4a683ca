"""The scheduler's interface: it takes limits, plans one step, and takes its samples."""

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
    """Limits and targets of one engine.

    `max_seqs`: requests that may run at once, at most `step_tokens`, so that each can get one token in every step.
    `windows`: seconds that a class may wait for others to join its batch. `tpot`: the TPOT target of a class; while it
    decodes, prefill must not make a step take longer. `class_waiting` caps one class's queue, `weights` are shares of
    tokens. `reserved`: shares of all pages and of all slots that less urgent classes leave to this one.
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
    score the prompt token after each.

    Not a dataclass: each step makes one for each running request, and a dataclass takes three times as long. It is in
    no reference cycle, so the garbage collector need not track it.
    """

    request: Request
    start: int
    count: int
    samples: bool
    scored: int = 0


@dataclass(frozen=True)
class StepPlan:
    """One step. If it is empty there is nothing to do before `wake` (monotonic seconds), a commit or a message.

    `copies` are made in order, before any chunk is computed. No token attends to more than `visible` tokens.
    """

    chunks: tuple[Chunk, ...] = ()
    wake: float | None = None
    window: float = 0.0
    copies: tuple[Copy, ...] = ()
    visible: float = inf

    @property
    def live(self) -> list[Request]:
        """The requests that have not ended or been preempted since planning."""
        return [chunk.request for chunk in self.chunks if chunk.request.state is RequestStatus.RUNNING]

    @cached_property
    def work(self) -> StepWork:
        """What the step computes; of the context that a decode (one token of output) reads, only the visible part.

        With a window, `context` is slightly too large.
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
    """The context tokens that decodes with contexts of these lengths read."""
    return sum(contexts) if visible == inf else int(sum([min(context, visible) for context in contexts]))


class SampledToken(msgspec.Struct, frozen=True, gc=False):
    """The token sampled for one request; log-probabilities only if requested; `ended`: its grammar ends here.

    Not a dataclass, for the same reason as a chunk.

    A request to embed has a `vector` (float32, little-endian) and NO_TOKEN, a beam has `candidates` instead. `error`:
    why there is no sample, in words for the client; `refused`: the request caused it, not the engine.
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
    """Growing totals. Prefix tokens count when a request is first admitted, not after a preemption.

    `recomputed_tokens`: computed again after a preemption, because the cache no longer had them.
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
