"""The prefills of a step: what decodes leave, class by class; in a class, running and new ones by response ratio.

A request is admitted only if it fits now and at the worst moment to come (`admission`). If it does not, running
requests of a class that has had more than its share may be put back for it; else nothing of its kind passes it.

Which running prompt goes on first: by response ratio, as waiting ones do, but every TURN-th step the oldest.

Ratios alone would let a long prompt stand still while short ones keep coming.
"""

from collections.abc import Mapping, Sequence
from math import inf
from operator import itemgetter

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.scheduling.batch_window import BatchWindow
from paceline_workers.engine.scheduling.beams import members
from paceline_workers.engine.scheduling.fair_share import ClassPolicy
from paceline_workers.engine.scheduling.preemption import PreemptionPolicy, yielding
from paceline_workers.engine.scheduling.request import URGENCY, Request, RequestStatus
from paceline_workers.engine.scheduling.running import RunningSet, lane, ratio, response_ratio
from paceline_workers.engine.scheduling.step_builder import StepBuilder

TURN = 8


def prefill_order(prompts: Sequence[tuple[Request, float]], step: int, now: float) -> list[tuple[Request, float]]:
    """Prompts, given oldest first with the seconds they still need, in their order.

    Beside each stands the ratio that a new prompt must exceed to pass it; in a TURN-th step none does.
    """
    if step % TURN == 0:
        return [(request, inf) for request, _ in prompts]
    ratios = [(request, ratio(now - request.arrival, service)) for request, service in prompts]
    return sorted(ratios, key=itemgetter(1), reverse=True)


Opens = Mapping[RequestClass, float]
"""From when on each waiting class may join."""


class PrefillPhase:
    """Who goes on with its prompt, and who begins."""

    def __init__(self, seats: RunningSet, victims: PreemptionPolicy, policy: ClassPolicy, window: BatchWindow) -> None:
        self._seats = seats
        self._memory = seats.memory
        self._admission = seats.admission
        self._appraisal = seats.appraisal
        self._victims = victims
        self._policy = policy
        self._window = window

    def look_up(self) -> None:
        """See for some who wait what is cached by now."""
        for request in self._seats.waiting.tour():
            self._requeue(request)

    def draft(self, draft: StepBuilder, prefills: list[Request], opens: Opens, now: float) -> None:
        """Fill the draft with running `prefills`, and with those who may join by now."""
        joining = {name for name, time in opens.items() if time <= now}
        for name in self._policy.order(joining | {request.request_class for request in prefills}):
            mine = [
                (request, self._appraisal.service(request, request.gap))
                for request in prefills
                if request.request_class is name
            ]
            for request, response in prefill_order(mine, self._seats.counters.steps, now):
                if name in joining:
                    self._admit(name, draft, opens[name], now, above=response)
                if request.state is RequestStatus.RUNNING:
                    draft.prefill(request, self._memory.reach(request))
            if name in joining:
                self._admit(name, draft, opens[name], now)

    def _admit(self, name: RequestClass, draft: StepBuilder, opened: float, now: float, *, above: float = -inf) -> None:
        while draft.admits(name) and (request := self._head(name, now)):
            if response_ratio(request, now) <= above or request.left_round == self._seats.round:
                return
            if not self._make_room(request, draft):
                return
            self._seats.admit(request, now, self._window.waited(request, opened, now))
            draft.prefill(request, self._memory.reach(request))

    def _head(self, name: RequestClass, now: float) -> Request | None:
        """The next of a class, by what is cached now."""
        while (request := self._seats.waiting.head(name, now)) and self._requeue(request):
            pass
        return request

    def _requeue(self, request: Request) -> bool:
        """Look a waiting request up again; whether that changed its lane."""
        self._appraisal.renew(request)
        if lane(request) == request.lane:
            return False
        self._seats.waiting.remove(request)
        self._seats.waiting.add(request)
        return True

    def _make_room(self, request: Request, draft: StepBuilder) -> bool:
        running = self._seats.running
        while not self._admission.fits(request, running):
            reserved = self._admission.reserved(request, running)
            if reserved or (victim := self._outranked(request)) is None:
                draft.close(request, reserved=reserved)
                return False
            for member in members(victim):
                draft.drop(member)
            self._seats.put_back(victim)
        return True

    def _outranked(self, request: Request) -> Request | None:
        """Whom a waiting request may put back: the cheapest of the least urgent class that has to yield."""
        classes = {name for name in URGENCY if self._policy.yields(name, request.request_class)}
        lowest = yielding(self._seats.leads(), classes, self._seats.counters.steps) if classes else []
        return self._victims.choose(lowest) if lowest else None
