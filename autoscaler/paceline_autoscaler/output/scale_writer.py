"""Write replicas, status, events and learned state, through the Cluster seam.

A write is guarded by the version that the decision was made with: on a Conflict the pool was moved by another writer,
and the next pass observes again. The victims of a scale-down are not chosen here: the supervisor or Kubernetes drains
workers of its own choice, and each worker finishes its streams.
"""

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from paceline_autoscaler.types import Decision, LearnedState, ScalingSpec
from paceline_core.errors import Conflict, PacelineError
from paceline_core.kube import Cluster, Event, ObjectKey, Scale, ScaleTarget, ServiceRef
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_core.registry.enums import Direction, ScaleLimit
from paceline_core.telemetry import FaultLog, Metrics, get_logger

MANAGER = "paceline-autoscaler"
STATE_LIMIT = 20 * 1000
_STATE = TypeAdapter(LearnedState)
_UNDELETED = "the states of services that are gone are not deleted"
_log = get_logger(__name__)


class ScaleWriter:
    """The only writer of the autoscaler."""

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

    async def emit_event(self, key: ObjectKey, decision: Decision) -> None:
        reason = {Direction.UP: "ScaledUp", Direction.DOWN: "ScaledDown", Direction.HOLD: "ScalingHeld"}
        await self._cluster.event(
            Event(INFERENCE_SERVICE, key, "Normal", reason[decision.direction], decision.sentence)
        )

    async def warn_of_limit(self, key: ObjectKey, decision: Decision) -> None:
        if decision.limit is not ScaleLimit.NONE:
            await self._cluster.event(Event(INFERENCE_SERVICE, key, "Warning", "ScalingLimited", decision.sentence))

    async def write_status(self, key: ObjectKey, status: Mapping[str, Any]) -> bool:
        """Write the status; False when it could not be."""
        try:
            await self._cluster.patch_status(INFERENCE_SERVICE, key, status, MANAGER)
        except PacelineError as error:
            self._failed(key, "status", error)
            return False
        self._complaints.end(_unwritten(key, "status"))
        return True

    async def load_state(self, service: ServiceRef) -> LearnedState:
        """The learned state of a service; an empty one if none is stored, or none that this version understands.

        Raises PacelineError when the API server gives no answer.
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
        """Store the learned state; False when it could not be."""
        try:
            await self._cluster.put_state(service, {"state": state_json(state)})
        except PacelineError as error:
            self._failed(service.key, "state", error)
            return False
        self._complaints.end(_unwritten(service.key, "state"))
        return True

    async def forget_gone(self, alive: Collection[ServiceRef]) -> bool:
        """Delete the learned state of services that are gone; False when some may remain."""
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
