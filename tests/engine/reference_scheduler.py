"""A backend without arithmetic: token ids stand where keys would, and every read is checked to find the right ones."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.engine.kv_cache.attention_window import ALL, AttentionWindow
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.kv_cache.offload import Copy, CopyKind
from paceline_workers.engine.scheduling import Chunk, Request, SampledToken, Scheduler, SchedulerLimits, StepPlan
from paceline_workers.engine.scheduling.admission import Forecast
from paceline_workers.engine.scheduling.request import BeamGroup, RequestStatus
from paceline_workers.engine.scheduling.search import Beams, Search, step
from paceline_workers.messages import Sampling, Tokens

PAGE = 4
VOCAB = 50
LOST = -1
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
Draw = Callable[[Request], int]


def request(
    name: str,
    prompt: list[int],
    max_tokens: int = 4,
    *,
    arrival: float = 0.0,
    cls: RequestClass = RequestClass.INTERACTIVE,
    stop_ids: frozenset[int] = frozenset(),
    min_tokens: int = 0,
    salt: str = "",
    deadline: float | None = None,
    group: str = "",
) -> Request:
    return Request(
        id=name,
        prompt_len=len(prompt),
        tokens=list(prompt),
        max_tokens=max_tokens,
        sampling=Sampling(temperature=0.0),
        arrival=arrival,
        request_class=cls,
        stop_ids=stop_ids,
        min_tokens=min_tokens,
        salt=salt,
        deadline=deadline,
        group=group,
    )


class Hopeful(Forecast):
    """Expects every request to end at once: so pages run out, and requests are preempted."""

    def forecast(self, request: Request, produced: int) -> int:
        return 1


def scheduler(
    pages: int = 64,
    *,
    slots: int = 8,
    budget: int = 16,
    max_len: int | None = None,
    prefix_cache: bool = True,
    windows: dict[RequestClass, float] | None = None,
    host: int = 0,
    max_waiting: int = 1000,
    model: StepTime | None = None,
    hopeful: bool = False,
    attention_window: AttentionWindow = ALL,
    **others: Any,
) -> Scheduler:
    least = attention_window.min_pages(PAGE)
    bounded = least is not None and least <= pages
    limits = SchedulerLimits(
        max_model_len=max_len or (1000 if bounded else pages * PAGE),
        vocab_size=VOCAB,
        page_tokens=PAGE,
        max_seqs=min(slots, budget),
        step_tokens=budget,
        max_waiting=max_waiting,
        windows=windows or {},
        **others,
    )
    memory = KVCacheManager(
        pages, PAGE, prefix_cache=prefix_cache, host_pages=host, attention_window=attention_window, ahead=budget
    )
    core = Scheduler(memory, limits, forecast=Hopeful(0) if hopeful else None)
    core.learn(model or core.costs.model)
    return core


def next_token(request: Request) -> int:
    """A token that depends on the whole context, so that a wrong context shows in what follows."""
    return sum((place + 1) * token for place, token in enumerate(request.tokens)) % VOCAB


def after(tokens: Sequence[int], count: int) -> list[tuple[int, float]]:
    """Candidates that depend on the whole context, best first."""
    chance = Random(sum((place + 1) * token for place, token in enumerate(tokens)))
    scores = sorted(((-chance.expovariate(0.3), token) for token in range(VOCAB)), reverse=True)
    return [(token, score) for score, token in scores[:count]]


def searched(prompt: Sequence[int], search: Search) -> list[list[int]]:
    """The answers of a search that nothing disturbs, best first."""
    beams = Beams()
    while not beams.done:
        beams = step(beams, [after([*prompt, *beam.tokens], search.keep) for beam in beams.running], search)
    return [list(beam.tokens) for beam in beams.finished]


def beams(name: str, prompt: list[int], search: Search, answers: Sequence[str] = (), **fields: Any) -> Request:
    """The lead of a beam search."""
    lead = request(name, prompt, search.max_tokens, stop_ids=search.stop_ids, **fields)
    BeamGroup(lead, search, answers)
    return lead


class Shadow:
    """Drives a scheduler and plays its memory; `ahead`: each step is planned before the last one's results are in."""

    def __init__(self, core: Scheduler, draw: Draw = next_token, *, ahead: bool = False) -> None:
        self.core = core
        self.draw = draw
        self.ahead = ahead
        self.flights: list[tuple[StepPlan, list[list[int]]]] = []
        self.memory: dict[tuple[int, int], tuple[int, int]] = {}
        self.host: dict[tuple[int, int], tuple[int, int]] = {}
        self.now = 0.0
        self.moved = False
        self.events: list[Tokens] = []

    def execute(self, plan: StepPlan, tables: list[list[int]] | None = None) -> list[SampledToken]:
        """Copy, write, then let every chunk read its context: the order of a forward pass.

        `tables`: the pages of each chunk's request as they were when the step was launched.
        """
        tables = tables or [self.table(chunk.request) for chunk in plan.chunks]
        for copy in plan.copies:
            self.copy(copy)
        for chunk, pages in zip(plan.chunks, tables, strict=True):
            for place in range(chunk.start, chunk.start + chunk.count):
                self.memory[pages[place // PAGE], place % PAGE] = (place, self.token(chunk.request, place))
        for chunk, pages in zip(plan.chunks, tables, strict=True):
            if chunk.request.state is not RequestStatus.RUNNING:
                continue  # a beam's lead that was preempted since has other tokens by now
            places = self.seen(chunk)
            seen = [self.memory[pages[place // PAGE], place % PAGE] for place in places]
            assert seen == [(place, self.token(chunk.request, place)) for place in places]
        return [self.sample(chunk.request) for chunk in plan.chunks if chunk.samples]

    def sample(self, request: Request) -> SampledToken:
        if request.beams is not None:
            return SampledToken(0, candidates=after(request.tokens, request.beams.search.keep))
        return SampledToken(self.draw(request))

    def seen(self, chunk: Chunk) -> list[int]:
        """What any token of a chunk looks at: all before it, or what a window leaves visible."""
        attention_window = self.core.memory.attention_window
        begin = 0 if attention_window.window is None else max(chunk.start + 1 - attention_window.window, 0)
        return [*range(min(attention_window.sinks, begin)), *range(begin, chunk.start + chunk.count)]

    def table(self, request: Request) -> list[int]:
        """Its pages by number, LOST for those that were dropped."""
        head = self.core.memory.attention_window.head(PAGE)
        return request.pages[:head] + [LOST] * request.dropped + request.pages[head:]

    def token(self, request: Request, place: int) -> int:
        """One that an ended or preempted request will never know is nobody's concern."""
        known = place < len(request.tokens)
        assert known or request.state is not RequestStatus.RUNNING
        return request.tokens[place] if known else LOST

    def launch(self) -> StepPlan:
        """Plan a step, and begin it if there is anything to do."""
        plan = self.core.step(self.now)
        self.check(plan)
        if plan.chunks:
            self.flights.append((plan, [self.table(chunk.request) for chunk in plan.chunks]))
        return plan

    def collect(self) -> None:
        """Execute the oldest step and take its results in."""
        plan, tables = self.flights.pop(0)
        self.events += self.core.commit(plan, self.execute(plan, tables), self.now)

    def fail(self) -> None:
        """The oldest step raises, and with it go those after it."""
        while self.flights:
            plan, _ = self.flights.pop(0)
            self.events += self.core.fail(plan, "injected", self.now)
            while self.flights:
                self.core.retract(self.flights.pop(0)[0])

    def copy(self, copy: Copy) -> None:
        source = self.host if copy.kind is CopyKind.IN else self.memory
        target = self.host if copy.kind is CopyKind.OUT else self.memory
        for place in range(PAGE):
            target.pop((copy.target, place), None)
            if (copy.source, place) in source:
                target[copy.target, place] = source[copy.source, place]

    def step(self, seconds: float = 0.01) -> StepPlan:
        """One whole step, or one begun and the last one ended."""
        plan = self.launch()
        self.now += seconds
        self.moved = bool(plan.chunks or self.flights)
        if len(self.flights) > (self.ahead and bool(plan.chunks)):
            self.collect()
        self.check_books()
        return plan

    def drain(self, limit: int = 10_000) -> int:
        """Step until nothing is left, somebody ending within each `limit` steps; returns the number of steps."""
        count, since, left = 0, 0, self.left
        while left:
            plan = self.step()
            if not self.moved:
                assert plan.wake is not None
                self.now = max(self.now, plan.wake)
            count, since = count + 1, since + 1
            if self.left < left:
                left, since = self.left, 0
            assert since < limit, f"nobody ended in {limit} steps, {left} are left"
        return count

    @property
    def left(self) -> int:
        """Requests that have not ended."""
        return len(self.core.running) + len(self.core.waiting)

    def check(self, plan: StepPlan) -> None:
        """A plan respects the budget and the slots, and nobody writes where another could read."""
        limits = self.core.limits
        assert sum(chunk.count for chunk in plan.chunks) <= limits.step_tokens
        assert len(self.core.running) <= limits.max_seqs
        assert len({chunk.request.id for chunk in plan.chunks}) == len(plan.chunks)
        for chunk in plan.chunks:
            written = self.table(chunk.request)[chunk.start // PAGE : limits.pages(chunk.start + chunk.count)]
            others = {page for other in self.core.running if other is not chunk.request for page in other.pages}
            assert not others & set(written)
            assert all(map(self.core.memory.pool.writable, written))

    def check_books(self) -> None:
        self.core.memory.check([request.pages for request in self.core.running])

    def text(self, name: str) -> list[int]:
        """All tokens told to the client of a request."""
        return [token for event in self.events if event.id == name for token in event.ids]

    def ends(self) -> dict[str, str]:
        return {event.id: event.finish for event in self.events if event.finish}


def shape(plan: StepPlan) -> list[tuple[str, int, int]]:
    return [(chunk.request.id, chunk.start, chunk.count) for chunk in plan.chunks]


def expected(prompt: list[int], count: int) -> list[int]:
    probe = request("probe", prompt)
    for _ in range(count):
        probe.tokens.append(next_token(probe))
    return probe.tokens[len(prompt) :]


def started(pages: int = 64, **limits: Any) -> Shadow:
    return Shadow(scheduler(pages, **limits))
