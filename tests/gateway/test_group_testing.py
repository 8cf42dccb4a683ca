"""Who killed the worker: the request machine and the dispatcher over simulated workers, some requests of which kill.

Nothing here has a clock or a socket. A killer ends its worker in place of a certain token: at a place of its whole
answer, wherever that is computed, or so many tokens into each of its lives.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.gateway.pieces import endpoint, report

from paceline_core.errors import Code
from paceline_core.registry import Outcome, RequestClass
from paceline_gateway.queueing.dispatcher import Dispatcher, QueueLimits
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.request import events as e
from paceline_gateway.request.attempts import RetryBudget
from paceline_gateway.request.group_testing import (
    CERTAIN_S,
    DEATHS,
    GROUP,
    LONGER,
    PROOF,
    SuspectGroup,
    blame,
    patience_s,
    proof,
)
from paceline_gateway.request.machine import RequestMachine
from paceline_gateway.request.types import AT_WORKER, RequestRecord, RequestTerms, Timeouts
from paceline_gateway.routing.policies import ShortestTTFT
from paceline_gateway.routing.worker import Worker
from paceline_gateway.routing.worker_pool import WorkerPool

LENGTH = 24
LONG = 240
TICK_S = 0.0001
SLOW_S = 0.05
Kills = Callable[[int, int], bool]
"""Whether a request ends its worker, from the tokens of its answer so far and of those what this worker brought."""


def never(_all: int, _here: int) -> bool:
    return False


@dataclass(eq=False)
class Asking:
    """One request, and what is known of it."""

    queued: QueuedRequest
    kills: Kills
    machine: RequestMachine
    attempts: int = 2
    here: int = 0
    record: RequestRecord | None = None
    deaths: list[SuspectGroup] = field(default_factory=list)
    length: int = LENGTH

    @property
    def over(self) -> bool:
        return self.record is not None


class World:
    """Requests at workers. Each death makes room for a new worker, as a cluster would."""

    def __init__(
        self,
        kinds: Sequence[Kills],
        *,
        workers: int,
        slots: int,
        attempts: int = 2,
        tick_s: float = TICK_S,
        length: int = LENGTH,
    ) -> None:
        self.now, self._length = 100.0, length
        self.pool = WorkerPool(ShortestTTFT(0.5), silence_s=1e9, lookahead_s=1e9, prefix_bytes=1 << 20)
        self.queue = Dispatcher(self.pool, QueueLimits(held=1000, size=10**9))
        self._slots, self._born, self._tick_s = slots, 0, tick_s
        self.names: list[str] = []
        for _ in range(workers):
            self._bear()
        self.deaths = 0
        self.doubts = 0
        """Deaths that another one there may have caused as well, beside the first."""
        budget = RetryBudget(0.0, min_retries=0)
        self.all = [self._ask(number, kind, attempts, budget) for number, kind in enumerate(kinds)]
        self._assign()

    def run(self, rng: random.Random, most: int = 100_000) -> None:
        """Let requests get on in any order until all are over."""
        for _ in range(most):
            running = [each for each in self.all if each.machine.state in AT_WORKER]
            if not running:
                assert all(each.over for each in self.all), "somebody waits beside workers that are free"
                return
            self.now += self._tick_s
            self.step(rng.choice(running))
            self._trials_are_alone()
        raise AssertionError("there is no end")

    def step(self, asking: Asking) -> None:
        """One token more, or the worker's death in place of it."""
        if asking.kills(asking.machine.meter.output, asking.here):
            self.kill(self.worker(asking))
            return
        if asking.machine.state is not asking.machine.state.STREAMING:
            self._do(asking, e.Began())
            self.worker(asking).began(asking.queued.id)
        asking.here += 1
        asking.machine.meter.output += 1
        if asking.queued.suspect or asking.queued.died_at:
            self.queue.got_on(asking.queued, asking.here, self.now)
        if asking.machine.meter.output == asking.length:
            self._do(asking, e.Finished())
        self._assign()

    def kill(self, worker: Worker) -> None:
        """It ends without a word, and another one comes."""
        victims = [each for each in self.all if each.machine.state in AT_WORKER and self.worker(each) is worker]
        self.deaths += 1
        likely = worker.trials | worker.recurring
        self.doubts += bool(likely) and len(likely | worker.unbegun.keys() | worker.doubtful) > 1
        self.queue.died(worker)
        self.names.remove(worker.name)
        self._bear()
        for each in victims:
            part = self.queue.part(each.queued)
            assert part is not None
            each.deaths.append(part)
            self._do(each, e.Lost(abort=None, part=part))
        self._assign()

    def worker(self, asking: Asking) -> Worker:
        found = self._at[asking.queued.id]
        assert isinstance(found, Worker)
        return found

    def _ask(self, number: int, kills: Kills, attempts: int, budget: RetryBudget) -> Asking:
        machine = RequestMachine(self.now, Timeouts(1e9, 1e9, 1e9, resume_s=1e9))
        queued = QueuedRequest(number, RequestClass.INTERACTIVE, 10, 40, deadline=1e9)
        asking = Asking(queued, kills, machine, length=self._length)
        terms = RequestTerms("default/chat", RequestClass.INTERACTIVE, True, 10, 1e9, attempts)
        for event in (e.Authenticated("team"), e.Admitted(terms, budget), e.Queued()):
            self._do(asking, event)
        return asking

    _at: dict[int, Worker | None]

    def _do(self, asking: Asking, event: e.Event) -> None:
        for action in asking.machine.on(event, self.now):
            match action:
                case e.Enqueue(again, resume):
                    asking.queued.resumed = resume
                    if again:
                        self.queue.rejoin(asking.queued, 1e9)
                    else:
                        self.queue.join(asking.queued, self.now)
                case e.Send():
                    asking.here = 0
                case e.Accuse(part):
                    asking.queued.accuse(part, asking.here, self.now)
                case e.ReleaseSlot(_, suspect):
                    self.queue.release(asking.queued, self.now, suspect=suspect)
                case e.Settle(record):
                    asking.record = record

    def _assign(self) -> None:
        if not hasattr(self, "all"):
            return
        self._at = getattr(self, "_at", {})
        for queued, worker in self.queue.dispatch(self.now):
            self._at[queued.id] = worker
            self._do(self.all[queued.id], e.Assigned(worker.name))

    def _bear(self) -> None:
        self.names.append(f"w{self._born}")
        self._born += 1
        self.pool.update(endpoint(name, port=1 + int(name[1:])) for name in self.names)
        for name in self.names:
            self.pool.on_report(name, report(name, slots=self._slots), self.now - 1e3)
        for worker in self.pool:
            worker.ready_since = self.now - 1e3

    def _trials_are_alone(self) -> None:
        on_trial = [each for each in self.all if each.queued.suspect and each.machine.state in AT_WORKER]
        workers = [self.worker(each).name for each in on_trial]
        late = any(self.now >= each.queued.sure_until for each in on_trial)
        assert late or len(workers) == len(set(workers))
        assert all(each.queued.id in self.worker(each).trials for each in on_trial)
        assert sum(len(worker.trials) for worker in self.pool) == len(on_trial)


