"""Requests that hold no pages yet, or no more: one queue a class, in the order of their response ratio.

The ratio is wait over service, `service` being the predicted seconds to compute what is not cached: short ones go
first, and waiting lifts everyone. It leans to the short: every wait counts HEAD_START seconds more, so that those who
have just come have an order too, and service counts to the power of LEAN (1 is the textbook's ratio, more and more is
shortest first, whose p99 nothing bounds). Both were chosen on Azure's log so that its p99 stays that of first come.
Requests whose service is about equal (a quarter of an octave) share a lane, in which that order is the order of
arrival; so the head of a class costs one comparison a lane, however many wait. Preempted requests come before all new
ones of their class, oldest first: their streams are open.

Bound: the oldest request of a class has its turn as soon as it and the oldest ones before it make up no more than
ELDERS of the service given; so one that needs S seconds with all older ones waits for at most S / ELDERS seconds of
service. Ratios alone would starve a long one while short ones come faster than they are served.
A choice of a prompt that another one of its group is about to compute is parked behind it, in no lane (`follow`).
Known hole: a prefix cached since is seen when a request heads its lane or is next on the `tour`, a few at each step.

Who runs, most urgent class first, then oldest; and every way between waiting, running and gone.

A beam search sits down and gets up as one, each member on a seat.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterator
from math import floor, inf, log2
from operator import attrgetter

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling.admission import Admission
from paceline_workers.engine.scheduling.batch_window import Batching
from paceline_workers.engine.scheduling.beams import members
from paceline_workers.engine.scheduling.cost_estimator import CostEstimator
from paceline_workers.engine.scheduling.plan import Counters
from paceline_workers.engine.scheduling.request import Request, RequestStatus

RETURNING = -(1 << 30)
_PARKED = RETURNING - 1
ELDERS = 1 / 8
HEAD_START = 0.1
LEAN = 1.25
LOOKUPS = 2
_LANES_PER_OCTAVE = 4
_SHORTEST = 1e-9


class Waiting:
    """The queues. A request stays in the lane that its service gave it when it was added."""

    def __init__(self) -> None:
        self._lanes: dict[RequestClass, dict[int, deque[Request]]] = {name: {} for name in RequestClass}
        self._first: dict[str, Request] = {}
        self._parked: dict[str, list[Request]] = {}
        self._counts = dict.fromkeys(RequestClass, 0)
        self._served = dict.fromkeys(RequestClass, 0.0)
        self._elders = dict.fromkeys(RequestClass, 0.0)
        self._tour: Iterator[Request] = iter(())

    def __len__(self) -> int:
        return sum(self._counts.values())

    def add(self, request: Request) -> None:
        """Queue by arrival in its lane."""
        request.lane = lane(request)
        line = self._lanes[request.request_class].setdefault(request.lane, deque())
        if line and line[-1].arrival > request.arrival:
            insort(line, request, key=attrgetter("arrival"))
        else:
            line.append(request)
        self._counts[request.request_class] += 1

    def enter(self, request: Request) -> None:
        """Queue a new request, or park it behind the first of its group."""
        first = self._first.setdefault(request.group, request) if request.group else request
        if first is request or _begin(first) != _begin(request):
            self.add(request)
            return
        request.lane = _PARKED
        self._parked.setdefault(request.group, []).append(request)
        self._counts[request.request_class] += 1

    def follow(self, first: Request) -> list[Request]:
        """Take out whoever is parked behind a request that has its first token, or has gone."""
        if self._first.get(first.group) is not first:
            return []
        del self._first[first.group]
        parked = self._parked.pop(first.group, [])
        for request in parked:
            self._counts[request.request_class] -= 1
        return parked

    def remove(self, request: Request) -> None:
        """Take out any; at once when it heads its lane."""
        self._counts[request.request_class] -= 1
        if request.lane == _PARKED:
            self._parked[request.group].remove(request)
            return
        lanes = self._lanes[request.request_class]
        lanes[request.lane].remove(request)
        if not lanes[request.lane]:
            del lanes[request.lane]

    def admit(self, request: Request) -> None:
        """Take out the head of its class. What the oldest had beyond their share is not held against the next."""
        name = request.request_class
        if request is self._oldest(name):
            self._elders[name] += request.service
        self._served[name] += request.service
        self._elders[name] = min(self._elders[name], ELDERS * self._served[name])
        self.remove(request)

    def head(self, name: RequestClass, now: float) -> Request | None:
        """The next of a class."""
        lanes = self._lanes[name]
        if RETURNING in lanes:
            return lanes[RETURNING][0]
        oldest = self._oldest(name)
        if oldest and self._elders[name] + oldest.service <= ELDERS * self._served[name]:
            return oldest
        return max(
            [line[0] for line in lanes.values()],
            key=lambda request: (response_ratio(request, now), -request.service),
            default=None,
        )

    def tour(self, count: int = LOOKUPS) -> Iterator[Request]:
        """At most the next `count` of those who wait, round and round."""
        for _ in range(min(count, len(self))):
            request = next(self._tour, None)
            if request is None:
                lines = [line for lanes in self._lanes.values() for line in lanes.values()]
                self._tour = iter([request for line in lines for request in line])
            elif request.state is RequestStatus.WAITING and request.lane != _PARKED:
                yield request

    def oldest(self) -> dict[RequestClass, Request]:
        """The oldest request of each class that has one."""
        heads = {name: self._oldest(name) for name in self._lanes}
        return {name: head for name, head in heads.items() if head}

    def ahead(self, request: Request) -> int:
        """Tokens to compute in the lanes of its class that hold nothing longer: what at least goes before it."""
        limit = _octave(request.service)
        lanes = self._lanes[request.request_class].items()
        return sum(other.uncached for number, line in lanes if number <= limit for other in line)

    def counts(self) -> dict[RequestClass, int]:
        """Requests by class."""
        return dict(self._counts)

    def tokens(self) -> dict[RequestClass, int]:
        """Tokens by class that have yet to be computed, less the prefix that was cached when they were looked up."""
        return {
            name: sum(request.uncached for line in lanes.values() for request in line)
            for name, lanes in self._lanes.items()
        }

    def _oldest(self, name: RequestClass) -> Request | None:
        return min([line[0] for line in self._lanes[name].values()], key=attrgetter("arrival"), default=None)


def response_ratio(request: Request, now: float) -> float:
    """What puts a waiting request before others of its class; those that come back pass all."""
    return inf if request.preemptions else ratio(now - request.arrival, request.service)


def ratio(wait: float, service: float) -> float:
    """The response ratio (less one), leaning to the short."""
    return float((wait + HEAD_START) / service**LEAN)


def _begin(request: Request) -> tuple[list[int], str, int]:
    """What pages must have in common to be shared."""
    return request.tokens, request.salt, request.unsalted


def lane(request: Request) -> int:
    """The quarter octave of its service, or the lane of those that come back."""
    return RETURNING if request.preemptions else _octave(request.service)


def _octave(service: float) -> int:
    return floor(_LANES_PER_OCTAVE * log2(max(service, _SHORTEST)))


class RunningSet:
    """The running requests and their pages; whoever keeps count of either is told here.

    `known`: all who wait or run, by id. `round` numbers the steps that were asked for: who is put back in one does not
    come back in it.
    """

    def __init__(
        self, memory: KVCacheManager, batching: Batching, admission: Admission, appraisal: CostEstimator
    ) -> None:
        self.running: list[Request] = []
        self.waiting = Waiting()
        self.counters = Counters()
        self.round = 0
        self.known: dict[str, Request] = {}
        self.memory = memory
        self._batching = batching
        self.admission = admission
        self.appraisal = appraisal

    def leads(self) -> list[Request]:
        """Those who run, of each beam search its lead alone."""
        return [request for request in self.running if request.beams is None or request.beams.lead is request]

    def enter(self, request: Request) -> None:
        """A new one waits."""
        self.known[request.id] = request
        self.waiting.enter(request)

    def admit(self, request: Request, now: float, batch_wait: float) -> None:
        """Give the head of its class pages for all its tokens, which must be there, and a seat."""
        self.waiting.admit(request)
        request.shared = self.memory.place(request)
        if request.beams is not None:
            request.beams.seat()
        for member in members(request):
            self._seat(member)
        self._note(request, now, batch_wait)

    def follow(self, first: Request, now: float) -> None:
        """Whoever waited for its prompt runs on its pages, or queues for want of them."""
        for sibling in self.waiting.follow(first):
            if self.admission.fits(sibling, self.running) and self._fork(first, sibling):
                self._note(sibling, now, 0.0)
            else:
                self.waiting.add(sibling)

    def put_back(self, request: Request) -> None:
        """Preempt it: it waits again, and what it had computed is lost as far as no page keeps it."""
        request.had = request.computed
        self._leave(request, RequestStatus.WAITING)
        if request.beams is not None:
            request.beams.fold()
        request.preemptions += 1
        request.left_round = self.round
        request.resumed_at = request.produced
        self.counters.preemptions += 1
        self.appraisal.renew(request)
        self.waiting.add(request)

    def remove(self, request: Request) -> None:
        """It is over, whether it ran or waited; who waited for its prompt queues."""
        if request.state is RequestStatus.RUNNING:
            self._leave(request, RequestStatus.DONE)
        else:
            self.waiting.remove(request)
            request.state = RequestStatus.DONE
        del self.known[request.id]
        for sibling in self.waiting.follow(request):
            self.waiting.add(sibling)

    def _seat(self, request: Request) -> None:
        request.state = RequestStatus.RUNNING
        insort(self.running, request, key=attrgetter("rank"))
        self._batching.seat(1)
        self.admission.seated(request)

    def _fork(self, parent: Request, child: Request) -> bool:
        """Let it run on its parent's pages; False, and nothing is changed, where it cannot, or lacks one of its own."""
        if not self.memory.fork(parent, child):
            return False
        child.shared = child.computed // self.memory.page_tokens
        if not self.memory.grow(child):
            self.memory.release(child)
            child.computed = child.shared = 0
            return False
        self._seat(child)
        return True

    def _leave(self, request: Request, state: RequestStatus) -> None:
        """It does not run any more, and holds nothing."""
        for member in members(request):
            self.running.remove(member)
            self.admission.leaves(member)
            self.memory.release(member)
            member.state = state
            if state is RequestStatus.WAITING:
                self._batching.seat(-1)
                member.computed = member.pending = 0

    def _note(self, request: Request, now: float, batch_wait: float) -> None:
        if request.preemptions:
            request.resumed_step = self.counters.steps
            self.counters.recomputed_tokens += max(request.had - request.computed, 0)
        if request.admitted is not None:
            return
        request.admitted = now
        request.cached = min(request.computed, request.prompt_len)
        request.batch_wait = batch_wait
        self.counters.lookup_tokens += request.wanted if self.memory.prefix_cache else 0
        self.counters.hit_tokens += request.computed
