"""Beam search in the scheduler: `width` requests that share pages; the group is admitted, preempted and ended as one.

A group is folded when it is admitted and after a preemption: only the lead holds pages, and it computes the tokens that
all beams begin with. Its candidates, or the beams that were running, then unfold the group: each beam becomes a member,
forked where it leaves the others. A member with known candidates has no gap, so it is not planned. When all candidates
are known the search chooses (`search`): members whose beam continues keep their pages, the others are forked again.

There is no deadlock, as for single requests: a group is preempted as a whole and never waits for itself, the oldest
running one is never preempted for lack of pages, and alone it always fits, because `too_wide` rejects others.
Known hole: after a preemption each beam computes everything after the first difference, shared or not.
"""

from collections.abc import Iterable

from paceline_workers.engine.kv_cache import prefix_keys
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling.plan import SchedulerLimits
from paceline_workers.engine.scheduling.request import BeamGroup, Request
from paceline_workers.engine.scheduling.search import Candidates, Search, step
from paceline_workers.messages import Submit, Tokens


def request_of(submit: Submit, eos: Iterable[int], now: float, max_len: int) -> Request:
    """The request of a message, or the lead of a beam search. `max_len` is the model's context."""
    request = Request.of(submit, eos, now)
    if submit.beams:
        search = Search(
            width=submit.beams,
            max_tokens=min(submit.max_tokens, max_len - request.prompt_len),
            stop_ids=request.stop_ids,
            length_penalty=submit.length_penalty,
            early_stopping=submit.early_stopping,
            min_tokens=submit.min_tokens,
            top=submit.sampling.logprobs,
        )
        BeamGroup(request, search, submit.answers)
    return request


def too_wide(group: BeamGroup, limits: SchedulerLimits, memory: KVCacheManager) -> str:
    """Why a search could not even run alone; "" if it can. Its beams share at least the prompt's full pages."""
    request, width = group.lead, group.search.width
    if width > min(limits.max_seqs, limits.vocab_size):
        return f"a search of {width} beams needs {width} slots; this engine has {limits.max_seqs}"
    shared = request.prompt_len // limits.page_tokens
    longest = min(request.prompt_len + request.max_tokens, limits.max_model_len)
    pages = shared + width * (limits.pages(longest) - shared)
    if min(pages, width * (memory.max_pages or pages)) > memory.pool.total:
        return f"{width} beams need more KV memory than there is ({memory.pool.total * limits.page_tokens} tokens)"
    return ""


def pages_each(group: BeamGroup, limits: SchedulerLimits, max_pages: int | None) -> int:
    """Pages that each follower of a folded group takes when it unfolds; a request never holds more than `max_pages`."""
    longest = group.lead.prompt_len + len(group.beams.running[0].tokens) + 1
    pages = limits.pages(longest) - group.lead.wanted // limits.page_tokens
    return pages if max_pages is None else min(pages, max_pages)


def start(group: BeamGroup) -> None:
    """The group was admitted: its followers wait for their fork, without pages and without a gap."""
    for member in group.members[1:]:
        member.tokens = list(group.lead.tokens)
        member.computed = len(member.tokens)
        member.shared = 0


def fold(group: BeamGroup) -> None:
    """The group was preempted: the lead keeps the tokens that all beams begin with."""
    lead, running = group.lead, [beam.tokens for beam in group.beams.running]
    common = prefix_keys.common(running)
    lead.computed_before = lead.prompt_len + len(common) + sum(len(tokens) - len(common) for tokens in running)
    lead.tokens = [*lead.tokens[: lead.prompt_len], *common]
    lead.digests = []
    group.sampled.clear()
    group.folded = True


def take(member: Request, group: BeamGroup, candidates: Candidates, memory: KVCacheManager) -> bool:
    """Apply one member's candidates; the last ones advance the search. True when the answers are found."""
    if group.folded:
        group.folded = False
        if len(group.beams.running) > 1:
            _unfold(group, memory)
            return False
        group.places = [group.lead]
    group.sampled[member] = candidates
    if len(group.sampled) == len(group.places):
        group.beams = step(group.beams, [group.sampled[place] for place in group.places], group.search)
        group.sampled.clear()
        _share(group, memory)
    return group.beams.done


def answers(group: BeamGroup, now: float) -> list[Tokens]:
    """The best answers, each under its own id."""
    timing, search = group.lead.timing(now), group.search
    stops = [
        beam.tokens[-1] in search.stop_ids and len(beam.tokens) > search.min_tokens for beam in group.beams.finished
    ]
    return [
        Tokens(
            name,
            0,
            list(beam.tokens),
            finish="stop" if stop else "length",
            cached=group.lead.cached,
            logprobs=list(beam.logprobs),
            timing=timing,
        )
        for name, beam, stop in zip(group.answers, group.beams.finished, stops, strict=False)
    ]


def _unfold(group: BeamGroup, memory: KVCacheManager) -> None:
    """Continue where the group was preempted; the lead has computed the tokens common to all beams."""
    running, prompt = group.beams.running, group.lead.tokens[: group.lead.prompt_len]
    group.places = group.members[: len(running)]
    for member, beam in zip(group.places[1:], running[1:], strict=True):
        _fork(group.lead, member, [*prompt, *beam.tokens], memory)
    group.lead.tokens = [*prompt, *running[0].tokens]


def _share(group: BeamGroup, memory: KVCacheManager) -> None:
    """Assign a member to each running beam: the one that it continues, or a spare one, forked from that."""
    running = group.beams.running
    parents = [group.places[beam.parent] for beam in running]
    spare = [member for member in group.members if member not in parents]
    places: list[Request] = []
    for beam, parent in zip(running, parents, strict=True):
        member = spare.pop() if parent in places else parent
        if member is not parent:
            _fork(parent, member, [*parent.tokens, beam.tokens[-1]], memory)
        places.append(member)
    for beam, parent, member in zip(running, parents, places, strict=True):
        if member is parent:
            member.tokens.append(beam.tokens[-1])
    for member in spare:
        memory.release(member)
        member.computed = len(member.tokens)
        member.shared = 0
    group.places = places


def _fork(parent: Request, member: Request, tokens: list[int], memory: KVCacheManager) -> None:
    """Let a member continue with these tokens from its parent's position."""
    memory.release(member)
    member.tokens = tokens
    shared = memory.fork(parent, member)
    assert shared  # the parent has dropped no page that the child sees, because both are equally long
    member.shared = member.computed // memory.page_tokens
