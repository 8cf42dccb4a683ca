"""A beam search as the scheduler runs it: `width` requests that share pages, come together and go together.

Folded, as it is admitted and comes back from a preemption, only the lead holds pages; it computes what all beams begin
with. Its candidates, or the beams that were running, then unfold it: each beam is a member, forked where it leaves the
others. A member whose candidates are known has no gap, so it is not planned; when all are known the search chooses
(`search`), members whose beam goes on keep their pages, and those whose beam does not are forked anew from the others.

Deadlock is excluded as for single requests: a group is preempted as a whole and never waits for itself, the oldest
running one is never preempted for want of pages, and alone it always fits, since `too_wide` refuses what does not.
Known hole: after a preemption each beam computes its own way from the first difference on, shared or not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from paceline_workers.engine.kv_cache import prefix_keys
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling.plan import SchedulerLimits
from paceline_workers.engine.scheduling.request import Request
from paceline_workers.engine.scheduling.search import Beam, Beams, Candidates, Search, step
from paceline_workers.messages import Submit, Tokens


class BeamGroup:
    """The members of one search, `lead` first: the one that the rest of the scheduler knows."""

    def __init__(self, lead: Request, search: Search, answers: Sequence[str] = ()) -> None:
        numbers = range(1, search.width)
        followers = [replace(lead, id=f"{lead.id}/{number}", tokens=[], pages=[], digests=[]) for number in numbers]
        self.lead = lead
        self.search = search
        self.members = [lead, *followers]
        self._answers = answers or [lead.id]
        self._beams = Beams()
        self._places = [lead]
        self._known: dict[Request, Candidates] = {}
        self._folded = True
        for member in self.members:
            member.beams = self

    def spread(self, limits: SchedulerLimits, most: int | None) -> int:
        """Pages that each follower of a folded group takes when it unfolds; `most` that a request ever holds."""
        longest = self.lead.prompt_len + len(self._beams.running[0].tokens) + 1
        pages = limits.pages(longest) - self.lead.wanted // limits.page_tokens
        return pages if most is None else min(pages, most)

    def seat(self) -> None:
        """It runs (again): its followers wait for their fork, without pages and without a gap."""
        for member in self.members[1:]:
            member.tokens = list(self.lead.tokens)
            member.computed = len(member.tokens)
            member.shared = 0

    def fold(self) -> None:
        """It was preempted: what all beams begin with is left to the lead."""
        running = [beam.tokens for beam in self._beams.running]
        common = prefix_keys.common(running)
        self.lead.had = self.lead.prompt_len + len(common) + sum(len(tokens) - len(common) for tokens in running)
        self.lead.tokens = [*self._prompt, *common]
        self.lead.digests = []
        self._known.clear()
        self._folded = True

    def take(self, member: Request, candidates: Candidates, memory: KVCacheManager) -> bool:
        """What a member has sampled; when it was the last one, the search goes on. True when the answers are found."""
        if self._folded:
            self._folded = False
            if len(self._beams.running) > 1:
                self._unfold(memory)
                return False
            self._places = [self.lead]
        self._known[member] = candidates
        if len(self._known) == len(self._places):
            self._beams = step(self._beams, [self._known[place] for place in self._places], self.search)
            self._known.clear()
            self._share(memory)
        return self._beams.done

    def tell(self, now: float) -> list[Tokens]:
        """The best answers, each under its own id."""
        told, timing = zip(self._answers, self._beams.finished, strict=False), self.lead.timing(now)
        return [
            Tokens(
                name,
                0,
                list(beam.tokens),
                finish=self._finish(beam),
                cached=self.lead.cached,
                logprobs=list(beam.told),
                timing=timing,
            )
            for name, beam in told
        ]

    @property
    def _prompt(self) -> list[int]:
        return self.lead.tokens[: self.lead.prompt_len]

    def _unfold(self, memory: KVCacheManager) -> None:
        """Go on where it was preempted; the lead has computed what all have in common."""
        running = self._beams.running
        self._places = self.members[: len(running)]
        for member, beam in zip(self._places[1:], running[1:], strict=True):
            _fork(self.lead, member, [*self._prompt, *beam.tokens], memory)
        self.lead.tokens = [*self._prompt, *running[0].tokens]

    def _share(self, memory: KVCacheManager) -> None:
        """Give each running beam a member: the one that it continues, or one that is free, forked from that."""
        parents = [self._places[beam.parent] for beam in self._beams.running]
        spare = [member for member in self.members if member not in parents]
        places: list[Request] = []
        for beam, parent in zip(self._beams.running, parents, strict=True):
            member = spare.pop() if parent in places else parent
            if member is not parent:
                _fork(parent, member, [*parent.tokens, beam.tokens[-1]], memory)
            places.append(member)
        for beam, parent, member in zip(self._beams.running, parents, places, strict=True):
            if member is parent:
                member.tokens.append(beam.tokens[-1])
        for member in spare:
            memory.release(member)
            member.computed = len(member.tokens)
            member.shared = 0
        self._places = places

    def _finish(self, beam: Beam) -> str:
        stopped = beam.tokens[-1] in self.search.stop_ids and len(beam.tokens) > self.search.min_tokens
        return "stop" if stopped else "length"


def request_of(submit: Submit, eos: Iterable[int], now: float, longest: int) -> Request:
    """What the API process asked for: a request, or the lead of a search. `longest` is the model's context."""
    request = Request.of(submit, eos, now)
    if submit.beams:
        search = Search(
            width=submit.beams,
            max_tokens=min(submit.max_tokens, longest - request.prompt_len),
            stop_ids=request.stop_ids,
            length_penalty=submit.length_penalty,
            early_stopping=submit.early_stopping,
            min_tokens=submit.min_tokens,
            top=submit.sampling.logprobs,
        )
        BeamGroup(request, search, submit.answers)
    return request


def lead(request: Request) -> Request:
    """The request itself, or who leads its group."""
    return request if request.beams is None else request.beams.lead


def members(request: Request) -> list[Request]:
    """All that come and go with a request, itself included."""
    return [request] if request.beams is None else request.beams.members


def leads(requests: Iterable[Request]) -> list[Request]:
    """Whoever leads them, each once."""
    return list(dict.fromkeys(map(lead, requests)))


def too_wide(request: Request, limits: SchedulerLimits, memory: KVCacheManager) -> str:
    """Why a search could not even run alone; "" if it can. Beams share the prompt's full pages at least."""
    if request.beams is None:
        return ""
    width = request.beams.search.width
    if width > min(limits.slots, limits.vocab_size):
        return f"a search of {width} beams needs {width} slots; this engine has {limits.slots}"
    shared = request.prompt_len // limits.page_tokens
    longest = min(request.prompt_len + request.max_tokens, limits.max_model_len)
    pages = shared + width * (limits.pages(longest) - shared)
    if min(pages, width * (memory.most or pages)) > memory.total:
        return f"{width} beams need more KV memory than there is ({memory.total * limits.page_tokens} tokens)"
    return ""


def _fork(parent: Request, member: Request, tokens: list[int], memory: KVCacheManager) -> None:
    """Let a member go on from where its parent is, with these tokens."""
    memory.release(member)
    member.tokens = tokens
    shared = memory.fork(parent, member)
    assert shared  # it sees what its parent sees, since it is as long
    member.shared = member.computed // memory.page_tokens
