"""Scales one service: executes its decisions, keeps what it learned, reports its status.

It first loads the state that an earlier process stored. While the API server does not return it (a missing right, no
answer), passes continue with what they learn themselves, nothing is scaled down, and the stored state is not replaced.

A write is guarded by the version that the decision was made with: a Conflict means that another writer scaled the pool,
and the next pass observes again. The autoscaler does not choose which workers a scale-down removes: the supervisor or
Kubernetes drains workers of its own choice, and each worker finishes its streams.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from paceline_autoscaler.model.history import merge_states
from paceline_autoscaler.output.ledger import Ledger, same_kind
from paceline_autoscaler.output.status import (
    Status,
    StatusInput,
    forbidden_message,
    forbidden_status,
    status_of,
)
from paceline_autoscaler.policies.constraints import cost_per_hour
from paceline_autoscaler.types import Decision, LearnedState, MissingSignal, Now, Observation, ScalingSpec, SloTarget
from paceline_core.clock import Clock, rfc3339
from paceline_core.errors import Conflict, Forbidden, PacelineError
from paceline_core.kube import Cluster, Event, ObjectKey, Scale, ScaleTarget, ServiceRef
from paceline_core.objects import InferenceService
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_core.registry.enums import Direction, ReplicaState, ScaleLimit
from paceline_core.telemetry import FaultLog, Metrics, get_logger

MANAGER = "paceline-autoscaler"
STATE_LIMIT = 32 << 10
_STATE = TypeAdapter(LearnedState)
_UNDELETED = "the states of services that are gone are not deleted"
_log = get_logger(__name__)


class ScaleWriter:
    """The autoscaler's only writer."""

    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._complaints = FaultLog(_log)

    async def scales(self, goal: ScalingSpec) -> dict[str, Scale]:
        """The ordered replicas of each pool. Raises Unreachable or NotFound."""
        key = ObjectKey.parse(goal.service)
        return {pool.name: await self._cluster.get_scale(ScaleTarget(key, pool.name)) for pool in goal.pools}

    async def scale(self, key: ObjectKey, decision: Decision, scales: Mapping[str, Scale]) -> PacelineError | None:
        """Order the decided replicas; returns the last error, if any: the next pass tries again."""
        fault = None
        for pool in decision.pools:
            if pool.replicas == pool.current:
                continue
            try:
                await self._cluster.set_scale(ScaleTarget(key, pool.name), pool.replicas, scales[pool.name].version)
            except PacelineError as error:
                fault = error
                self._failed(key, "scale", error)
            else:
                self._complaints.end(_unwritten(key, "scale"))
        return fault

    async def announce(self, key: ObjectKey, decision: Decision, *, limited: bool) -> None:
        """Record an Event for the decision, or for the limit that prevents the recommendation."""
        reason = {Direction.UP: "ScaledUp", Direction.DOWN: "ScaledDown", Direction.HOLD: "ScalingHeld"}
        kind = ("Warning", "ScalingLimited") if limited else ("Normal", reason[decision.direction])
        await self._cluster.event(Event(INFERENCE_SERVICE, key, *kind, decision.sentence))

    async def write_status(self, key: ObjectKey, status: Mapping[str, Any]) -> bool:
        try:
            await self._cluster.patch_status(INFERENCE_SERVICE, key, status, MANAGER)
        except PacelineError as error:
            self._failed(key, "status", error)
            return False
        self._complaints.end(_unwritten(key, "status"))
        return True

    async def load_state(self, service: ServiceRef) -> LearnedState:
        """The learned state of a service; empty if none is stored that this version can read.

        Raises PacelineError if the API server does not answer.
        """
        try:
            data = await self._cluster.get_state(service)
        except PacelineError as error:
            self._count(service.key)
            self._complaints.begin(_unread(service.key), str(error))
            raise
        self._complaints.end(_unread(service.key))
        if data is None or "state" not in data:
            return LearnedState()
        try:
            return _STATE.validate_json(data["state"])
        except ValidationError as error:
            _log.warning(
                "learned state is unreadable and starts anew",
                extra={"service": str(service.key), "reason": str(error)},
            )
            return LearnedState()

    async def save_state(self, service: ServiceRef, state: LearnedState) -> bool:
        """Store the learned state; False if that failed."""
        try:
            await self._cluster.put_state(service, {"state": state_json(state)})
        except PacelineError as error:
            self._failed(service.key, "state", error)
            return False
        self._complaints.end(_unwritten(service.key, "state"))
        return True

    async def forget_gone(self, alive: Collection[ServiceRef]) -> bool:
        """Delete the learned state of deleted services; False if some may remain."""
        try:
            for service in await self._cluster.list_states():
                if service not in alive:
                    await self._cluster.delete_state(service)
                    _log.info("the state of a service that is gone is deleted", extra={"service": str(service.key)})
        except PacelineError as error:
            self._complaints.begin(_UNDELETED, str(error))
            return False
        self._complaints.end(_UNDELETED)
        return True

    def _failed(self, key: ObjectKey, what: str, error: PacelineError) -> None:
        if isinstance(error, Conflict):
            _log.info("another writer was faster", extra={"service": str(key), "what": what, "reason": str(error)})
            return
        self._count(key)
        self._complaints.begin(_unwritten(key, what), str(error))

    def _count(self, key: ObjectKey) -> None:
        self._metrics.counter("paceline_autoscaler_actuation_errors_total", key.namespace, key.name).inc()


