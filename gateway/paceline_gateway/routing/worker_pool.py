"""The workers of one service: who exists, who is well, who has room, who takes the next request.

Endpoints say who exists, load streams say how they are. A worker that fails pauses (`breaker`), one that has just
become ready is given its slots little by little while others have room. A silent worker (its load stream is cut or says
nothing), and one that refused because it drains and has not said so there, are asked only when no ready one exists and
their endpoints are still called ready: the stream may be broken where the worker is not.

Who has had more than its share of the work: the guard against hot spots.

Work is counted in seconds by each worker's own step-time model, so a slow worker's share is smaller in tokens, and it
fades with MEMORY_S. A worker is hot when it has had more than LIMIT times the mean and SLACK_S more: then nothing that
it has cached speaks for it, and among equals it is the last. So affinity alone never takes a worker beyond LIMIT x
mean + SLACK_S + one request.
Whoever joins starts at the mean: it must not be given everything until it has caught up.

Instead of letting every sum fade, what is added grows; the sums are scaled down together now and then.
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
"""What `exp` can still take; after so long a silence every sum is nothing anyway."""


class HotSpotGuard:
    """Over the workers that are handed in; each keeps its own sum. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._since: float | None = None

    def joined(self, worker: Worker, others: Collection[Worker]) -> None:
        """It starts where the others are."""
        worker.work = sum(other.work for other in others) / len(others) if others else 0.0

    def threshold(self, workers: Collection[Worker], now: float) -> float:
        """The sum above which a worker is hot."""
        growth = self.growth(now, workers)
        mean = sum(worker.work for worker in workers) / len(workers) if workers else 0.0
        return LIMIT * mean + SLACK_S * growth

    def growth(self, now: float, workers: Collection[Worker]) -> float:
        """How much a second of work of now weighs beside those in the sums."""
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
"""Share of the work given ahead that batch and offline requests may make up, while interactive ones come too."""


class WorkerPool:
    """`workers` by name. `now` is monotonic seconds. `prefix_bytes` caps what is known of prefixes."""

    def __init__(self, policy: RoutingPolicy, *, silence_s: float, lookahead_s: float, prefix_bytes: int) -> None:
        self._policy = policy
        self._silence_s = silence_s
        self._lookahead_s = lookahead_s
        self.workers: dict[str, Worker] = {}
        self._hot_spots = HotSpotGuard()
        self._picks = 0
        self.prefixes = PrefixIndex(prefix_bytes)
        self.reserved = 0
        """Slots that batch and offline requests leave free for interactive ones, of all workers together."""
        self.context = 0
        """Tokens that a request may have, as a worker last told; 0 before one did."""

    def __iter__(self) -> Iterator[Worker]:
        return iter(self.workers.values())

    def __len__(self) -> int:
        return len(self.workers)

    def update(self, endpoints: Iterable[Endpoint]) -> None:
        """Replace the snapshot of who exists; what is known of those who stay is kept.

        A name that comes back under another address is another worker.
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
        """A worker reported. The first line of a load stream tells all that it has cached."""
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

    def draining(self) -> list[Worker]:
        """Workers that drain and still have something in flight."""
        return [worker for worker in self.workers.values() if worker.in_flight and worker.draining]

    def ready(self, now: float) -> list[Worker]:
        """Those of the eligible that say that they are ready, and were heard lately."""
        return [w for w in self.eligible(now) if self.standing(w, now) is WorkerHealth.READY]

    def eligible(self, now: float) -> list[Worker]:
        """Workers that may be asked at all, with or without room."""
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
        """Whether anybody could take a request of this class at once."""
        return bool(self.roomy(now, request_class))

    def roomy(self, now: float, request_class: RequestClass) -> list[str]:
        """Workers that could take a request of this class at once."""
        place, eligible = PLACES[request_class], self.eligible(now)
        reserved = self._reserved_each(len(eligible))
        free = [worker for worker in eligible if worker.in_flight < worker.open_to(place, reserved)]
        return [worker.name for worker in free if not worker.backlog or self._roomy(worker, place)]

    def ttft_s(self, request: RoutingRequest, waiting: int, now: float) -> float:
        """Estimated seconds to the first token of one more request, behind so many prompt tokens that wait for all."""
        workers, place = self.eligible(now), PLACES[request.request_class]
        tokens = request.prompt_tokens + (waiting // len(workers) if workers else 0)
        return min((worker.first_token_s(place, tokens, 0, request.expected_output) for worker in workers), default=inf)

    def slot_wait_s(self, name: RequestClass, ahead: int, output: int | None, now: float) -> float | None:
        """Seconds until one more request has a slot, behind so many; 0 while one is free for it, None if not known.

        Slots come free as fast as answers of `output` tokens take at the pace of their workers' steps.
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
        """The worker for a request, None while nobody has room.

        Those to avoid are asked only if no other would take it: a request must not block the queue behind it. A
        suspect goes where there is a place on trial; `sure`: alone, None: it is none.
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
        """Suspects wait: until then the worker that computes the fewest prompts is given no other new ones."""
        free = [worker for worker in self.eligible(now) if not worker.trials]
        if free and all(now >= worker.shut for worker in free):
            min(free, key=lambda worker: len(worker.unbegun)).shut = until

    def assign(  # noqa: PLR0913 - as `pick`, and who it is for
        self,
        number: int,
        request: RoutingRequest,
        now: float,
        avoid: frozenset[str] = frozenset(),
        sure: bool | None = None,
        *,
        stream: bool,
    ) -> Selection | None:
        """Give a request a slot at the worker that is picked."""
        pick = self.pick(request, now, avoid, sure)
        if pick is None:
            return None
        worker, uncached = pick.worker, max(request.prompt_tokens - pick.cached_tokens, 1)
        seconds = worker.work_s(uncached, pick.cached_tokens, request.expected_output)
        worker.take(number, uncached, request.request_class, now, stream=stream)
        growth = self._hot_spots.growth(now, self.workers.values())  # before `work` is read: it may scale all down
        worker.work += seconds * growth
        if request.keys:
            self.prefixes.note(worker.name, request.keys, now)
        return pick

    def _candidates(
        self, request: RoutingRequest, now: float, avoid: frozenset[str], sure: bool | None
    ) -> tuple[list[Candidate], list[Candidate], list[Candidate]]:
        """Workers with a free slot: those to be asked first, those that are new, those to avoid."""
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
                cached = request.tokens(self.prefixes.cached(worker.endpoint.name, request.keys, now))
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
        """Whether a suspect may go there as far as trials are concerned."""
        if sure and (worker.unbegun or worker.recurring or now < worker.tries_until):
            return False
        return len(worker.trials) < places(sure=sure)

    def _roomy(self, worker: Worker, place: int) -> bool:
        lookahead = self._lookahead_s * BACKGROUND_SHARE if place and self.reserved else self._lookahead_s
        return worker.ahead(place, 0) * worker.token_s < lookahead

    def _reserved_each(self, workers: int) -> int:
        return -(-self.reserved // workers) if self.reserved and workers else 0
