"""A leap is equal to as many steps in every field: requests, pages, prefix keys, counters and shares."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.engine.reference_scheduler import PAGE, request, scheduler

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.engine.kv_cache.attention_window import AttentionWindow
from paceline_workers.engine.scheduling import Request, SampledToken, StepPlan
from paceline_workers.engine.scheduling.leap import Leap, leap_limit, prompt_chunks
from paceline_workers.messages import Tokens

MODEL = StepTime(base=0.01, prefill=0.001, sequence=0.0001, kv=0.0001, context=0.0001, observations=99)
WORD, LAST = SampledToken(2), SampledToken(7, ended=True)
LEAPS, AFTER = 40, 12
Prompt = tuple[list[int], int, RequestClass, str]
"""Letters, one page each; output tokens; class; tenant's salt."""

PROMPTS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 2), max_size=4),
        st.integers(2, 60),
        st.sampled_from(RequestClass),
        st.sampled_from(["", "tenant"]),
    ),
    min_size=1,
    max_size=6,
)
ENDS = st.dictionaries(st.sampled_from([f"r{number}" for number in range(6)]), st.integers(0, 20))
"""The step of a leap that ends a request."""
PLACES = st.fixed_dictionaries(
    {
        "pages": st.integers(8, 60),
        "budget": st.integers(4, 40),
        "prefix_cache": st.booleans(),
        "model": st.sampled_from([None, MODEL]),
        "tpot": st.sampled_from([{}, {RequestClass.INTERACTIVE: 0.02}]),
        "windows": st.sampled_from([{}, {RequestClass.INTERACTIVE: 0.003, RequestClass.BATCH: 0.02}]),
        "batching": st.sampled_from(["continuous", "dynamic"]),
    }
)


class Run:
    """One engine's life at a step each second; `ahead`: each step is planned before the last one's commit."""

    def __init__(self, prompts: list[Prompt], place: dict[str, Any], *, ahead: bool) -> None:
        self.core = scheduler(**place)
        self.now, self.ahead = 0.0, ahead
        self.in_flight: deque[StepPlan] = deque()
        for number, (letters, outputs, cls, salt) in enumerate(prompts):
            tokens = [letter for letter in letters for _ in range(PAGE)] + [3]
            made = request(f"r{number}", tokens, outputs, arrival=0.0, cls=cls, salt=salt)
            if self.core.submit(made) is None:
                self.core.memory.note(made, [(f"key-{letters}-{salt}", len(tokens))])

    @property
    def flying(self) -> StepPlan | None:
        return self.in_flight[0] if self.in_flight else None

    def step(self, ends: Collection[str] = ()) -> list[Tokens]:
        """One step, whose commit `ends` requests; returns the frames of last tokens, and of the first after prompts."""
        planned, committed = self.times()
        plan = self.core.step(planned)
        frames: list[Tokens] = []
        prompts: set[str] = set()
        if plan.chunks:
            self.in_flight.append(plan)
        if self.in_flight and not (plan.chunks and self.ahead and len(self.in_flight) == 1):
            done = self.in_flight.popleft()
            prompts = {c.request.id for c in done.chunks if c.count > 1 or c.start < c.request.prompt_len}
            sampled = [chunk.request.id for chunk in done.chunks if chunk.samples]
            frames = self.core.commit(done, [LAST if name in ends else WORD for name in sampled], committed)
        self.now += 1.0
        return [frame for frame in frames if frame.finish or frame.id in prompts]

    def times(self) -> tuple[float, float]:
        return self.now + 0.25, self.now + 0.75

    def leap(self, steps: int, ends: Mapping[str, int] | None = None) -> Leap:
        """A leap of so many steps; `ends`: the steps that end requests."""
        times = [(self.now + step + 0.25, self.now + step + 0.75) for step in range(steps)]
        lasts = {request: ends[request.id] for request in self.core.running if ends and request.id in ends}
        chunks = prompt_chunks(self.core, self.flying, steps, lasts)
        return Leap(self.core, self.flying, times, (WORD, LAST), ends=lasts, chunks=chunks)

    def land(self, leap: Leap, steps: int) -> list[Tokens]:
        plan, frames = leap.take(steps)
        self.in_flight = deque([] if plan is None else [plan])
        self.now += steps
        return frames

    def until_it_leaps(self) -> int:
        """Step until a leap is possible; how far it reaches, 0 if it never is."""
        for _ in range(80):
            if limit := leap_limit(self.core, self.flying, LEAPS):
                return limit
            self.step()
        return 0


