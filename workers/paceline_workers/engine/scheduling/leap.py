"""Many steps at once, for simulations: the scheduler's state after them, without planning each one.

While no request waits or joins, a step computes one token for each running request, and requests leave only when their
answers end. The memory notices more than counters only when a request takes its next page or fills one. So a `Leap`
executes those events, in the order in which the steps would, and sets the rest. First and last tokens go through the
production commit. The result is equal in every field to `step` and `commit` called for each pair of times; there are no
frames but those of first and last tokens (a prompt that is computed again has a first token again).

Steps that need more than this are refused by `leap_limit`: a prompt that the step in flight does not complete, a beam
search or a fork, an attention window, a host store (its copies belong to a step's plan), or a lack of pages, which
means a preemption.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from paceline_workers.engine.scheduling.plan import Chunk, SampledToken, StepPlan
from paceline_workers.engine.scheduling.request import Request, RequestStatus
from paceline_workers.engine.scheduling.scheduler import Scheduler
from paceline_workers.messages import Tokens

Times = tuple[float, float]
"""When a step is planned, and when the oldest step in flight is committed after that."""
Words = tuple[SampledToken, SampledToken]
"""The token of a step that ends no answer, and of one that does."""
_PLAN, _COMMIT = 0, 1
_Event = tuple[int, int, int, int]
"""Step, event, its order within them, and the request's place in the batch."""


def leap_limit(core: Scheduler, in_flight: StepPlan | None, most: int) -> int:
    """The most steps of a `Leap` now, from 0 to `most`. `in_flight`: the step planned before this one's commit."""
    running, memory = core.running, core.memory
    if len(core.waiting) or not running or core.holding or memory.min_pages is not None or memory.offload.slots:
        return 0
    pending = 0 if in_flight is None else 1
    firsts = {} if in_flight is None else _firsts(in_flight)
    if in_flight is not None and len(in_flight.live) != len(running):
        return 0
    for request in running:
        length = len(request.tokens)
        if not _decodes(request, length + pending, pending, firsts.get(request)):
            return 0
        if request.end - length <= most:
            most = request.end - length - 1
    while most > 0 and not _has_pages(core, most - 1 + pending):
        most //= 2
    return max(most, 0)


