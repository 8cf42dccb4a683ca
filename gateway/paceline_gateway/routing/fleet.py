"""The workers of one service: who exists, who is well, who has room.

Endpoints say who exists, load streams say how they are. A worker that just failed a dispatch is left out for a
second. A silent worker (its load stream is cut or says nothing) is asked only when no ready one exists and its
endpoint is still called ready: the stream may be broken where the worker is not.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from paceline_core.kube import Endpoint
from paceline_core.wire import LoadReport
from paceline_gateway.routing.policy import Ask, Candidate, Pick, Policy
from paceline_gateway.routing.worker import SUSPECT_S, Standing, Worker


class Fleet:
    """All methods are synchronous; `now` is monotonic seconds."""

    def __init__(self, policy: Policy, *, silence_s: float, lookahead_s: float) -> None:
        self._policy = policy
        self._silence_s = silence_s
        self._lookahead_s = lookahead_s
        self._workers: dict[str, Worker] = {}
        self._picks = 0
        self.context = 0
        """Tokens that a request may have, as a worker last told; 0 before one did."""

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers.values())

    def __len__(self) -> int:
        return len(self._workers)

    def get(self, name: str) -> Worker | None:
        """A worker by its endpoint's name."""
        return self._workers.get(name)

    def update(self, endpoints: Iterable[Endpoint]) -> None:
        """Replace the picture of who exists; what is known of those who stay is kept.

        A name that comes back under another address is another worker.
        """
        known, self._workers = self._workers, {}
        for endpoint in endpoints:
            worker = known.get(endpoint.name)
            if worker is None or worker.address != (endpoint.host, endpoint.port):
                worker = Worker(endpoint)
            worker.endpoint = endpoint
            self._workers[endpoint.name] = worker

    def says(self, name: str, report: LoadReport, now: float) -> None:
        """A worker reported."""
        worker = self._workers.get(name)
        if worker is not None:
            worker.says(report, now)
            self.context = report.max_model_len or self.context

    def cut(self, name: str) -> None:
        """A worker's load stream broke."""
        worker = self._workers.get(name)
        if worker is not None:
            worker.connected = False

    def suspect(self, name: str, now: float) -> None:
        """A worker failed a dispatch: let others go first."""
        worker = self._workers.get(name)
        if worker is not None:
            worker.suspect_until = now + SUSPECT_S

    def standings(self, now: float) -> Counter[Standing]:
        """How many workers are in each state."""
        return Counter(worker.standing(now, self._silence_s) for worker in self._workers.values())

    def eligible(self, now: float) -> list[Worker]:
        """Workers that may be asked at all, with or without room."""
        ready, silent = [], []
        for worker in self._workers.values():
            if worker.suspect_until > now:
                continue
            standing = worker.standing(now, self._silence_s)
            if standing is Standing.READY:
                ready.append(worker)
            elif standing is Standing.SILENT and worker.endpoint.ready:
                silent.append(worker)
        return ready or silent

    def has_room(self, now: float) -> bool:
        """Whether anybody could take a request at once."""
        return any(worker.has_room(self._lookahead_s) for worker in self.eligible(now))

    def pick(self, ask: Ask, now: float, avoid: frozenset[str] = frozenset()) -> Pick | None:
        """The worker for a request, None while nobody has room.

        Those to avoid are asked only if no other has room: a request must not block the line behind it.
        """
        open_ones = [worker for worker in self.eligible(now) if worker.has_room(self._lookahead_s)]
        if avoid:
            open_ones = [worker for worker in open_ones if worker.name not in avoid] or open_ones
        pick = self._policy.pick([Candidate(worker) for worker in open_ones], ask, now)
        if pick is not None:
            self._picks += 1
            pick.worker.picked = self._picks
        return pick
