"""One sequence on its way through the engine.

There is no prefill phase and no decode phase: a request has `wanted` tokens (its prompt and what it has produced) and
`computed` of them, whose keys and values lie in its pages. Every step closes a part of the gap; closing it whole
yields the next token. Chunked prefill, prefix hits and recompute after preemption all follow from these two numbers.

Steps are planned before the last one's results are known. So a chunk counts as computed once it is planned, and a
token that is still being drawn is `pending`: it is wanted like any other, but `tokens` does not hold it yet.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING

from paceline_core.registry.enums import RequestClass
from paceline_workers.messages import Sampling, Submit, Timing

if TYPE_CHECKING:
    from paceline_workers.engine.scheduling.beams import BeamGroup

URGENCY = {name: place for place, name in enumerate(RequestClass)}
"""0 for the most urgent class."""


class RequestStatus(StrEnum):
    """Where a request is. Only a running one holds pages."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@dataclass(slots=True, eq=False)
class Request:
    """Identity, limits and progress. Times are seconds of the caller's monotonic clock; `deadline` is for token one,
    `tpot` is promised for each one after it.

    `embed`: it ends with the vector of its prompt instead of a token. `prompt_logprobs`: so many candidates are wanted
    for each token of its prompt, -1 for nothing; `told` tokens have theirs, so that a preemption tells none twice.

    While it waits: `uncached` tokens to compute and their predicted seconds, `service`, as last looked up. `shared`
    pages had another holder when it was placed. A preempted one `had` so many tokens computed when it left in
    `left_round`, and came back at `resumed_at` output tokens in `resumed_step`. `foreseen` outputs in all are expected,
    to be looked up again at `review`. Set when it is queued: it is over at a length of `end`. Its table lacks `dropped`
    pages, and up to `room` tokens it needs none (see `memory.kv`).
    """

    id: str
    prompt_len: int
    tokens: list[int]
    max_tokens: int
    sampling: Sampling
    arrival: float
    request_class: RequestClass = RequestClass.INTERACTIVE
    min_tokens: int = 0
    stop_ids: frozenset[int] = frozenset()
    salt: str = ""
    unsalted: int = 0
    choice: int = 0
    group: str = ""
    deadline: float | None = None
    tpot: float = inf
    beams: "BeamGroup | None" = None
    embed: bool = False
    prompt_logprobs: int = -1

    state: RequestStatus = RequestStatus.WAITING
    computed: int = 0
    pending: int = 0
    pages: list[int] = field(default_factory=list)
    dropped: int = 0
    forked: bool = False
    room: int = 0
    end: int = 0
    digests: list[bytes] = field(default_factory=list)
    cached: int = 0
    preemptions: int = 0
    left_round: int = -1
    resumed_at: int = 0
    resumed_step: int = 0
    uncached: int = 0
    service: float = 1.0
    lane: int = 0
    shared: int = 0
    had: int = 0
    foreseen: int = 0
    review: int = 0
    told: int = 0
    batch_wait: float = 0.0
    admitted: float | None = None
    first_token: float | None = None

    @classmethod
    def of(cls, submit: Submit, eos: Iterable[int], now: float) -> "Request":
        """What the API process asked for; EOS ids stop it unless `ignore_eos` is set."""
        stops = frozenset(submit.stop_ids) | (frozenset() if submit.ignore_eos else frozenset(eos))
        return cls(
            id=submit.id,
            prompt_len=len(submit.prompt),
            tokens=[*submit.prompt, *submit.produced],
            max_tokens=submit.max_tokens,
            sampling=submit.sampling,
            arrival=now,
            request_class=submit.request_class,
            min_tokens=submit.min_tokens,
            stop_ids=stops,
            salt=submit.salt,
            unsalted=submit.unsalted,
            choice=submit.choice,
            group=submit.group,
            deadline=now + submit.deadline_s if submit.deadline_s > 0 else None,
            embed=submit.embed,
            prompt_logprobs=submit.prompt_logprobs,
            tpot=submit.tpot_s or inf,
        )

    @property
    def wanted(self) -> int:
        """Tokens whose keys and values the next token needs."""
        return len(self.tokens) + self.pending

    @property
    def gap(self) -> int:
        """Tokens yet to compute before the next one can be sampled."""
        return self.wanted - self.computed

    @property
    def produced(self) -> int:
        """Output tokens that are known."""
        return len(self.tokens) - self.prompt_len

    @property
    def scores(self) -> bool:
        """All of its prompt is computed, whatever is cached: each token's logits say how likely the next one was."""
        return self.prompt_logprobs >= 0

    @property
    def completing(self) -> list[int]:
        """Tokens that would complete a bad word. The prompt does not count, as in vLLM: none begins there."""
        words = self.sampling.bad_words
        if not words:
            return []
        longest = max(map(len, words))
        output = self.tokens[max(len(self.tokens) - longest + 1, self.prompt_len) :]
        return [word[-1] for word in words if output[len(output) - len(word) + 1 :] == word[:-1]]

    @property
    def decoding(self) -> bool:
        """Nothing is missing but the token sampled last."""
        return self.wanted > self.prompt_len and self.gap == 1

    @property
    def own_pages(self) -> int:
        """Pages that nobody else held when it was placed; the first ones to be dropped are those that others hold."""
        return len(self.pages) - (max(self.shared - self.dropped, 0) if self.dropped else self.shared)

    @property
    def urgency(self) -> int:
        """0 for the most urgent class."""
        return URGENCY[self.request_class]

    @property
    def rank(self) -> tuple[int, float]:
        """Sort key: most urgent class first, then oldest. The greatest rank is the first to be preempted."""
        return self.urgency, self.arrival

    def finish(self, produced: int, longest: int) -> str:
        """Why it ends with the token it has just got, the `produced`-th; "" if it goes on. `longest` is the model's."""
        if self.tokens[-1] in self.stop_ids and produced > self.min_tokens:
            return "stop"
        return "length" if produced >= self.max_tokens or len(self.tokens) >= longest else ""

    def timing(self, now: float) -> Timing:
        """How its time up to `now` divides into phases."""
        admitted = now if self.admitted is None else self.admitted
        first = now if self.first_token is None else self.first_token
        wait = admitted - self.arrival
        return Timing(wait - self.batch_wait, self.batch_wait, max(first - admitted, 0.0), max(now - first, 0.0))