class Leap:
    """As many steps as there are `times`, at most `leap_limit`. `ends`: the steps whose commits end these requests.

    At least one request runs until the last commit. `in_flight` is as in `leap_limit`; no other token of `words` than
    the last may stop a request.
    """

    def __init__(
        self,
        core: Scheduler,
        in_flight: StepPlan | None,
        times: Sequence[Times],
        words: Words,
        ends: Mapping[Request, int],
    ) -> None:
        self.times = times
        self.ends = ends
        self._core = core
        self._words = words
        self._pending = 0 if in_flight is None else 1
        self._firsts = {} if in_flight is None else _firsts(in_flight)
        self._running = core.running.copy()
        self._lengths = [len(request.tokens) for request in self._running]
        self._events = self._planned()
        self._done = 0
        self._stops = sorted({*([0] if self._firsts else ()), *ends.values(), len(times) - 1}, reverse=True)

    @property
    def due(self) -> float:
        """When the next frames come, or the leap is over."""
        return self.times[self._stops[-1]][1]

    def until(self, now: float) -> list[Tokens]:
        """Bring the memory to its state at a time before the last commit; the rest waits for `take`.

        Returns the frames of first and last tokens since the last call.
        """
        frames: list[Tokens] = []
        while self._done < len(self._events):
            step, event, _, place = self._events[self._done]
            if self.times[step][event] > now:
                break
            frames += self._act(step, event, place)
            self._done += 1
        while len(self._stops) > 1 and self.due <= now:
            self._stops.pop()
        return frames

    def take(self, steps: int) -> tuple[StepPlan | None, list[Tokens]]:
        """Apply the first `steps` steps, and no more afterwards.

        Returns the plan in flight then, None if there was none before, and the frames since the last call of `until`.
        """
        core, ends, ahead = self._core, self.ends, steps + self._pending - 1
        frames: list[Tokens] = []
        while self._done < len(self._events) and self._events[self._done][0] < steps:
            step, event, _, place = self._events[self._done]
            frames += self._act(step, event, place)
            self._done += 1
        planned = []
        for request, length in zip(self._running, self._lengths, strict=True):
            if ends.get(request, steps) >= steps - 1:
                _extend(request, length + steps, self._words[0].token)
                request.computed = length + ahead
                planned.append(request)
        core.memory.pool.now = self.times[steps - 1][1]
        self._count(steps)
        if not self._pending:
            return None, frames
        chunks = tuple([Chunk(request, request.computed - 1, 1, True) for request in planned])
        return StepPlan(chunks, visible=core.costs.visible), frames

    def _planned(self) -> list[_Event]:
        """What happens to requests: they take a page for a step, fill one, begin or end their answers."""
        size, steps, pending = self._core.memory.page_tokens, len(self.times), self._pending
        events: list[_Event] = []
        for place, (request, length) in enumerate(zip(self._running, self._lengths, strict=True)):
            grows, fills = request.room - length - pending + 1, -length % size
            if grows < steps:
                events += [(step, _PLAN, place, place) for step in range(max(0, grows), steps, size)]
            if fills < steps:
                events += [(step, _COMMIT, place, place) for step in range(fills, steps, size)]
        for request, end in self.ends.items():
            place = self._running.index(request)
            events = [e for e in events if e[3] != place or e[:2] < (end, _COMMIT)]
            events.append((end, _COMMIT, place, place))
        for order, request in enumerate(self._firsts, len(self._running)):  # the step in flight computes decodes first
            place = self._running.index(request)
            events = [e for e in events if e[3] != place or e[:2] != (0, _COMMIT)]
            events.append((0, _COMMIT, order, place))
        events.sort()
        return events

    def _act(self, step: int, event: int, place: int) -> list[Tokens]:
        request, memory, (word, last) = self._running[place], self._core.memory, self._words
        length, now = self._lengths[place] + step, self.times[step][event]
        _extend(request, length, word.token)
        request.computed = length + self._pending - 1
        memory.pool.now = now
        if event == _PLAN:
            if not memory.grow(request, self._pending):
                raise RuntimeError(f"no page for a step that leaps: {request.id}")
            return []
        ends, first = self.ends.get(request) == step, self._firsts.get(request) if step == 0 else None
        if not ends and first is None:
            memory.publish(request, length - 1, length)
            return []
        request.computed += 1
        request.pending += 1
        chunk = Chunk(request, length - 1, 1, True) if first is None else first
        return self._core.commit(StepPlan((chunk,)), [last if ends else word], now)

    def _count(self, steps: int) -> None:
        """Count the steps, each with the requests that ran in it."""
        batch, begun = Counter([request.request_class for request in self._running]), 0
        for request, end in sorted(self.ends.items(), key=lambda item: item[1]):
            if end >= steps - 1:
                break
            self._core.advance(batch, end + 1 - begun)
            batch[request.request_class] -= 1
            begun = end + 1
        self._core.advance(batch, steps - begun)


def _firsts(plan: StepPlan) -> dict[Request, Chunk]:
    """The chunks that are not decodes, of requests that still run."""
    if not plan.work.prefill_tokens:
        return {}
    runs = RequestStatus.RUNNING
    return {
        chunk.request: chunk
        for chunk in plan.chunks
        if not (chunk.count == 1 and chunk.samples and chunk.start >= chunk.request.prompt_len)
        and chunk.request.state is runs
    }


def _decodes(request: Request, wanted: int, pending: int, first: Chunk | None) -> bool:
    """Whether its next steps compute one token each, in pages of its own, and need no frame that says more."""
    if request.computed != wanted - 1 or request.computed < request.prompt_len or request.pending != pending:
        return False
    if request.beams or request.forked or request.embed:
        return False
    if first is None:
        return request.first_token is not None
    return first.samples and not (request.group or request.scores) and request.max_tokens > 0


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
