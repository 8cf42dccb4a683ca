"""All requests of the autoscaler about one service: its scales, its status, its Events, what it has learned.

A write of a scale is guarded by the version that the decision was made with: a Conflict means that another writer
scaled the pool, and the next pass observes again. Failures are counted, logged once while they last, and returned.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from paceline_autoscaler.model.lengths import Lengths
from paceline_autoscaler.policies import dump_state, load_state
from paceline_autoscaler.state import Knowledge, State
from paceline_autoscaler.types import PoolDecision, ScalingSpec
from paceline_core.errors import Conflict, PacelineError
from paceline_core.kube import Cluster, Event, ObjectKey, Scale, ScaleTarget, ServiceRef
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_core.telemetry import FaultLog, Metrics, get_logger

MANAGER = "paceline-autoscaler"
OWN_WRITERS = frozenset((MANAGER, "paceline-operator", "paceline-replicas"))
"""Field managers of paceline's own parts; the operator sets replicas when it creates a Deployment."""
STATE_LIMIT = 32 << 10
_UNDELETED = "the states of services that are gone are not deleted"
_KNOWLEDGE, _LENGTHS = TypeAdapter(Knowledge), TypeAdapter(Lengths)
_log = get_logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredState:
    """What is stored of a service. `lengths`: of its requests; no decision depends on them."""

    state: State = field(default_factory=State)
    knowledge: Knowledge = field(default_factory=Knowledge)
    lengths: Lengths = ()


class ScaleWriter:
    """The autoscaler's only writer of anything that belongs to a service."""

    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._complaints = FaultLog(_log)

    async def scales(self, goal: ScalingSpec) -> dict[str, Scale]:
        """The ordered replicas of each pool. Raises Unreachable, NotFound or Forbidden."""
        key = ObjectKey.parse(goal.service)
        return {pool.name: await self._cluster.get_scale(ScaleTarget(key, pool.name)) for pool in goal.pools}

    async def scale(
        self, key: ObjectKey, changes: Iterable[PoolDecision], scales: Mapping[str, Scale]
    ) -> dict[str, Scale | PacelineError]:
        """Order the decided replicas of these pools; returns the new scale or the error of each."""
        written: dict[str, Scale | PacelineError] = {}
        for pool in changes:
            target, version = ScaleTarget(key, pool.name), scales[pool.name].version
            try:
                written[pool.name] = await self._cluster.set_scale(target, pool.replicas, version)
            except PacelineError as error:
                written[pool.name] = error
                self._failed(key, "scale", error)
            else:
                self._complaints.end(_unwritten(key, "scale"))
        return written

    async def other_writer(self, key: ObjectKey, pool: str) -> str:
        """Who set the pool's replicas last: a field manager or an autoscaler's object; empty if that is unknown."""
        try:
            return await self._cluster.scale_writer(ScaleTarget(key, pool))
        except PacelineError as error:
            _log.info("another writer is not known by name", extra={"service": str(key), "reason": str(error)})
            return ""

    async def announce(self, key: ObjectKey, kind: str, reason: str, sentence: str) -> None:
        """Record an Event about the service; `kind` is Normal or Warning."""
        await self._cluster.event(Event(INFERENCE_SERVICE, key, kind, reason, sentence))

    async def write_status(self, key: ObjectKey, status: Mapping[str, Any]) -> bool:
        try:
            await self._cluster.patch_status(INFERENCE_SERVICE, key, status, MANAGER)
        except PacelineError as error:
            self._failed(key, "status", error)
            return False
        self._complaints.end(_unwritten(key, "status"))
        return True

    async def load_state(self, service: ServiceRef) -> StoredState:
        """What is stored of a service; each part is empty where none is stored that this version can read.

        Raises PacelineError if the API server does not answer.
        """
        try:
            data = await self._cluster.get_state(service)
        except PacelineError as error:
            self._count(service.key)
            self._complaints.begin(_unread(service.key), str(error))
            raise
        self._complaints.end(_unread(service.key))
        found = {} if data is None else data
        return StoredState(
            _stored(service.key, found, "state", state_of) or State(),
            _stored(service.key, found, "knowledge", _KNOWLEDGE.validate_json) or Knowledge(),
            _stored(service.key, found, "lengths", _LENGTHS.validate_json) or (),
        )

    async def save_state(self, service: ServiceRef, stored: StoredState) -> bool:
        """Store what is to survive this process; False if that failed."""
        try:
            await self._cluster.put_state(service, stored_texts(stored))
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


def _stored(key: ObjectKey, data: Mapping[str, str], name: str, read: Callable[[str], T]) -> T | None:
    """None if it is not there, or cannot be read."""
    if name not in data:
        return None
    try:
        return read(data[name])
    except ValueError as error:
        extra = {"service": str(key), "what": name, "reason": str(error)}
        _log.warning("what was learned is unreadable and starts anew", extra=extra)
        return None


def stored_texts(stored: StoredState) -> dict[str, str]:
    """The keys of the ConfigMap; a reader leaves out those that it does not know."""
    return {
        "state": state_json(stored.state),
        "knowledge": _KNOWLEDGE.dump_json(stored.knowledge).decode(),
        "lengths": _LENGTHS.dump_json(tuple(one.rounded() for one in stored.lengths)).decode(),
    }


def stored_of(texts: Mapping[str, str]) -> StoredState:
    """The inverse; a part that is not there is empty. Raises ValueError for one that cannot be read."""
    return StoredState(
        state_of(texts["state"]) if "state" in texts else State(),
        _KNOWLEDGE.validate_json(texts.get("knowledge", "{}")),
        _LENGTHS.validate_json(texts.get("lengths", "[]")),
    )


def state_of(text: str) -> State:
    """A state as stored. Raises ValueError."""
    return load_state(from_json(text))


def state_json(state: State) -> str:
    """The state as stored; at most STATE_LIMIT bytes by construction."""
    return to_json(dump_state(state)).decode()
