"""Many decode steps at once, for simulations: the scheduler's state after them, without planning each one.

While no request waits, joins or ends, every step has the same batch: one token for each running request. Only the
memory notices more than counters, when a request takes its next page or fills one. So `leap` executes those events, in
the order in which the steps would, and sets the rest. The result is equal in every field to `step` and `commit` called
for each pair of times; there are no frames.

Steps that need more than this are refused by `leap_limit`: a first token, a prompt, a beam search or a fork, an
attention window, a host store (its copies belong to a step's plan), or a lack of pages, which means a preemption.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from paceline_workers.engine.scheduling.plan import Chunk, SampledToken, StepPlan
from paceline_workers.engine.scheduling.request import Request, RequestStatus
from paceline_workers.engine.scheduling.scheduler import Scheduler
from paceline_workers.messages import Tokens

Times = tuple[float, float]
"""When a step is planned, and when the oldest step in flight is committed after that."""
Ends = Mapping[Request, SampledToken]
_PLAN, _COMMIT = 0, 1


def leap_limit(core: Scheduler, in_flight: StepPlan | None, most: int) -> int:
    """How many steps `leap` may take now, from 0 to `most`. `in_flight`: the step planned before this one's commit."""
    running, memory = core.running, core.memory
    if len(core.waiting) or not running or core.holding or memory.min_pages is not None or memory.offload.slots:
        return 0
    pending = 0 if in_flight is None else 1
    if in_flight is not None and not _same_batch(in_flight, running):
        return 0
    for request in running:
        length = len(request.tokens)
        if not _decodes(request, length + pending, pending):
            return 0
        most = min(most, request.end - length - 1)
    while most > 0 and not _has_pages(core, most - 1 + pending):
        most //= 2
    return max(most, 0)


def leap(
    core: Scheduler, in_flight: StepPlan | None, times: Sequence[Times], token: int, ends: Ends | None = None
) -> tuple[StepPlan | None, list[Tokens]]:
    """Take as many steps as there are `times`, at most `leap_limit`; each samples `token`, which must stop no request.

    The last commit samples `ends` for the requests in it, if they are to end. Returns the plan in flight afterwards,
    None if there was none before, and the frames of those that ended.
    """
    running, memory, steps, ends = core.running.copy(), core.memory, len(times), ends or {}
    pending = 0 if in_flight is None else 1
    lengths = [len(request.tokens) for request in running]
    events = _events(running, lengths, memory.page_tokens, pending, steps)
    if ends:
        last = [(steps - 1, _COMMIT, place) for place, request in enumerate(running) if request in ends]
        events = sorted({*events, *last})
    frames: list[Tokens] = []
    for step, event, place in events:
        request, length = running[place], lengths[place] + step
        _extend(request, length, token)
        memory.pool.now = times[step][event]
        if event == _PLAN:
            request.computed = length + pending - 1
            if not memory.grow(request, pending):
                raise RuntimeError(f"no page for a step that leaps: {request.id}")
        elif step == steps - 1 and request in ends:
            request.pending += 1
            end = StepPlan((Chunk(request, length - 1, 1, True),))
            frames += core.commit(end, [ends[request]], times[step][event])
        else:
            memory.publish(request, length - 1, length)
    for request, length in zip(running, lengths, strict=True):
        _extend(request, length + steps, token)
        request.computed = length + steps + pending - 1
    memory.pool.now = times[-1][1]
    core.advance(Counter([request.request_class for request in running]), steps)
    if in_flight is None:
        return None, frames
    chunks = tuple([Chunk(request, request.computed - 1, 1, True) for request in running])
    return StepPlan(chunks, visible=core.costs.visible), frames


def _same_batch(plan: StepPlan, running: Sequence[Request]) -> bool:
    """Whether a step computes one token for each running request, and not the many that a preempted one lost.

    The late token of a request that has ended meanwhile is dropped, and changes nothing.
    """
    return not plan.work.prefill_tokens and plan.live == running


def _decodes(request: Request, wanted: int, pending: int) -> bool:
    """Whether its next steps compute one token each, in pages of its own, and need no frame that says more."""
    decoding = request.computed == wanted - 1 >= request.prompt_len and request.pending == pending
    return decoding and request.first_token is not None and not (request.beams or request.forked or request.embed)


def _has_pages(core: Scheduler, more: int) -> bool:
    """Whether the running requests have or can take the pages to compute `more` tokens beyond the known ones."""
    running, size, available = core.running, core.memory.page_tokens, core.memory.pool.available
    if len(running) * (more // size + 2) <= available:  # none needs more than that
        return True
    return sum([max(-(-(len(request.tokens) + more) // size) - len(request.pages), 0) for request in running]) <= available


def _events(
    running: Sequence[Request], lengths: Sequence[int], size: int, pending: int, steps: int
) -> list[tuple[int, int, int]]:
    """Steps at which the memory acts: (step, event, place in `running`), in the order of the steps."""
    events: list[tuple[int, int, int]] = []
    for place, length in enumerate(lengths):
        grows, fills = max(running[place].room - length - pending + 1, 0), -length % size
        if grows < steps:
            events += [(step, _PLAN, place) for step in range(grows, steps, size)]
        if fills < steps:
            events += [(step, _COMMIT, place) for step in range(fills, steps, size)]
    events.sort()
    return events


def _extend(request: Request, length: int, token: int) -> None:
    if (missing := length - len(request.tokens)) > 0:
        request.tokens.extend([token] * missing)
