"""Many steps at once, for simulations: the scheduler's state after them, without planning each one.

While no request waits, a step computes one token for each running request, and requests leave only when their answers
end. The memory notices more than counters only when a request takes its next page or fills one. So a `Leap`
executes those events, in the order in which the steps would, and sets the rest. First and last tokens go through the
production commit. The result is equal in every field to `step` and `commit` called for each pair of times; there are no
frames but those of first and last tokens (a prompt that is computed again has a first token again).

A prompt that a step in flight computes may be leapt over as well, if it is the only incomplete one: the production
`StepBuilder` cuts its chunks.

Steps that need more than this are refused by `leap_limit`: several incomplete prompts, a beam search or a fork, an
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
    prompts = {} if in_flight is None else _prompts(in_flight)
    if in_flight is not None and len(in_flight.live) != len(running):
        return 0
    for request in running:
        length = len(request.tokens)
        if not _leaps(request, length + pending, pending, prompts):
            return 0
        if request.end - length <= most:
            most = request.end - length - 1
    while most > 0 and not _has_pages(core, most - 1 + pending):
        most //= 2
    return max(most, 0)


def prompt_chunks(core: Scheduler, in_flight: StepPlan | None, steps: int, ends: Mapping[Request, int]) -> list[Chunk]:
    """The chunk of an incomplete prompt that is in flight, and those that the next steps compute; empty without one.

    `ends`: the steps whose commits end other requests. The last chunk samples if the steps complete the prompt.
    """
    prompts = {} if in_flight is None else _prompts(in_flight)
    incomplete = [chunk for chunk in prompts.values() if not chunk.samples]
    if not incomplete:
        return []
    chunks, request, computed = incomplete, incomplete[0].request, incomplete[0].request.computed
    decodes = [other for other in core.running if other is not request]
    for step in range(steps):
        decodes = [other for other in decodes if ends.get(other, steps) >= step]
        builder = core.builder(None)
        builder.budget -= len(decodes)
        if decodes:
            reads = [other.computed + step + 1 for other in decodes]
            builder.keep_targets([other.tpot for other in decodes], reads, core.costs.margin)
        builder.add_prefill(request)
        chunks += builder.chunks
        request.computed = chunks[-1].start + chunks[-1].count
        if chunks[-1].samples:
            break
    request.computed = computed
    return chunks


class Leap:
    """As many steps as there are `times`, at most `leap_limit`. `ends`: the steps whose commits end these requests.

    At least one request runs until the last commit. `in_flight` is as in `leap_limit`, `chunks` are `prompt_chunks`; no
    other token of `words` than the last may stop a request.
    """

    def __init__(  # noqa: PLR0913 - what is known of the steps
        self,
        core: Scheduler,
        in_flight: StepPlan | None,
        times: Sequence[Times],
        words: Words,
        *,
        ends: Mapping[Request, int],
        chunks: Sequence[Chunk] = (),
    ) -> None:
        self.times = times
        self._ends = ends
        self._core = core
        self._words = words
        self._pending = 0 if in_flight is None else 1
        prompts = {} if in_flight is None else _prompts(in_flight)
        self._prompts: dict[Request, Sequence[Chunk]] = {request: (chunk,) for request, chunk in prompts.items()}
        if chunks:
            self._prompts[chunks[0].request] = chunks
        self._joins = {request: self._joining(found) for request, found in self._prompts.items()}
        """The steps from which requests with a prompt in flight decode."""
        self._running = core.running.copy()
        self._lengths = [len(request.tokens) for request in self._running]
        for request, step in self._joins.items():
            self._lengths[self._running.index(request)] -= step  # so that it is right from that step on
        self._events = self._planned()
        self._done = 0
        stops = {*ends.values(), *(step for step in self._joins.values() if step < len(times)), len(times) - 1}
        self._stops = sorted(stops, reverse=True)

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
        core, ahead = self._core, steps + self._pending - 1
        frames: list[Tokens] = []
        while self._done < len(self._events) and self._events[self._done][0] < steps:
            step, event, _, place = self._events[self._done]
            frames += self._act(step, event, place)
            self._done += 1
        self.unplan(steps)
        prompts = {request: chunks[steps] for request, chunks in self._prompts.items() if steps < len(chunks)}
        others = {request for request, end in self._ends.items() if end < steps - 1} | prompts.keys()
        chunks = []
        for request, length in zip(self._running, self._lengths, strict=True):
            if request not in others:
                _extend(request, length + steps, self._words[0].token)
                request.computed = length + ahead
                chunks.append(Chunk(request, request.computed - 1, 1, True))
        core.memory.pool.now = self.times[steps - 1][1]
        self._count(steps)
        if not self._pending:
            return None, frames
        return StepPlan((*chunks, *prompts.values()), visible=core.costs.visible), frames

    def unplan(self, steps: int) -> None:
        """Take back the chunk of a prompt that is planned in the step after the first `steps`."""
        for request, chunks in self._prompts.items():
            if steps < len(chunks):
                request.computed = chunks[steps].start + chunks[steps].count
                request.pending = int(chunks[steps].samples)

    def rest(self, steps: int, in_flight: StepPlan | None) -> "Leap":
        """The leap over the other steps, when `steps` of them were taken."""
        ends = {request: step - steps for request, step in self._ends.items() if step >= steps}
        chunks = next((found[steps:] for found in self._prompts.values() if steps + 1 < len(found)), ())
        return Leap(self._core, in_flight, self.times[steps:], self._words, ends=ends, chunks=chunks)

    def _joining(self, chunks: Sequence[Chunk]) -> int:
        return len(chunks) - 1 if chunks[-1].samples else len(self.times)

    def _planned(self) -> list[_Event]:
        """What happens to requests: they take a page for a step, fill one, compute a prompt, end their answers."""
        size, steps, pending = self._core.memory.page_tokens, len(self.times), self._pending
        events: list[_Event] = []
        for place, (request, length) in enumerate(zip(self._running, self._lengths, strict=True)):
            grows, fills = request.room - length - pending + 1, -length % size
            if grows < steps:
                events += [(step, _PLAN, place, place) for step in range(max(0, grows), steps, size)]
            if fills < steps:
                events += [(step, _COMMIT, place, place) for step in range(fills, steps, size)]
        for request, end in self._ends.items():
            place = self._running.index(request)
            events = [e for e in events if e[3] != place or e[:2] < (end, _COMMIT)]
            events.append((end, _COMMIT, place, place))
        for order, (request, joins) in enumerate(self._joins.items(), len(self._running)):
            place = self._running.index(request)  # a step computes the decodes before the prompts
            events = [e for e in events if e[3] != place or e[1] == _PLAN or e[0] > joins]
            events += [(step, _PLAN, order, place) for step in range(min(joins, steps))]
            events += [(step, _COMMIT, order, place) for step in range(min(joins + 1, steps))]
        events.sort()
        return events

    def _act(self, step: int, event: int, place: int) -> list[Tokens]:
        request, memory, (word, last) = self._running[place], self._core.memory, self._words
        length, now, chunks = self._lengths[place] + step, self.times[step][event], self._prompts.get(request, ())
        memory.pool.now = now
        if event == _PLAN and step + 1 < len(chunks):
            chunk = chunks[step + 1]
            request.computed = chunk.start + chunk.count
            request.pending += chunk.samples
            return []
        prompt = chunks[step] if event == _COMMIT and step < len(chunks) else None
        if prompt is not None and not prompt.samples:
            return self._core.commit(StepPlan((prompt,)), [], now)
        _extend(request, length, word.token)
        request.computed = length + self._pending - 1
        if event == _PLAN:
            if not memory.grow(request, self._pending):
                raise RuntimeError(f"no page for a step that leaps: {request.id}")
            return []
        ends = self._ends.get(request) == step
        if not ends and prompt is None:
            memory.publish(request, length - 1, length)
            return []
        request.computed += 1
        request.pending += 1
        chunk = Chunk(request, length - 1, 1, True) if prompt is None else prompt
        return self._core.commit(StepPlan((chunk,)), [last if ends else word], now)

    def _count(self, steps: int) -> None:
        """Count the steps, each with the requests that ran in it."""
        batch, begun = Counter([request.request_class for request in self._running]), 0
        ends = sorted([(end + 1, request.request_class) for request, end in self._ends.items()], reverse=True)
        incomplete = [chunks for chunks in self._prompts.values() if len(chunks) > 1]
        for chunks in incomplete:
            name, decodes = chunks[0].request.request_class, Counter(batch)
            decodes[name] -= 1
            for chunk in chunks[1 : steps + 1]:
                while ends and ends[-1][0] <= begun:
                    gone = ends.pop()[1]
                    batch[gone] -= 1
                    decodes[gone] -= 1
                self._core.advance({**decodes, name: decodes[name] + chunk.count}, 1, frozenset({name}))
                begun += 1
        while begun < steps:
            while ends and ends[-1][0] <= begun:
                batch[ends.pop()[1]] -= 1
            until = min(steps, ends[-1][0]) if ends else steps
            self._core.advance(batch, until - begun)
            begun = until


def _prompts(plan: StepPlan) -> dict[Request, Chunk]:
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


def _leaps(request: Request, wanted: int, pending: int, prompts: Mapping[Request, Chunk]) -> bool:
    """Whether its next steps decode in pages of its own, and need no frames that say more, or its prompt can leap."""
    if request.beams or request.forked or request.embed:
        return False
    chunk = prompts.get(request)
    if chunk is not None and not chunk.samples:
        return len(prompts) == 1 and _computes(request, chunk)
    if request.computed != wanted - 1 or request.computed < request.prompt_len or request.pending != pending:
        return False
    return request.first_token is not None if chunk is None else _is_plain(request)


def _computes(request: Request, chunk: Chunk) -> bool:
    """Whether the next steps compute its prompt for the first time, in pages that it has."""
    new = len(request.tokens) == request.prompt_len <= request.room and not request.pending
    return new and request.computed == chunk.start + chunk.count and _is_plain(request)


def _is_plain(request: Request) -> bool:
    """Whether its first token begins a usual answer."""
    return not (request.group or request.scores) and request.max_tokens > 0


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