def at_place(place: int) -> Kills:
    return lambda done, _: done == place


def in_each_life(tokens: int) -> Kills:
    return lambda _, here: here == tokens


KILLERS = st.one_of(st.integers(0, LENGTH - 1).map(at_place), st.integers(0, PROOF - 1).map(in_each_life))
SIZES = {"workers": st.integers(1, 4), "slots": st.integers(1, 16), "seed": st.integers(0, 2**32)}


@given(kills=KILLERS, innocents=st.integers(0, 14), place=st.integers(0, 14), **SIZES)
def test_a_poison_request_kills_two_workers_and_is_alone_in_being_refused(
    kills: Kills, innocents: int, place: int, workers: int, slots: int, seed: int
) -> None:
    kinds: list[Kills] = [never] * innocents
    kinds.insert(min(place, innocents), kills)
    world = World(kinds, workers=workers, slots=slots)
    world.run(random.Random(seed))
    only_the_poison_is_isolated(world, kills)


def only_the_poison_is_isolated(world: World, kills: Kills) -> None:
    """At the second death; each death that another one may have caused as well puts it off by one."""
    (poison,) = [each for each in world.all if each.kills is kills]
    assert poison.record is not None
    assert world.deaths <= DEATHS + 1
    if world.doubts < DEATHS - 1:
        assert poison.deaths == [*[SuspectGroup.SUSPECT] * (1 + world.doubts), SuspectGroup.CULPRIT]
        assert world.deaths == 2 + world.doubts
        assert poison.record.code is Code.REQUEST_ISOLATED
    for each in world.all:
        if each is not poison:
            assert each.record is not None
            assert (each.record.outcome, each.record.meter.output) == (Outcome.OK, each.length)


