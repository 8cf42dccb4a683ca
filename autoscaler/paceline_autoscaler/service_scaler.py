"""Scales one service: keeps its scales and what it learned, executes its decisions, reports its status.

It first loads the state that an earlier process stored. While the API server does not return it (a missing right, no
answer), passes continue with what they learn themselves, nothing is scaled down, and the stored state is not replaced.

At rest it reads each scale once a minute and writes nothing for 15 to 30 minutes. The status is written at once when
its decision, a condition, a count or the cost changes; its measured numbers are refreshed once a minute while requests
are served. The state is stored when it says something that a crash must not lose (`worth_storing`), every ten minutes
while there is work, and when the process ends. Both are repeated after that time, in case someone removed them.

Before it lowers a scale it retires the workers that are to go (`output.retirement`), and the decision is made again
until the scale may be written; each worker finishes its streams.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from paceline_autoscaler.model.history import merge_states, worth_storing
from paceline_autoscaler.model.history_recorder import HistoryRecorder
from paceline_autoscaler.model.lengths import Lengths, with_requests
from paceline_autoscaler.model.scale_conflicts import ReplicaChange, ScaleConflicts
from paceline_autoscaler.output.ledger import Ledger, same_kind
from paceline_autoscaler.output.retire_client import RetireClient
from paceline_autoscaler.output.retirement import Reports, WorkerRetirement
from paceline_autoscaler.output.scale_writer import OWN_WRITERS, ScaleWriter, StoredState
from paceline_autoscaler.output.status import (
    Status,
    StatusInput,
    forbidden_message,
    forbidden_status,
    measured_values,
    sentence,
    status_of,
    without_values,
    yielded_to,
)
from paceline_autoscaler.policies.constraints import cost_per_hour, why_hold
from paceline_autoscaler.scale_cache import ScaleCache, spread
from paceline_autoscaler.signals.past_demand import PastDemand, PastQuestion
from paceline_autoscaler.state import Knowledge, State
from paceline_autoscaler.types import Decision, MissingSignal, Now, Observation, PoolDecision, ScalingSpec
from paceline_core.clock import Clock, rfc3339
from paceline_core.errors import Forbidden, NotFound, PacelineError
from paceline_core.kube import Endpoint, ObjectKey, Scale, ServiceRef
from paceline_core.objects import InferenceService
from paceline_core.registry.enums import Direction, ReplicaState, ScaleLimit, ScaleReason
from paceline_core.telemetry import Metrics

MEASURED_S = 60.0
REPEAT_S = 1800.0
"""The longest time between two writes. Each service has its own, from a half to the whole of it, so that a pass never
repeats all of them."""
STATE_INTERVAL_S = 30.0
HISTORY_S = 600.0
"""The same of the history, while there is work to note."""
STATE_RETRY_S = 10.0
_LEFT_TO_OTHERS = (ScaleReason.EXTERNAL, ScaleReason.ADVISE)
"""Where replicas are for others to set; the operator reports who does."""
_EVENTS = {Direction.UP: "ScaledUp", Direction.DOWN: "ScaledDown"}


@dataclass(frozen=True, slots=True)
class ScalerDeps:
    writer: ScaleWriter
    ledger: Ledger
    metrics: Metrics
    clock: Clock
    now: Now
    workers: RetireClient
    past: PastDemand | None = None
    """None: the metrics source remembers nothing."""


class ServiceScaler:
    """The state that decisions carry over; `uid` distinguishes a new object of the same name from this one."""

    def __init__(self, key: ObjectKey, uid: str, deps: ScalerDeps) -> None:
        self.key = key
        self.uid = uid
        self.state = State()
        self.knowledge = Knowledge()
        self._recorder = HistoryRecorder()
        self._lengths: Lengths = ()
        self.unread = "not read yet"
        """Why the stored state is unknown; empty once it is known."""
        self._deps = deps
        self._scales = ScaleCache(key)
        self._conflicts = ScaleConflicts()
        self._retirement = WorkerRetirement(key, deps.workers, deps.clock)
        self._waits: frozenset[str] = frozenset()
        self._standing: Decision | None = None
        self._since = ""
        self._supply: tuple[tuple[int, int], ...] = ()
        self._written: Status | None = None
        self._written_at = 0.0
        self._share = (1 + spread(key)) / 2
        self._stored, self._stored_work = State(), 0
        self._stored_at = deps.clock.monotonic()
        self._passed_at: float | None = None
        self._forbidden = ""
        self._forbidden_reported = ""
        self._loaded_at: float | None = None

    @property
    def scales(self) -> dict[str, Scale]:
        """What each pool orders, as last read or written."""
        return self._scales.scales

    @property
    def recent_edit(self) -> str:
        """Another writer's last edit of the replicas, as a sentence; empty if there is no recent one."""
        return self._conflicts.recent_edit(self._deps.now())

    @property
    def other_scaler(self) -> str:
        """Who scales a pool too, as a sentence, while this autoscaler yields; else empty."""
        return self._conflicts.other_scaler(self._deps.now())

    async def load_state(self) -> None:
        """Load the stored state until that has succeeded once; retries a failure soon."""
        now = self._deps.clock.monotonic()
        if not self.unread or (self._loaded_at is not None and now - self._loaded_at < STATE_RETRY_S):
            return
        self._loaded_at = now
        try:
            found = await self._deps.writer.load_state(ServiceRef(self.key, self.uid))
        except PacelineError as error:
            self.unread = str(error)
        else:
            self.state, self.unread = merge_states(found.state, self.state), ""
            self.knowledge = self._recorder.resume(found.knowledge)
            self._lengths = with_requests(found.lengths, self._lengths, 0.0)
            self._stored = found.state

    @property
    def learned(self) -> StoredState:
        """What is to survive this process, as of now."""
        return StoredState(self.state, Knowledge(self._recorder.histories), self._lengths)

    def add_lengths(self, new: Lengths) -> None:
        """Requests that were completed since the last pass."""
        now = self._deps.clock.monotonic()
        passed_s = 0.0 if self._passed_at is None else now - self._passed_at
        self._lengths = with_requests(self._lengths, new, passed_s)

    def take_past(self) -> None:
        """Take in the past work that has been found, for the decision that comes now."""
        if self._deps.past is not None and (found := self._deps.past.take(str(self.key))):
            self.knowledge = self._recorder.fill(found, self.knowledge)

    async def know_scales(self, service: InferenceService, spec: ScalingSpec, existing: Mapping[str, int]) -> bool:
        """Have scales that a decision may rest on; returns whether they were read. Raises what a read raises."""
        if self._passed_at is None and (scaler := yielded_to(service)):
            self._conflicts.resume(scaler, self._deps.now())
        self._conflicts.on_spec(service.metadata.generation)
        self._scales.on_existing(existing)
        if self._scales.usable([pool.name for pool in spec.pools], self._deps.clock.monotonic()):
            return False
        await self.read_scales(spec)
        return True

    async def read_scales(self, spec: ScalingSpec) -> bool:
        """Read all scales; returns whether they order other replicas than before. Raises what a read raises."""
        before = {pool: scale.replicas for pool, scale in self.scales.items()}
        try:
            found = await self._deps.writer.scales(spec)
        except NotFound:
            self._scales.forget()
            raise
        except PacelineError:
            self._scales.drop()
            raise
        edits = self._scales.on_read(found, self._deps.clock.monotonic())
        hold = why_hold(spec, self._deps.now())
        if hold is None or hold[0] not in _LEFT_TO_OTHERS:
            for pool, known, replicas in edits:
                await self._on_edit(pool, known, replicas)
        return before != {pool: scale.replicas for pool, scale in found.items()}

    def see_workers(self, endpoints: Iterable[Endpoint], reports: Reports) -> tuple[Endpoint, ...]:
        """The service's workers as its next decision is to see them; `reports` by worker."""
        return self._retirement.see(endpoints, reports)

    def may_lower(self, endpoints: Iterable[Endpoint]) -> bool:
        """Whether these workers show what a scale-down waits for."""
        return self._retirement.unready(endpoints)

    def forget_scales(self) -> None:
        """Another autoscaler may write from now on; what it writes is no edit."""
        self._scales.forget()

    async def execute(self, observation: Observation, decision: Decision, state: State) -> None:
        """Enter a decision into the ledger, retire workers, write the replicas; `state` is the state after it.

        The scale of a pool whose workers are not unready yet is left to the next pass.
        """
        self._deps.ledger.add(self.state, self.knowledge, observation, decision)
        self.state = state
        self.knowledge = self._recorder.knowledge(observation, state.learned, self.knowledge)
        self._ask_past(observation.goal)
        now = self._deps.clock.monotonic()
        elapsed_s = 0.0 if self._passed_at is None else now - self._passed_at
        self._passed_at = now
        _record(self._deps.metrics, self.key, observation, decision, elapsed_s)
        before, waited = self._standing, self._waits
        self._waits = await self._retirement.apply(decision)
        error = await self._write_scales([pool for pool in decision.changes if pool.name not in self._waits])
        self._forbidden = str(error) if isinstance(error, Forbidden) else ""
        self._forbidden_reported = ""
        written = error is None and not self._waits
        if before is None or not same_kind(before, decision):
            self._standing, self._since = decision, self._time()
            await self._announce(before, decision, written=written)
        elif waited:
            await self._announce(decision, decision, written=written)
        if observation.supply != self._supply:
            self._standing, self._supply = decision, observation.supply

    async def report(
        self,
        service: InferenceService,
        observation: Observation,
        decision: Decision,
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
            learned=self.state.learned,
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
        """Store the learned state if it has news, seldom if not; retries a failure sooner."""
        if self.unread:
            return
        now = self._deps.clock.monotonic()
        interval_s = self._store_interval_s(now)
        if at_once or now - self._stored_at >= interval_s:
            learned = self.learned
            if await self._deps.writer.save_state(ServiceRef(self.key, self.uid), learned):
                self._stored, self._stored_at, self._stored_work = learned.state, now, self._recorder.worked
            else:
                self._stored_at = now - interval_s + STATE_RETRY_S

    def _store_interval_s(self, now: float) -> float:
        if worth_storing(self._stored, self.state):
            return STATE_INTERVAL_S
        if now - self._stored_at >= self._share * HISTORY_S and self._recorder.worked > self._stored_work:
            return self._share * HISTORY_S
        return self._share * REPEAT_S

    def _ask_past(self, spec: ScalingSpec) -> None:
        """Ask a source that remembers for what the history lacks; without a known speed it cannot be priced."""
        past, learned = self._deps.past, self.state.learned
        if past is None or self.unread or not learned.speeds or not past.may_ask(spec.service):
            return
        if spans := self._recorder.unknown(self._deps.now()):
            past.want(PastQuestion(spec, learned, spans))

    async def _write_scales(self, changes: Sequence[PoolDecision]) -> PacelineError | None:
        """Write the scales of these pools; returns the last error, if any: the next pass tries again."""
        fault = None
        results = await self._deps.writer.scale(self.key, changes, self.scales)
        for pool in changes:
            result = results[pool.name]
            if isinstance(result, Scale):
                self._scales.on_write(pool.name, result)
                self._conflicts.on_write(ReplicaChange(self._deps.now(), pool.name, pool.current, pool.replicas))
            else:
                self._scales.on_failed_write(pool.name, pool.replicas)
                fault = result
        return fault

    async def _on_edit(self, pool: str, known: int, replicas: int) -> None:
        writer = await self._deps.writer.other_writer(self.key, pool)
        if writer in OWN_WRITERS:
            return
        edit = ReplicaChange(self._deps.now(), pool, known, replicas, writer)
        self._conflicts.on_edit(edit)
        await self._deps.writer.announce(self.key, "Normal", "ExternallyScaled", sentence(edit.sentence))

    async def _announce(self, before: Decision | None, decision: Decision, *, written: bool) -> None:
        """Events for a decision of another kind than the one before."""
        announce = self._deps.writer.announce
        if decision.direction in _EVENTS and written:
            await announce(self.key, "Normal", _EVENTS[decision.direction], decision.sentence)
        if decision.limit not in (ScaleLimit.NONE, None if before is None else before.limit):
            await announce(self.key, "Warning", "ScalingLimited", decision.sentence)
        conflict = ScaleReason.SCALER_CONFLICT
        if decision.reason is conflict and (before is None or before.reason is not conflict):
            await announce(self.key, "Warning", "ScalerConflict", decision.sentence)

    def _due(self, status: Status, now: float) -> bool:
        if self._written is None or now - self._written_at >= self._share * REPEAT_S:
            return True
        if without_values(status) != without_values(self._written):
            return True
        if self.state.learned.idle_since is not None:  # no new values, and only the first empty ones are news
            changed = measured_values(status).keys() != measured_values(self._written).keys()
        else:
            changed = measured_values(status) != measured_values(self._written)
        return changed and now - self._written_at >= MEASURED_S

    def _time(self) -> str:
        return rfc3339(self._deps.clock.utc())


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