def _unread(key: ObjectKey) -> str:
    return f"the learned state of {key} is not read; nothing is stored over it"


def _unwritten(key: ObjectKey, what: str) -> str:
    return f"the {what} of {key} is not written"


def state_json(state: LearnedState) -> str:
    """The state as stored; at most STATE_LIMIT bytes by construction."""
    return _STATE.dump_json(state).decode()


STATUS_INTERVAL_S = 5.0
STATUS_REPEAT_S = 60.0
STATE_INTERVAL_S = 30.0
STATE_RETRY_S = 10.0


@dataclass(frozen=True, slots=True)
class ScalerDeps:
    writer: ScaleWriter
    ledger: Ledger
    metrics: Metrics
    clock: Clock
    now: Now


class ServiceScaler:
    """The state that decisions carry over; `uid` distinguishes a new object of the same name from this one."""

    def __init__(self, key: ObjectKey, uid: str, deps: ScalerDeps) -> None:
        self.key = key
        self.uid = uid
        self.state = LearnedState()
        self.unread = "not read yet"
        """Why the stored state is unknown; empty once it is known."""
        self._deps = deps
        self._standing: Decision | None = None
        self._since = ""
        self._supply: tuple[tuple[int, int], ...] = ()
        self._written: Status | None = None
        self._written_at = 0.0
        self._stored_at = deps.clock.monotonic()
        self._passed_at: float | None = None
        self._forbidden = ""
        self._forbidden_reported = ""
        self._loaded_at: float | None = None

    async def load_state(self) -> None:
        """Load the stored state until that has succeeded once; retries a failure soon."""
        now = self._deps.clock.monotonic()
        if not self.unread or (self._loaded_at is not None and now - self._loaded_at < STATE_RETRY_S):
            return
        self._loaded_at = now
        try:
            stored = await self._deps.writer.load_state(ServiceRef(self.key, self.uid))
        except PacelineError as error:
            self.unread = str(error)
        else:
            self.state, self.unread = merge_states(stored, self.state), ""

    async def execute(
        self, observation: Observation, decision: Decision, state: LearnedState, scales: dict[str, Scale]
    ) -> None:
        """Enter a decision into the ledger, then write the replicas it orders; `state` is the state after it."""
        self._deps.ledger.add(self.state, observation, decision)
        self.state = state
        now = self._deps.clock.monotonic()
        elapsed_s = 0.0 if self._passed_at is None else now - self._passed_at
        self._passed_at = now
        _record(self._deps.metrics, self.key, observation, decision, elapsed_s)
        before = self._standing
        error = await self._deps.writer.scale(self.key, decision, scales)
        self._forbidden = str(error) if isinstance(error, Forbidden) else ""
        self._forbidden_reported = ""
        if before is None or not same_kind(before, decision):
            self._standing, self._since = decision, self._time()
            if decision.direction is not Direction.HOLD and error is None:
                await self._deps.writer.announce(self.key, decision, limited=False)
            if decision.limit not in (ScaleLimit.NONE, None if before is None else before.limit):
                await self._deps.writer.announce(self.key, decision, limited=True)
        if observation.supply != self._supply:
            self._standing, self._supply = decision, observation.supply

    async def report(
        self,
        service: InferenceService,
        observation: Observation,
        decision: Decision,
        quantiles: dict[SloTarget, float],
        lost: Mapping[MissingSignal, str],
    ) -> None:
        if self._standing is None:
            return
        now, generation = self._deps.clock.monotonic(), service.metadata.generation
        why = {**lost, MissingSignal.STATE: self.unread}
        if self._written is None:
            transitions = {old.type: (old.status, old.last_transition_time) for old in service.status.conditions}
        else:  # from our last write, because the watch may not have returned it yet
            rows = self._written["conditions"]
            transitions = {row["type"]: (row["status"], row["lastTransitionTime"]) for row in rows}
        status_input = StatusInput(
            since=self._since,
            decision=self._standing,
            latest=decision,
            observation=observation,
            quantiles=quantiles,
            state=self.state,
            lost=why,
            forbidden=self._forbidden,
        )
        if not self._due(status_of(status_input, transitions, generation, self._time()), now):
            return
        self._standing = decision
        status = status_of(replace(status_input, decision=decision), transitions, generation, self._time())
        if await self._deps.writer.write_status(self.key, status):
            self._written, self._written_at = status, now

    async def report_forbidden(self, service: InferenceService, error: str) -> None:
        """Add to the written status that a right is missing without which the autoscaler cannot decide."""
        status = forbidden_status(service.status, error, service.metadata.generation, self._time())
        written = {row.type: (row.reason, row.message) for row in service.status.conditions}
        if written.get("ScalingActive") == ("Forbidden", forbidden_message(error)) or self._forbidden_reported == error:
            return
        if await self._deps.writer.write_status(self.key, status):
            self._forbidden_reported, self._written = error, None

    async def save_state(self, *, at_once: bool = False) -> None:
        """Store the learned state periodically; retries a failure sooner."""
        if self.unread:
            return
        now = self._deps.clock.monotonic()
        if at_once or now - self._stored_at >= STATE_INTERVAL_S:
            stored = await self._deps.writer.save_state(ServiceRef(self.key, self.uid), self.state)
            self._stored_at = now if stored else now - STATE_INTERVAL_S + STATE_RETRY_S

    def _due(self, status: Status, now: float) -> bool:
        if self._written is None or now - self._written_at >= STATUS_REPEAT_S:
            return True
        urgent = ("scaling", "conditions")
        if any(_stable(status[part]) != _stable(self._written[part]) for part in urgent):
            return True
        return status != self._written and now - self._written_at >= STATUS_INTERVAL_S

    def _time(self) -> str:
        return rfc3339(self._deps.clock.utc())