@settings(max_examples=25)
@given(token=st.integers(1, 200), innocents=st.integers(0, 5), place=st.integers(0, 5), **SIZES)
def test_a_stream_that_kills_at_the_same_token_of_each_life_kills_two_workers_and_is_alone_in_being_refused(
    token: int, innocents: int, place: int, workers: int, slots: int, seed: int
) -> None:
    kills = in_each_life(token)
    kinds: list[Kills] = [never] * innocents
    kinds.insert(min(place, innocents), kills)
    world = World(kinds, workers=workers, slots=slots, length=4 * token + LENGTH)
    world.run(random.Random(seed))
    only_the_poison_is_isolated(world, kills)


@example(kills=in_each_life(3), innocents=10, place=10, workers=1, slots=11, seed=1)
@given(kills=KILLERS, innocents=st.integers(0, 30), place=st.integers(0, 30), **SIZES)
def test_in_a_hurry_it_takes_more_deaths_and_nobody_else_is_refused_either(
    kills: Kills, innocents: int, place: int, workers: int, slots: int, seed: int
) -> None:
    """So slow that a trial outlasts the time in which certainty comes first.

    Who shared every unexplained death that a request may outlive, and one more, is lost; it is isolated in no case.
    """
    kinds: list[Kills] = [never] * innocents
    kinds.insert(min(place, innocents), kills)
    world = World(kinds, workers=workers, slots=slots, tick_s=SLOW_S)
    world.run(random.Random(seed))
    assert world.deaths <= DEATHS + 1
    for each in world.all:
        assert each.record is not None
        if each.kills is kills:
            assert each.record.outcome is not Outcome.OK
        elif each.record.outcome is not Outcome.OK:
            assert (each.record.code, each.deaths) == (Code.STREAM_LOST, [SuspectGroup.SUSPECT] * (DEATHS + 1))


@given(innocents=st.integers(1, 14), after=st.integers(0, 60), **SIZES)
def test_a_worker_that_dies_of_itself_costs_nobody_anything(
    innocents: int, after: int, workers: int, slots: int, seed: int
) -> None:
    world, rng = World([never] * innocents, workers=workers, slots=slots), random.Random(seed)
    for _ in range(after):
        running = [each for each in world.all if each.machine.state in AT_WORKER]
        if running:
            world.step(rng.choice(running))
    if running := [each for each in world.all if each.machine.state in AT_WORKER]:
        world.kill(world.worker(rng.choice(running)))
    world.run(rng)
    assert all(each.record is not None and each.record.outcome is Outcome.OK for each in world.all)


@given(killers=st.lists(KILLERS, min_size=1, max_size=4), innocents=st.integers(0, 8), **SIZES)
def test_whoever_and_however_many_kill_everybody_ends(
    killers: list[Kills], innocents: int, workers: int, slots: int, seed: int
) -> None:
    world = World([*killers, *[never] * innocents], workers=workers, slots=slots)
    world.run(random.Random(seed))
    assert world.deaths <= (DEATHS + 1) * len(killers)
    assert {each.record.code for each in world.all if each.record is not None} <= {
        None, Code.REQUEST_ISOLATED, Code.STREAM_LOST, Code.UPSTREAM_ERROR,
    }  # fmt: skip


def test_a_stream_that_kills_at_another_token_of_each_life_ends_after_its_fourth_death() -> None:
    lives = iter([40, 20, 60, 30])
    ends: list[int] = []

    def kills(_: int, here: int) -> bool:
        if here == 0:
            ends.append(next(lives))
        return here == ends[-1]

    world = World([kills], workers=2, slots=4, length=LONG)
    world.run(random.Random(1))
    (only,) = world.all
    assert only.record is not None
    assert (world.deaths, only.record.code) == (DEATHS + 1, Code.STREAM_LOST)


def test_a_trial_beside_a_stream_that_is_where_it_was_when_its_worker_died_isolates_neither() -> None:
    world = World([never, never], workers=1, slots=8, length=LONG)
    watched, other = world.all
    for _ in range(3 * PROOF):
        world.step(watched)
    world.kill(world.worker(watched))
    for _ in range(PROOF):
        world.step(watched)
    assert not watched.queued.suspect
    assert other.queued.id in world.worker(other).trials
    for _ in range(2 * PROOF):
        world.step(watched)
    world.kill(world.worker(other))
    assert (watched.deaths[-1], other.deaths[-1]) == (SuspectGroup.SUSPECT, SuspectGroup.SUSPECT)