def state(run: Run) -> Any:
    """Everything that the scheduler holds, and the step in flight."""
    return [run.now, *_plain(run.core, set()), *(_plain(plan, set()) for plan in run.in_flight)]


def _plain(value: Any, seen: set[int]) -> Any:
    if isinstance(value, int | float | str | bytes | None) or callable(value):
        return type(value).__name__ if callable(value) else value
    if isinstance(value, Iterator):
        return "iterator"
    if isinstance(value, Request):
        if id(value) in seen:
            return value.id
    elif isinstance(value, dict):
        return [(_plain(key, seen), _plain(item, seen)) for key, item in value.items()]
    elif isinstance(value, list | tuple | deque):
        return [_plain(item, seen) for item in value]
    elif isinstance(value, set | frozenset):
        return sorted(str(_plain(item, seen)) for item in value)
    elif id(value) in seen:
        return "again"
    seen.add(id(value))
    names = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    names += list(getattr(value, "__dict__", ())) + list(getattr(value, "__struct_fields__", ()))
    return [(name, _plain(getattr(value, name), seen)) for name in names if hasattr(value, name)]


RECOMPUTED: list[Prompt] = [
    ([], 55, RequestClass.OFFLINE, "tenant"),
    ([0], 33, RequestClass.BATCH, "tenant"),
    ([2, 2], 2, RequestClass.BATCH, "tenant"),
    ([2, 0, 2, 0], 29, RequestClass.BATCH, "tenant"),
    ([0], 33, RequestClass.BATCH, "tenant"),
]
"""A preempted request computes several pages again, in the step in flight when all others decode."""


@given(PROMPTS, PLACES, st.booleans(), st.integers(1, LEAPS), ENDS)
@example(RECOMPUTED, {"budget": 20, "model": MODEL, "pages": 18}, True, 14, {})
def test_a_leap_is_equal_to_its_steps_in_the_whole_state(
    prompts: list[Prompt], place: dict[str, Any], ahead: bool, most: int, ends: dict[str, int]
) -> None:
    leaping, stepping = (Run(prompts, place, ahead=ahead) for _ in range(2))
    for _ in range(3):
        steps = min(leaping.until_it_leaps(), most)
        assert min(stepping.until_it_leaps(), most) == steps
        if steps:
            lasts = _lasts(leaping, steps, ends)
            frames = leaping.land(leaping.leap(steps, lasts), steps)
            assert frames == [frame for step in range(steps) for frame in stepping.step(_ending(lasts, step))]
        assert state(leaping) == state(stepping)
        leaping.core.memory.check([request.pages for request in leaping.core.running])
    for _ in range(AFTER):
        leaping.step()
        stepping.step()
    assert state(leaping) == state(stepping)


@given(PROMPTS, PLACES, st.booleans(), st.integers(0, 6), st.floats(0.0, 0.7), ENDS)
@example([([0, 1, 2, 0], 9, RequestClass.BATCH, "")], {"budget": 4}, True, 1, 0.5, {})
def test_in_the_middle_of_a_leap_the_memory_is_up_to_date_and_the_leap_can_end(
    prompts: list[Prompt], place: dict[str, Any], ahead: bool, most: int, part: float, ends: dict[str, int]
) -> None:
    leaping, stepping = (Run(prompts, place, ahead=ahead) for _ in range(2))
    steps = leaping.until_it_leaps()
    stepping.until_it_leaps()
    if steps < 2:
        return
    lasts, over = _lasts(leaping, steps, ends), min(most, steps - 1)
    leap = leaping.leap(steps, lasts)
    frames = leap.until(leaping.now + over + part)  # with the next step planned or not
    assert frames == [frame for step in range(over) for frame in stepping.step(_ending(lasts, step))]
    assert leap.due > leaping.now + over
    before = progress(stepping)
    if part >= 0.25:
        stepping.core.step(stepping.times()[0])
    assert books(leaping) == books(stepping)
    if not over:
        leap.unplan(0)
    else:
        assert leaping.land(leap, over) == []
    assert progress(leaping) == before
    assert part >= 0.25 or state(leaping) == state(stepping)


