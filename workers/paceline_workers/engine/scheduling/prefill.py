"""The prefills of a step: class by class in the tokens that decodes leave; in a class, by response ratio.

Running prompts and new ones compete by their ratios. Ratios alone would let a long running prompt stand still while
short ones keep coming, so every OLDEST_FIRST_EVERY-th step continues running prompts oldest first, before new ones.

A request is admitted only if it fits now and at the predicted peak (`admission`). If it does not, running requests of a
class that has had more than its share may be preempted for it; otherwise no request of its kind passes it.
"""

from collections.abc import Mapping, Sequence
from math import inf
from operator import itemgetter

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.scheduling.batch_window import BatchWindow
from paceline_workers.engine.scheduling.fair_share import ClassPolicy
from paceline_workers.engine.scheduling.preemption import PreemptionPolicy, preemptible
from paceline_workers.engine.scheduling.request import URGENCY, Request, RequestStatus, members
from paceline_workers.engine.scheduling.running import RunningSet
from paceline_workers.engine.scheduling.step_builder import StepBuilder
from paceline_workers.engine.scheduling.waiting import bucket, ratio, response_ratio

OLDEST_FIRST_EVERY = 8

Opens = Mapping[RequestClass, float]
"""From when on each waiting class may join."""


class PrefillPhase:
    """Continues running prompts, and admits waiting requests."""

    def __init__(
        self, requests: RunningSet, preemption: PreemptionPolicy, policy: ClassPolicy, window: BatchWindow
    ) -> None:
        self._requests = requests
        self._memory = requests.memory
        self._admission = requests.admission
        self._costs = requests.costs
        self._preemption = preemption
        self._policy = policy
        self._window = window

    def refresh_some(self) -> None:
        """Look up for some waiting requests what is cached by now."""
        for request in self._requests.waiting.round_robin():
            self._requeue(request)

    def plan(self, step: StepBuilder, prefills: list[Request], opens: Opens, now: float) -> None:
        """Add the running `prefills`, and waiting requests that may join by now."""
        joining = {name for name, time in opens.items() if time <= now}
        for name in self._policy.order(joining | {request.request_class for request in prefills}):
            prompts = [
                (request, self._costs.service(request, request.gap))
                for request in prefills
                if request.request_class is name
            ]
            for request, response in prefill_order(prompts, self._requests.counters.steps, now):
                if name in joining:
                    self._admit(name, step, opens[name], now, above=response)
                if request.state is RequestStatus.RUNNING:
                    step.add_prefill(request, self._memory.reach(request))
            if name in joining:
                self._admit(name, step, opens[name], now)

    def _admit(self, name: RequestClass, step: StepBuilder, opened: float, now: float, *, above: float = -inf) -> None:
        waiting = self._requests.waiting
        while step.admits(name) and (request := waiting.head(name, now)):
            if self._requeue(request):
                continue  # another may be the head, by what is cached now
            if response_ratio(request, now) <= above or request.preempted_round == self._requests.round:
                return
            if not self._make_room(request, step):
                return
            self._requests.admit(request, now, self._window.waited(request, opened, now))
            step.add_prefill(request, self._memory.reach(request))

    def _requeue(self, request: Request) -> bool:
        """Refresh a waiting request; whether that changed its bucket."""
        self._costs.refresh(request)
        if bucket(request) == request.bucket:
            return False
        self._requests.waiting.remove(request)
        self._requests.waiting.add(request)
        return True

    def _make_room(self, request: Request, step: StepBuilder) -> bool:
        running = self._requests.running
        while not self._admission.fits(request, running):
            reserved = self._admission.reserved(request, running)
            if reserved or (victim := self._victim_for(request)) is None:
                step.close(request, reserved=reserved)
                return False
            for member in members(victim):
                step.remove(member)
            self._requests.preempt(victim)
        return True

    def _victim_for(self, request: Request) -> Request | None:
        """The cheapest running request of the least urgent class that yields to a waiting one."""
        classes = {name for name in URGENCY if self._policy.yields(name, request.request_class)}
        found = preemptible(self._requests.leads(), classes, self._requests.counters.steps) if classes else []
        return self._preemption.choose(found) if found else None


def prefill_order(prompts: Sequence[tuple[Request, float]], step: int, now: float) -> list[tuple[Request, float]]:
    """Running prompts in their order; they are given oldest first, with the seconds that each still needs.

    Beside each is the ratio that a new prompt must exceed to pass it: none does when the oldest goes first.
    """
    if step % OLDEST_FIRST_EVERY == 0:
        return [(request, inf) for request, _ in prompts]
    ratios = [(request, ratio(now - request.arrival, service)) for request, service in prompts]
    return sorted(ratios, key=itemgetter(1), reverse=True)
