"""The workers of one service: which exist, which are ready, which have room, which takes the next request.

The endpoints define which workers exist; their load streams show their state. A worker that fails is paused
(`circuit_breaker`). A worker that has just become ready gets its slots gradually while others have room. Two kinds of
workers are used only when no ready one exists and their endpoints are still ready: silent ones (the load stream is cut
or sends nothing), and those that refused a request because they drain without having reported it. The load stream may
be broken where the worker is not.

`HotSpotGuard` finds workers that had more than their share of the work. Work is counted in seconds by each worker's own
step-time model, so a slow worker's share is smaller in tokens, and it decays over MEMORY_S. A worker is hot when it had
more than LIMIT times the mean plus SLACK_S: then its cached tokens do not count, and among equals it comes last. So
affinity alone never takes a worker beyond LIMIT x mean + SLACK_S + one request.
A new worker starts at the mean: otherwise it would get every request until it has caught up.

Instead of decaying every sum, added work is scaled up with time; sometimes all sums are scaled down together.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from math import exp, inf

from paceline_core.kube import Endpoint
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import LoadReport, WorkerState
from paceline_gateway.request.group_testing import places
from paceline_gateway.routing.circuit_breaker import BreakerState, ejected
from paceline_gateway.routing.policies import Candidate, RoutingPolicy, RoutingRequest, Selection
from paceline_gateway.routing.prefix import PrefixIndex
from paceline_gateway.routing.worker import PLACES, RAMP_S, Worker, WorkerHealth

LIMIT = 1.1
SLACK_S = 0.5
MEMORY_S = 30.0
_RESCALE_S = 600.0
_MAX_EXPONENT = 700.0
"""The largest exponent for `exp`; after such a silence every sum is negligible anyway."""


class HotSpotGuard:
    """Works on the workers it is given; each worker holds its own sum. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._since: float | None = None

    def joined(self, worker: Worker, others: Collection[Worker]) -> None:
        """Start a new worker's sum at the mean of the others."""
        worker.work = sum(other.work for other in others) / len(others) if others else 0.0

    def threshold(self, workers: Collection[Worker], now: float) -> float:
        """The sum above which a worker is hot."""
        growth = self.growth(now, workers)
        mean = sum(worker.work for worker in workers) / len(workers) if workers else 0.0
        return LIMIT * mean + SLACK_S * growth

    def growth(self, now: float, workers: Collection[Worker]) -> float:
        """The factor for a second of work done now, on the scale of the sums."""
        if self._since is None:
            self._since = now
        growth = exp(min((now - self._since) / MEMORY_S, _MAX_EXPONENT))
        if now - self._since <= _RESCALE_S:
            return growth
        self._since = now
        for worker in workers:
            worker.work /= growth
        return 1.0


_READY = WorkerState.READY
BACKGROUND_SHARE = 0.5
"""The share of the work in advance that batch and offline requests may use while interactive ones come too."""