def _lasts(run: Run, steps: int, ends: dict[str, int]) -> dict[str, int]:
    """The ends within a leap of so many steps; all requests end at its last commit if none would be left."""
    running = run.core.running
    found = {request: ends[request.id] for request in running if ends.get(request.id, steps) < steps}
    if len(found) == len(running):
        found = dict.fromkeys(running, steps - 1)
    if chunks := prompt_chunks(run.core, run.flying, steps, found):
        begins = len(chunks) - 1 if chunks[-1].samples else steps
        if found.get(chunks[0].request, steps) < begins:
            del found[chunks[0].request]
    return {request.id: step for request, step in found.items()}


def _ending(lasts: dict[str, int], step: int) -> list[str]:
    return [name for name, last in lasts.items() if last == step]


def progress(run: Run) -> Any:
    return [(request.id, request.tokens.copy(), request.computed, request.pending) for request in run.core.running]


def books(run: Run) -> Any:
    memory, keys = run.core.memory, run.core.memory.keys
    pages = {request.id: request.pages for request in run.core.running}
    return pages, memory.pool.free, memory.pool.cached, memory.pool.evicted, keys.changes(), run.core.queued_tokens()


def decoding(ahead: bool = False, **place: Any) -> Run:
    run = Run([([0, 1], 50, RequestClass.INTERACTIVE, ""), ([2], 30, RequestClass.BATCH, "")], place, ahead=ahead)
    run.until_it_leaps()
    return run


@pytest.mark.parametrize("ahead", [False, True])
def test_a_leap_ends_before_the_step_that_ends_a_request(ahead: bool) -> None:
    run = decoding(ahead)
    limit = leap_limit(run.core, run.flying, 100)
    shortest = min(request.end - len(request.tokens) for request in run.core.running)
    assert limit == shortest - 1
    run.land(run.leap(limit), limit)
    assert leap_limit(run.core, run.flying, 100) == 0
    run.step()
    assert len(run.core.running) == 1


def test_no_leap_while_a_request_waits_or_computes_its_prompt() -> None:
    run = Run([([0, 1, 2], 20, RequestClass.INTERACTIVE, "")], {"budget": 4}, ahead=False)
    limits = []
    while run.core.running or len(run.core.waiting):
        limits.append(leap_limit(run.core, run.flying, 9))
        run.step()
    assert limits[:4] == [0, 0, 0, 0]
    assert max(limits) == 9
    run = decoding()
    run.core.submit(request("late", [1], 3, arrival=run.now))
    assert leap_limit(run.core, run.flying, 9) == 0


def test_no_leap_beyond_the_pages_that_are_available() -> None:
    run = decoding(pages=8, hopeful=True)
    assert 0 < leap_limit(run.core, run.flying, 100) < 28
    limit = leap_limit(run.core, run.flying, 100)
    run.land(run.leap(limit), limit)


@pytest.mark.parametrize("place", [{"host": 4}, {"attention_window": AttentionWindow(9, 5)}])
def test_no_leap_where_steps_copy_or_drop_pages(place: dict[str, Any]) -> None:
    run = Run([([0, 1], 50, RequestClass.INTERACTIVE, "")], place, ahead=False)
    for _ in range(10):
        run.step()
        assert leap_limit(run.core, run.flying, 9) == 0
    assert all(request.decoding for request in run.core.running)


def test_no_leap_over_a_step_in_flight_that_computes_something_else() -> None:
    run = decoding(ahead=True)
    assert leap_limit(run.core, StepPlan(), 9) == 0
