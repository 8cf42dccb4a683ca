"""One sequence in the engine, and the group of sequences of one beam search.

A request has `wanted` tokens (its prompt and its output) and `computed` of them, whose keys and values are in its
pages; it has no phase. Every step closes part of the gap, and closing all of it yields the next token. Chunked prefill,
prefix hits and recompute after preemption all follow from these two numbers.

Steps are planned before the results of the last one are known. So a chunk counts as computed once it is planned, and a
token that is still being sampled is `pending`: it counts as wanted, but `tokens` does not hold it yet.

The members of a `BeamGroup` are admitted, preempted and ended as one. The scheduler queues only the lead; `beams`
advances the group.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.scheduling.search import Beams, Candidates, Search
from paceline_workers.messages import Sampling, Submit, Timing

URGENCY = {name: place for place, name in enumerate(RequestClass)}
"""0 for the most urgent class."""


class RequestStatus(StrEnum):
    """The state of a request. Only a running one holds pages."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@dataclass(slots=True, eq=False)
class Request:
    """Identity, limits and progress. Times are seconds of the caller's monotonic clock; `deadline` is for the first
    token, `tpot` is the target for each one after it.

    `embed`: it ends with the vector of its prompt instead of a token. `prompt_logprobs`: candidates to report for each
    prompt token, which the logits before it score; -1: none. `reported`: prompt tokens whose scores have been sent, so
    that a preemption repeats none.

    While it waits: `uncached` tokens to compute and their predicted seconds, `service`, as of the last lookup. Set when
    it is queued: `end`, the most tokens that its text can have.
    While it runs: `shared` pages had another holder when it was placed; its table lacks `dropped` pages, and its pages
    have room to compute up to `room` tokens (see `kv_cache.manager`). `expected` output tokens in all are forecast, to
    be updated at `review`.
    After a preemption in round `preempted_round`: it had `computed_before` tokens computed, and resumed in step
    `resumed_step` at `resumed_at` output tokens.
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
    preempted_round: int = -1
    resumed_at: int = 0
    resumed_step: int = 0
    uncached: int = 0
    service: float = 1.0
    bucket: int = 0
    shared: int = 0
    computed_before: int = 0
    expected: int = 0
    review: int = 0
    reported: int = 0
    batch_wait: float = 0.0
    admitted: float | None = None
    first_token: float | None = None

    @classmethod
    def of(cls, submit: Submit, eos: Iterable[int], now: float) -> "Request":
        """The request of a message; EOS ids stop it unless `ignore_eos` is set."""
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
        """Tokens left to compute before the next one can be sampled."""
        return self.wanted - self.computed

    @property
    def produced(self) -> int:
        """Known output tokens."""
        return len(self.tokens) - self.prompt_len

    @property
    def bad_word_ends(self) -> list[int]:
        """Tokens that would complete a bad word; only the output counts, as in vLLM."""
        words = self.sampling.bad_words
        if not words:
            return []
        longest = max(map(len, words))
        output = self.tokens[max(len(self.tokens) - longest + 1, self.prompt_len) :]
        return [word[-1] for word in words if output[len(output) - len(word) + 1 :] == word[:-1]]

    @property
    def decoding(self) -> bool:
        """Whether only the last sampled token is not computed."""
        return self.wanted > self.prompt_len and self.gap == 1

    @property
    def scores(self) -> bool:
        """Whether its whole prompt is computed, cached or not: each token's logits score the next one."""
        return self.prompt_logprobs >= 0

    @property
    def own_pages(self) -> int:
        """Pages without another holder when it was placed; shared pages are the first to be dropped."""
        return len(self.pages) - (max(self.shared - self.dropped, 0) if self.dropped else self.shared)

    @property
    def urgency(self) -> int:
        return URGENCY[self.request_class]

    def finish_reason(self, produced: int, max_len: int) -> str:
        """Why it ends with its newest token, the `produced`-th; "" if it continues."""
        if self.tokens[-1] in self.stop_ids and produced > self.min_tokens:
            return "stop"
        return "length" if produced >= self.max_tokens or len(self.tokens) >= max_len else ""

    def timing(self, now: float) -> Timing:
        """Its time until `now` by phase."""
        admitted = now if self.admitted is None else self.admitted
        first = now if self.first_token is None else self.first_token
        wait = admitted - self.arrival
        return Timing(wait - self.batch_wait, self.batch_wait, max(first - admitted, 0.0), max(now - first, 0.0))


class BeamGroup:
    """The members of one search, `lead` first. While `folded`, only the lead holds pages.

    `places`: the member of each running beam, in order. `sampled`: the members whose candidates are known.
    `answers`: the ids of the answers.
    """

    def __init__(self, lead: Request, search: Search, answers: Sequence[str] = ()) -> None:
        numbers = range(1, search.width)
        followers = [replace(lead, id=f"{lead.id}/{number}", tokens=[], pages=[], digests=[]) for number in numbers]
        self.lead = lead
        self.search = search
        self.members = [lead, *followers]
        self.answers = answers or [lead.id]
        self.beams = Beams()
        self.places = [lead]
        self.sampled: dict[Request, Candidates] = {}
        self.folded = True
        for member in self.members:
            member.beams = self


def lead(request: Request) -> Request:
    """The request itself, or the lead of its group."""
    return request if request.beams is None else request.beams.lead


def members(request: Request) -> list[Request]:
    """The members of its group, or the request alone."""
    return [request] if request.beams is None else request.beams.members


def leads(requests: Iterable[Request]) -> list[Request]:
    """The lead of each, once."""
    return list(dict.fromkeys(map(lead, requests)))