def _stable(part: object) -> object:
    """The part without the measured numbers, which change with every pass and do not justify a write at once."""
    if isinstance(part, dict):
        return {name: value for name, value in part.items() if name not in ("promise", "burn")}
    return part


def _record(metrics: Metrics, key: ObjectKey, observation: Observation, decision: Decision, elapsed_s: float) -> None:
    """Record replicas, signals, the decision, and the cost of the `elapsed_s` since the last pass."""
    labels = (key.namespace, key.name)
    metrics.counter("paceline_autoscaler_actuation_errors_total", *labels)  # from 0: rates miss a first value
    for pool in observation.pools:
        counts = {state: pool.count(state) for state in ReplicaState} | {ReplicaState.DESIRED: pool.desired}
        for state, count in counts.items():
            metrics.gauge("paceline_autoscaler_replicas", *labels, pool.name, state.value).set(count)
    values = decision.reading
    signals = {"demand": values.demand, "backlog": values.backlog, "capacity": values.capacity, "burn": values.burn}
    for signal, value in signals.items():
        if value is not None:
            metrics.gauge("paceline_autoscaler_signal", *labels, signal).set(value)
    metrics.counter(
        "paceline_autoscaler_decisions_total", *labels, decision.direction.value, decision.reason.value
    ).inc()
    if decision.limit is not ScaleLimit.NONE:
        metrics.counter("paceline_autoscaler_limited_total", *labels, decision.limit.value).inc()
    dollars = cost_per_hour(observation.goal, observation.present) * elapsed_s / 3600
    metrics.counter("paceline_cost_dollars_total", *labels).inc(max(dollars, 0.0))


def record_age(metrics: Metrics, key: ObjectKey, signal: str, seconds: float | None) -> None:
    """Record the age of a signal; a signal that never arrived has no age, and no series."""
    series = ("paceline_autoscaler_signal_age_seconds", key.namespace, key.name, signal)
    if seconds is None:
        metrics.forget(*series)
    else:
        metrics.gauge(*series).set(seconds)