class WorkerPool:
    """`workers` by name. `now` is monotonic seconds. `prefix_bytes` caps the prefix index."""

    def __init__(self, policy: RoutingPolicy, *, silence_s: float, lookahead_s: float, prefix_bytes: int) -> None:
        self._policy = policy
        self._silence_s = silence_s
        self._lookahead_s = lookahead_s
        self.workers: dict[str, Worker] = {}
        self._hot_spots = HotSpotGuard()
        self._picks = 0
        self.prefixes = PrefixIndex(prefix_bytes)
        self.reserved = 0
        """Slots that batch and offline requests leave free for interactive ones, over all workers."""
        self.context = 0
        """The largest number of tokens of a request, as a worker last reported; 0 before that."""

    def __iter__(self) -> Iterator[Worker]:
        return iter(self.workers.values())

    def __len__(self) -> int:
        return len(self.workers)

    def update(self, endpoints: Iterable[Endpoint]) -> None:
        """Replace the set of workers; the state of those that stay is kept.

        A name that returns with another address is another worker.
        """
        known, self.workers = self.workers, {}
        for endpoint in endpoints:
            worker = known.pop(endpoint.name, None)
            if worker is None or worker.address != (endpoint.host, endpoint.port):
                self.prefixes.gone(endpoint.name)
                worker = Worker(endpoint)
            worker.endpoint = endpoint
            self.workers[endpoint.name] = worker
        for name in known:
            self.prefixes.gone(name)

    def on_report(self, name: str, report: LoadReport, now: float) -> None:
        """Take a worker's report. The first line of a load stream lists everything it has cached."""
        worker = self.workers.get(name)
        if worker is None:
            return
        if not worker.connected:
            self.prefixes.gone(name)
        if worker.ready_since == inf and report.state is WorkerState.READY:
            self._hot_spots.joined(worker, [other for other in self.eligible(now) if other is not worker])
        worker.on_report(report, now)
        if report.prefix.added or report.prefix.evicted:
            self.prefixes.reported(name, report.prefix.added, report.prefix.evicted)
        self.context = report.max_model_len or self.context

    def disconnected(self, name: str) -> None:
        worker = self.workers.get(name)
        if worker is not None:
            worker.connected = False
            self.prefixes.gone(name)

    def standing(self, worker: Worker, now: float) -> WorkerHealth:
        return worker.standing(now, self._silence_s)

    def standings(self, now: float) -> Counter[WorkerHealth]:
        return Counter(self.standing(worker, now) for worker in self.workers.values())

    def circuits(self, now: float) -> Counter[BreakerState]:
        return Counter(worker.breaker.state(now) for worker in self.workers.values())

    def leaving(self) -> list[Worker]:
        """Workers that will end and still have requests in flight."""
        return [worker for worker in self.workers.values() if worker.in_flight and worker.leaving]

    def ready(self, now: float) -> list[Worker]:
        """The eligible workers that report being ready and are not silent."""
        return [w for w in self.eligible(now) if self.standing(w, now) is WorkerHealth.READY]

    def eligible(self, now: float) -> list[Worker]:
        """Workers that may take requests, with or without room."""
        ready, silent = [], []
        broken = {name: worker.breaker for name, worker in self.workers.items() if worker.breaker.broken}
        out = ejected(broken, len(self.workers), now) if broken else set()
        for name, worker in self.workers.items():
            report = worker.report
            if report is None or report.state is not _READY or worker.endpoint.terminating or name in out:
                continue
            if worker.connected and now - worker.heard <= self._silence_s and not worker.drains:
                ready.append(worker)
            elif worker.endpoint.ready:
                silent.append(worker)
        return ready or silent

    def has_room(self, now: float, request_class: RequestClass = RequestClass.INTERACTIVE) -> bool:
        """Whether a worker could take a request of this class at once."""
        return bool(self.roomy(now, request_class))

    def roomy(self, now: float, request_class: RequestClass) -> list[str]:
        """Workers that could take a request of this class at once."""
        place, eligible = PLACES[request_class], self.eligible(now)
        reserved = self._reserved_each(len(eligible))
        free = [worker for worker in eligible if worker.in_flight < worker.open_to(place, reserved)]
        return [worker.name for worker in free if not worker.backlog or self._roomy(worker, place)]

    def ttft_s(self, request: RoutingRequest, waiting: int, now: float) -> float:
        """Estimated seconds to the first token of one more request, behind `waiting` prompt tokens of all queues."""
        workers, place = self.eligible(now), PLACES[request.request_class]
        tokens = request.prompt_tokens + (waiting // len(workers) if workers else 0)
        return min((worker.first_token_s(place, tokens, 0, request.expected_output) for worker in workers), default=inf)

    def slot_wait_s(self, name: RequestClass, ahead: int, output: int | None, now: float) -> float | None:
        """Seconds until one more request gets a slot, behind `ahead` others; 0 while one is free, None if unknown.

        A slot becomes free when an answer of `output` tokens has ended, at the pace of its worker's steps.
        """
        workers, place = self.eligible(now), PLACES[name]
        reserved = self._reserved_each(len(workers))
        free = sum(max(worker.open_to(place, reserved) - worker.in_flight, 0) for worker in workers)
        if free > ahead:
            return 0.0
        if not output or not all(worker.step_s for worker in workers):
            return None
        per_second = sum(worker.share / (output * worker.step_s) for worker in workers)
        return (ahead - free + 1) / per_second if per_second else None

    def pick(
        self, request: RoutingRequest, now: float, avoid: frozenset[str] = frozenset(), sure: bool | None = None
    ) -> Selection | None:
        """The worker for a request; None while no worker has room.

        Workers to avoid are used only if no other takes it: a request must not block the queue behind it. A suspect
        goes to a worker that has a place for a trial; `sure`: alone; None: the request is no suspect.
        """
        candidates, new, avoided = self._candidates(request, now, avoid, sure)
        pick = self._policy.pick(candidates, request, now)
        if pick is None and new:
            pick = self._policy.pick(candidates + new, request, now)
        if pick is None and avoided:
            pick = self._policy.pick(candidates + new + avoided, request, now)
        if pick is not None:
            self._picks += 1
            pick.worker.picked = self._picks
        return pick

    def make_way(self, until: float, now: float) -> None:
        """Suspects wait: until then, keep the worker that computes the fewest prompts free of other new ones."""
        free = [worker for worker in self.eligible(now) if not worker.trials]
        if free and all(now >= worker.shut for worker in free):
            min(free, key=lambda worker: len(worker.unbegun)).shut = until

    def assign(  # noqa: PLR0913 - the arguments of `pick`, and the request's number
        self,
        number: int,
        request: RoutingRequest,
        now: float,
        avoid: frozenset[str] = frozenset(),
        sure: bool | None = None,
        *,
        stream: bool,
    ) -> Selection | None:
        """Pick a worker and give the request a slot there."""
        pick = self.pick(request, now, avoid, sure)
        if pick is None:
            return None
        worker, uncached = pick.worker, max(request.prompt_tokens - pick.cached_tokens, 1)
        seconds = worker.work_s(uncached, pick.cached_tokens, request.expected_output)
        worker.take(number, uncached, request.request_class, now, stream=stream)
        growth = self._hot_spots.growth(now, self.workers.values())  # before `work` is read: it may rescale all sums
        worker.work += seconds * growth
        if request.keys:
            self.prefixes.note(worker.name, request.keys, now)
        return pick

    def _candidates(
        self, request: RoutingRequest, now: float, avoid: frozenset[str], sure: bool | None
    ) -> tuple[list[Candidate], list[Candidate], list[Candidate]]:
        """Workers with a free slot: the first choice, those that have just become ready, those to avoid."""
        first: list[Candidate] = []
        new: list[Candidate] = []
        avoided: list[Candidate] = []
        eligible, place, cached = self.eligible(now), PLACES[request.request_class], 0
        hot, reserved = self._hot_spots.threshold(eligible, now), self._reserved_each(len(eligible))
        for worker in eligible:
            if worker.in_flight >= (worker.open_to(place, reserved) if place and reserved else worker.share):
                continue
            if now < worker.shut if sure is None else not self._has_trial_slot(worker, now, sure=sure):
                continue
            if request.keys:
                known = self.prefixes.cached(worker.name, request.keys, now)
                cached = request.tokens(known) if known else 0
            roomy = not worker.backlog or self._roomy(worker, place)
            candidate = Candidate(worker, cached, roomy, worker.work > hot)
            if avoid and worker.name in avoid:
                avoided.append(candidate)
            elif now < worker.ready_since + RAMP_S and worker.in_flight >= worker.ramped(now):
                new.append(candidate)
            else:
                first.append(candidate)
        return first, new, avoided

    def _has_trial_slot(self, worker: Worker, now: float, *, sure: bool) -> bool:
        """Whether the worker has a place for a suspect's trial."""
        if sure and (worker.unbegun or worker.recurring or now < worker.tries_until):
            return False
        return len(worker.trials) < places(sure=sure)

    def _roomy(self, worker: Worker, place: int) -> bool:
        lookahead = self._lookahead_s * BACKGROUND_SHARE if place and self.reserved else self._lookahead_s
        return worker.ahead(place, 0) * worker.token_s < lookahead

    def _reserved_each(self, workers: int) -> int:
        return -(-self.reserved // workers) if self.reserved and workers else 0