def test_a_stream_that_got_past_the_token_of_its_first_death_is_watched_no_longer() -> None:
    world = World([never], workers=1, slots=8, length=LONG)
    (only,) = world.all
    for _ in range(3 * PROOF):
        world.step(only)
    world.kill(world.worker(only))
    near = []
    for _ in range(5 * PROOF):
        world.step(only)
        near.append(bool(world.worker(only).recurring))
    assert [place + 1 for place, there in enumerate(near) if there] == [*range(2 * PROOF + 1, 4 * PROOF)]
    assert only.queued.died_at == 0
    world.kill(world.worker(only))
    assert only.deaths == [SuspectGroup.SUSPECT, SuspectGroup.SUSPECT]


def test_a_route_with_one_attempt_repeats_nothing() -> None:
    world = World([at_place(0)], workers=2, slots=4, attempts=1)
    world.run(random.Random(1))
    (only,) = world.all
    assert only.record is not None
    assert (world.deaths, only.record.code) == (1, Code.UPSTREAM_ERROR)


def test_new_requests_keep_off_a_trial() -> None:
    world = World([never], workers=2, slots=8)
    world.kill(world.worker(world.all[0]))
    tried = world.worker(world.all[0])
    new = [QueuedRequest(number, RequestClass.INTERACTIVE, 10, 40, deadline=1e9) for number in range(10, 14)]
    assert [world.queue.pass_by(queued, world.now) is tried for queued in new] == [False] * 4


def test_suspects_wait_beside_the_queue_and_delay_it_briefly() -> None:
    world = World([never] * (GROUP + 2), workers=1, slots=128)
    world.kill(world.worker(world.all[0]))
    assert [each.machine.waiting for each in world.all] == [False, *[True] * (GROUP + 1)]
    fresh = QueuedRequest(99, RequestClass.INTERACTIVE, 10, 40, deadline=1e9)
    world.queue.join(fresh, world.now)
    assert world.queue.dispatch(world.now) == []
    gone = [queued.id for queued, _ in world.queue.dispatch(world.now + CERTAIN_S)]
    assert gone == [*range(1, GROUP), 99]


def test_a_worker_under_load_is_cleared_for_a_trial_and_if_it_stays_busy_the_trial_begins_anyway() -> None:
    world = World([never] * 3, workers=1, slots=8)
    suspect = QueuedRequest(
        9, RequestClass.INTERACTIVE, 10, 40, deadline=1e9, suspect=True, sure_until=world.now + CERTAIN_S
    )
    world.queue.rejoin(suspect, 1e9)
    fresh = QueuedRequest(10, RequestClass.INTERACTIVE, 10, 40, deadline=1e9)
    world.queue.join(fresh, world.now)
    assert world.queue.dispatch(world.now) == []
    assert [queued.id for queued, _ in world.queue.dispatch(world.now + CERTAIN_S)] == [9, 10]


def test_the_one_on_trial_is_blamed_and_without_a_trial_everybody_is_suspected() -> None:
    assert blame([1, 2], set(), {1}) == {1: SuspectGroup.SUSPECT, 2: SuspectGroup.SUSPECT}
    assert blame([1, 2], {2}, {2}) == {1: SuspectGroup.BYSTANDER, 2: SuspectGroup.CULPRIT}
    assert blame([1, 2, 3], {2}, {3}) == {1: SuspectGroup.BYSTANDER, 2: SuspectGroup.SUSPECT, 3: SuspectGroup.SUSPECT}
    assert blame([1, 2, 3], {2, 3}, set()) == {
        1: SuspectGroup.BYSTANDER,
        2: SuspectGroup.SUSPECT,
        3: SuspectGroup.SUSPECT,
    }


def test_one_token_is_proof_once_speed_comes_first_which_is_later_each_time() -> None:
    assert [proof(sure=sure) for sure in (True, False)] == [PROOF, 1]
    assert [patience_s(accused) for accused in (1, 2, 3)] == [CERTAIN_S, LONGER * CERTAIN_S, LONGER**2 * CERTAIN_S]


def test_a_stream_near_its_place_is_not_blamed_where_another_gateways_request_may_have_done_it() -> None:
    world = World([never], workers=1, slots=8, length=LONG)
    (only,) = world.all
    for _ in range(3 * PROOF):
        world.step(only)
    world.kill(world.worker(only))
    for _ in range(3 * PROOF):
        world.step(only)
    worker = world.worker(only)
    world.pool.on_report(worker.name, report(worker.name, slots=8, gateways=2), world.now)
    world.kill(worker)
    assert only.deaths == [SuspectGroup.SUSPECT, SuspectGroup.SUSPECT]
    assert only.queued.past == 3 * PROOF
