"""Many decode steps at once, for simulations: the scheduler's state after them, without planning each one.

While no request waits, joins or ends, every step has the same batch: one token for each running request. Only the
memory notices more than counters, when a request takes its next page or fills one. So a `Leap` executes those events,
in the order in which the steps would, and sets the rest. The last commit may end requests, as in production. The result
is equal in every field to `step` and `commit` called for each pair of times; the only frames are those of the ends.

Steps that need more than this are refused by `leap_limit`: a first token, a prompt, a beam search or a fork, an
attention window, a host store (its copies belong to a step's plan), or a lack of pages, which means a preemption.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from paceline_workers.engine.scheduling.plan import Chunk, SampledToken, StepPlan
from paceline_workers.engine.scheduling.request import Request
from paceline_workers.engine.scheduling.scheduler import Scheduler
from paceline_workers.messages import Tokens

Times = tuple[float, float]
"""When a step is planned, and when the oldest step in flight is committed after that."""
Ends = Mapping[Request, SampledToken]
_PLAN, _COMMIT = 0, 1


def leap_limit(core: Scheduler, in_flight: StepPlan | None, most: int) -> int:
    """The most steps of a `Leap` now, from 0 to `most`. `in_flight`: the step planned before this one's commit."""
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


class Leap:
    """As many steps as there are `times`, at most `leap_limit`; each samples `token`, which must stop no request.

    The last commit samples `ends` for the requests in it, if they are to end. `in_flight` is as in `leap_limit`.
    """

    def __init__(
        self, core: Scheduler, in_flight: StepPlan | None, times: Sequence[Times], token: int, ends: Ends | None = None
    ) -> None:
        self.times = times
        self.ends = ends or {}
        self._core = core
        self._token = token
        self._pending = 0 if in_flight is None else 1
        self._running = core.running.copy()
        self._lengths = [len(request.tokens) for request in self._running]
        self._events = self._planned_events()
        self._done = 0
        self._frames: list[Tokens] = []

    def until(self, now: float) -> None:
        """Bring the memory to its state at a time before the last commit; requests and counters wait for `take`."""
        while self._done < len(self._events):
            step, event, place = self._events[self._done]
            if self.times[step][event] > now:
                return
            self._act(step, event, place)
            self._done += 1

    def take(self, steps: int) -> tuple[StepPlan | None, list[Tokens]]:
        """Apply the first `steps` steps, and no more afterwards.

        Returns the plan in flight then, None if there was none before, and the frames of the requests that ended.
        """
        core, running, behind = self._core, self._running, self._pending - 1
        while self._done < len(self._events) and self._events[self._done][0] < steps:
            self._act(*self._events[self._done])
            self._done += 1
        for request, length in zip(running, self._lengths, strict=True):
            _extend(request, length + steps, self._token)
            request.computed = length + steps + behind
        core.memory.pool.now = self.times[steps - 1][1]
        core.advance(Counter([request.request_class for request in running]), steps)
        if not self._pending:
            return None, self._frames
        chunks = tuple([Chunk(request, request.computed - 1, 1, True) for request in running])
        return StepPlan(chunks, visible=core.costs.visible), self._frames

    def _planned_events(self) -> list[tuple[int, int, int]]:
        """Steps at which something happens to a request, in order: (step, event, place in the batch)."""
        size, steps = self._core.memory.page_tokens, len(self.times)
        events: list[tuple[int, int, int]] = []
        for place, (request, length) in enumerate(zip(self._running, self._lengths, strict=True)):
            grows, fills = max(request.room - length - self._pending + 1, 0), -length % size
            if grows < steps:
                events += [(step, _PLAN, place) for step in range(grows, steps, size)]
            if fills < steps:
                events += [(step, _COMMIT, place) for step in range(fills, steps, size)]
            if request in self.ends and (steps - 1 - fills) % size:
                events.append((steps - 1, _COMMIT, place))
        events.sort()
        return events

    def _act(self, step: int, event: int, place: int) -> None:
        """One request takes a page for the step, has filled one at its commit, or ends."""
        request, length, memory = self._running[place], self._lengths[place] + step, self._core.memory
        _extend(request, length, self._token)
        request.computed = length + self._pending - 1
        memory.pool.now = now = self.times[step][event]
        if event == _PLAN:
            if not memory.grow(request, self._pending):
                raise RuntimeError(f"no page for a step that leaps: {request.id}")
        elif step == len(self.times) - 1 and request in self.ends:
            request.pending += 1
            end = StepPlan((Chunk(request, length - 1, 1, True),))
            self._frames += self._core.commit(end, [self.ends[request]], now)
        else:
            memory.publish(request, length - 1, length)


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
    lacking = [-(-(len(request.tokens) + more) // size) - len(request.pages) for request in running]
    return sum([pages for pages in lacking if pages > 0]) <= available


def _extend(request: Request, length: int, token: int) -> None:
    if (missing := length - len(request.tokens)) > 0:
        request.tokens.extend([token] * missing)
