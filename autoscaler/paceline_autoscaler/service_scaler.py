"""One service under the autoscaler's care: a pass over it, and what is said of it between passes.

What an earlier process learned is read first. While the API server does not give it (a missing right, no answer), the
passes go on with what they learn themselves, nothing is scaled down, and nothing is stored over it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from paceline_autoscaler.model.history import joined
from paceline_autoscaler.output import status
from paceline_autoscaler.output.decision_log import DecisionLog, same_kind
from paceline_autoscaler.output.scale_writer import ScaleWriter
from paceline_autoscaler.output.status import Status, StatusInput, Turned, refusal, refused_status, status_of
from paceline_autoscaler.policies import decide
from paceline_autoscaler.types import Decision, LearnedState, MissingSignal, Now, Observation, SloTarget
from paceline_core.clock import Clock, rfc3339
from paceline_core.errors import Forbidden, PacelineError
from paceline_core.kube import ObjectKey, Scale, ServiceRef
from paceline_core.objects import InferenceService
from paceline_core.registry.enums import Direction, ScaleLimit
from paceline_core.telemetry import Metrics

STATUS_PACE_S = 5.0
STATUS_REPEAT_S = 60.0
STATE_PACE_S = 30.0
STATE_AGAIN_S = 10.0


@dataclass(frozen=True, slots=True)
class ScalerDeps:
    """What every subject works with."""

    actuator: ScaleWriter
    ledger: DecisionLog
    metrics: Metrics
    clock: Clock
    now: Now


class ServiceScaler:
    """Holds the state that decisions carry over; `uid` tells a new object of the same name from this one."""

    def __init__(self, key: ObjectKey, uid: str, desk: ScalerDeps) -> None:
        self.key = key
        self.uid = uid
        self.state = LearnedState()
        self.unread = "not asked for yet"
        """Why the stored state is not known; empty once it is."""
        self._desk = desk
        self._standing: Decision | None = None
        self._since = ""
        self._supply: tuple[tuple[int, int], ...] = ()
        self._said: Status | None = None
        self._said_at = 0.0
        self._stored_at = desk.clock.monotonic()
        self._passed_at: float | None = None
        self._refused = ""
        self._refusal_told = ""
        self._recalled_at: float | None = None

    async def recall(self) -> None:
        """Read what was stored before, until it was read once; what failed is tried again soon."""
        now = self._desk.clock.monotonic()
        if not self.unread or (self._recalled_at is not None and now - self._recalled_at < STATE_AGAIN_S):
            return
        self._recalled_at = now
        try:
            stored = await self._desk.actuator.recall(ServiceRef(self.key, self.uid))
        except PacelineError as error:
            self.unread = str(error)
        else:
            self.state, self.unread = joined(stored, self.state), ""

    async def decide(self, seen: Observation, scales: dict[str, Scale]) -> Decision:
        """Decide, write it down, carry it out."""
        decision, state = decide(seen, self.state)
        self._desk.ledger.add(self.state, seen, decision)
        self.state = state
        self._count(seen, decision)
        await self._act(decision, scales)
        if seen.supply != self._supply:
            self._standing, self._supply = decision, seen.supply
        return decision

    async def say(
        self,
        service: InferenceService,
        seen: Observation,
        decision: Decision,
        quantiles: dict[SloTarget, float],
        lost: Mapping[MissingSignal, str],
    ) -> None:
        """Bring the object's status up to date, if it is worth a write."""
        if self._standing is None:
            return
        now, turned, generation = self._desk.clock.monotonic(), self._turned(service), service.metadata.generation
        starting = dict(self.state.starting)
        why = {**lost, MissingSignal.STATE: self.unread}
        standing = StatusInput(self._since, self._standing, decision, seen, quantiles, starting, why, self._refused)
        if not self._due(status_of(standing, turned, generation, self._time()), now):
            return
        self._standing = decision
        said = status_of(replace(standing, decision=decision), turned, generation, self._time())
        if await self._desk.actuator.say(self.key, said):
            self._said, self._said_at = said, now

    async def say_refused(self, service: InferenceService, words: str) -> None:
        """A right is missing without which nothing can be decided: say so beside what stands there already."""
        said = refused_status(service.status, words, service.metadata.generation, self._time())
        told = {row.type: (row.reason, row.message) for row in service.status.conditions}
        if told.get("ScalingActive") == ("Forbidden", refusal(words)) or self._refusal_told == words:
            return
        if await self._desk.actuator.say(self.key, said):
            self._refusal_told, self._said = words, None

    async def remember(self, *, at_once: bool = False) -> None:
        """Store what was learned, now and then; what could not be stored is tried again sooner."""
        if self.unread:
            return
        now = self._desk.clock.monotonic()
        if at_once or now - self._stored_at >= STATE_PACE_S:
            stored = await self._desk.actuator.remember(ServiceRef(self.key, self.uid), self.state)
            self._stored_at = now if stored else now - STATE_PACE_S + STATE_AGAIN_S

    async def _act(self, decision: Decision, scales: dict[str, Scale]) -> None:
        before = self._standing
        fault = await self._desk.actuator.scale(self.key, decision, scales)
        self._refused = str(fault) if isinstance(fault, Forbidden) else ""
        self._refusal_told = ""
        if before is None or not same_kind(before, decision):
            self._standing, self._since = decision, self._time()
            if decision.direction is not Direction.HOLD and fault is None:
                await self._desk.actuator.tell(self.key, decision)
            if decision.limit is not (ScaleLimit.NONE if before is None else before.limit):
                await self._desk.actuator.warn_of_limit(self.key, decision)

    def _count(self, seen: Observation, decision: Decision) -> None:
        now = self._desk.clock.monotonic()
        elapsed = 0.0 if self._passed_at is None else now - self._passed_at
        self._passed_at = now
        status.record(self._desk.metrics, self.key, seen, decision, elapsed)

    def _due(self, said: Status, now: float) -> bool:
        if self._said is None or now - self._said_at >= STATUS_REPEAT_S:
            return True
        urgent = ("scaling", "conditions")
        if any(_stable(said[part]) != _stable(self._said[part]) for part in urgent):
            return True
        return said != self._said and now - self._said_at >= STATUS_PACE_S

    def _turned(self, service: InferenceService) -> Turned:
        """What we said last, since the watch may not have told it back yet; at first what an earlier one said."""
        if self._said is None:
            return {old.type: (old.status, old.last_transition_time) for old in service.status.conditions}
        return {row["type"]: (row["status"], row["lastTransitionTime"]) for row in self._said["conditions"]}

    def _time(self) -> str:
        return rfc3339(self._desk.clock.utc())


def _stable(part: object) -> object:
    """What of the status must be told at once: not the measured numbers, which move with every pass."""
    if isinstance(part, dict):
        return {name: value for name, value in part.items() if name not in ("promise", "burn")}
    return part
