"""The gateway's queues in front of the workers of `benchmarks.routing`: its dispatcher instead of first come, first
served, under the same virtual clock. What each tenant was served is measured here, not read from the queues' counters.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from benchmarks.routing.simulation import Engine, Front, Job, Simulation, Way
from benchmarks.scheduling.simulation import Machine
from benchmarks.scheduling.traces import Call

from paceline_gateway.queueing.dispatcher import Dispatcher, QueueLimits
from paceline_gateway.queueing.queued_request import OUTPUT_WEIGHT, QueuedRequest

HOLD_S = 3600.0
_CAPS = QueueLimits(held=1 << 30, size=1 << 60)


@dataclass(slots=True)
class Story:
    """What happened. `waits`: seconds in the queue by tenant, with the time when they were over. `ttft`: the same.

    `service`: tokens by tenant with the time, uncached prompts when they begin, output twice when it ends. `alone`:
    when each tenant last had nobody waiting.
    """

    waits: defaultdict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    ttft: defaultdict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    service: defaultdict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    alone: dict[str, float] = field(default_factory=dict)


class FairFront(Front):
    """One gateway with its dispatcher."""

    def __init__(self, way: Way, number: int, engines: Sequence[Engine]) -> None:
        super().__init__(way, number, engines)
        self.dispatcher = Dispatcher(self.fleet, _CAPS)
        self.story = Story()
        self._queued: dict[int, QueuedRequest] = {}
        self._jobs: dict[int, Job] = {}

    def arrive(self, job: Job, now: float) -> None:
        """A call comes."""
        ask = job.ask
        queued = QueuedRequest(job.number, ask.request_class, ask.prompt_tokens, 4 * ask.prompt_tokens, now + HOLD_S)
        queued.tenant, queued.expected_output = job.tenant, ask.expected_output
        queued.keys, queued.prompt_bytes = ask.keys, ask.prompt_bytes
        self._queued[job.number], self._jobs[job.number] = queued, job
        self.story.alone.setdefault(job.tenant, now)
        self.dispatcher.join(queued, now)

    def dispatch(self, now: float) -> list[Job]:
        """Everybody who can go."""
        gone = []
        for queued, worker in self.dispatcher.dispatch(now):
            job = self._jobs.pop(queued.id)
            job.worker, job.gateway = worker, self
            self.story.waits[job.tenant].append((now, now - job.at))
            gone.append(job)
        lines = self.dispatcher.queues.values()
        self.story.alone.update(
            (tenant, now) for tenant in self.story.alone if not any(line.shares.of(tenant) for line in lines)
        )
        return gone

    def began(self, job: Job, now: float) -> None:
        """Its first token came: its prompt has been computed."""
        super().began(job, now)
        self.story.ttft[job.tenant].append((now, now - job.at))
        self.story.service[job.tenant].append((now, _uncached(job)))

    def ended(self, job: Job, now: float) -> None:
        """Its last token came."""
        queued, output = self._queued.pop(job.number), OUTPUT_WEIGHT * job.call.output
        self.dispatcher.release(queued, now, suspect=False)
        self.dispatcher.queues[queued.request_class].settle(queued, _uncached(job) + output)
        self.story.service[job.tenant].append((now, output))


class Given(Simulation):
    """Calls that are jobs already, first come, first served."""

    def __init__(self, given: list[Job], machine: Machine, way: Way, workers: int) -> None:
        self._given = given
        super().__init__([job.call for job in given], machine, way, workers, 1.0)

    def made(self, calls: Sequence[Call], rate: float) -> list[Job]:  # noqa: ARG002 - as a Simulation has it
        """What was given."""
        return self._given


class Fair(Given):
    """The same with the gateway's queues."""

    front: ClassVar[type[Front]] = FairFront

    @property
    def story(self) -> Story:
        """What happened at the one gateway."""
        (front,) = self.fronts
        if not isinstance(front, FairFront):
            raise TypeError("another front than the one asked for")
        return front.story


def _uncached(job: Job) -> int:
    return job.call.prompt - (job.request.cached if job.request is not None else 0)
