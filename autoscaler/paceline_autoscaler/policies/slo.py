"""`pace`, the policy behind `slo`: the least replicas whose work keeps the promise, ordered in time, given back late.

Up: at once and by as many as it takes, when demand and backlog over one start plus the time to catch up exceed what is
ready and pending (`fluid`). Attainment adds one more when the budget burns although supply has had the time to catch up
and a whole window since, and is in real use; it remembers by how much the model was too hopeful (`derate`). Down: one,
when the others hold the highest demand of a round trip (drain and start again) with a tenth to spare.
Holes: one scenario, not many, so a pool is as safe as its last round trip; a step that never happened before is met
with what is there and the backlog it leaves.
"""

from dataclasses import dataclass, replace

from paceline_autoscaler.model.estimate import RoleEstimate, WorkEstimate
from paceline_autoscaler.model.history import DemandSample, covered_s, memory_of, peak, record_demand, with_memory
from paceline_autoscaler.policies.base import Proposal, RankedProposal, join
from paceline_autoscaler.policies.fluid_model import FluidModel, fluid_of
from paceline_autoscaler.types import DemandHistory, LearnedState, MissingSignal
from paceline_core.registry.enums import ScaleReason
from paceline_core.units import counted

SPARE = 1.1
LEAST_DERATE = 0.5


class SloPolicy:
    """The rule; it has no settings, because what it needs it learns."""

    def propose(self, picture: WorkEstimate, state: LearnedState) -> tuple[Proposal, LearnedState]:
        """Each role's pools by themselves, then joined."""
        drafts = []
        for group in picture.groups:
            memory = _recall(group, picture, memory_of(state, group.role))
            draft, memory = _propose(group, picture, memory)
            state = with_memory(state, memory)
            drafts.append(draft)
        return join(drafts), state


@dataclass(frozen=True, slots=True)
class _Context:
    """One group's facts at one moment."""

    group: RoleEstimate
    picture: WorkEstimate
    memory: DemandHistory
    fluid: FluidModel

    @property
    def counts(self) -> dict[str, int]:
        return self.group.counts()

    def capacity(self, counts: dict[str, int]) -> float:
        return self.group.capacity(counts, self.memory.derate)

    def say(self, counts: dict[str, int], reason: ScaleReason, body: str, *rejected: str) -> Proposal:
        return Proposal(counts, reason, body, rejected, self.capacity(self.counts))


def _recall(group: RoleEstimate, picture: WorkEstimate, memory: DemandHistory) -> DemandHistory:
    complete = MissingSignal.GATEWAYS not in picture.gaps
    moment = DemandSample(picture.observation.now, group.demand, group.ready, complete)
    return record_demand(memory, moment, picture.round_trip_s)


def _propose(group: RoleEstimate, picture: WorkEstimate, memory: DemandHistory) -> tuple[RankedProposal, DemandHistory]:
    case = _Context(group, picture, memory, fluid_of(group, picture, memory.derate))
    if not group.known:
        return RankedProposal(_unweighed(case)), memory
    wished = case.fluid.least()
    if wished != case.counts:
        return RankedProposal(_up(case, wished), 3), memory
    if _burning(case):
        return RankedProposal(_one_more(case), 3), replace(memory, derate=_proven(case))
    return _rest(case), memory


def _unweighed(case: _Context) -> Proposal:
    if case.group.pending:
        return case.say(case.counts, ScaleReason.PENDING, f"the first replica has yet to come; {_supply(case.group)}")
    body = "no replica has told its step time yet, so work cannot be weighed"
    return case.say(case.counts, ScaleReason.MISSING_DATA, body)


def _up(case: _Context, wished: dict[str, int]) -> Proposal:
    group, total = case.group, sum(wished.values())
    alone = group.demand > case.capacity(case.counts)
    body = (
        f"demand {group.demand:.2f} replica-s/s and backlog {group.backlog:.1f} replica-s over "
        f"{case.picture.horizon_s:.0f} s need {total}; {_supply(group)}"
    )
    last = [name for name, count in wished.items() if count > case.counts[name]][-1]
    fewer = {**wished, last: wished[last] - 1}
    short = (case.fluid.work - case.fluid.supply(fewer)) / max(case.fluid.clear_s, 1e-9)
    rejected = f"{total - 1}: {short:.2f} replica-s/s too little to catch up in {case.fluid.clear_s:.0f} s"
    return case.say(wished, ScaleReason.DEMAND if alone else ScaleReason.BACKLOG, body, rejected)


def _burning(case: _Context) -> bool:
    """Attainment may add: the promise breaks though supply had time to catch up and a window since, and is in use."""
    group, attainment = case.group, case.picture.observation.attainment
    if group.burn is None or attainment is None or group.burn <= 1 or group.pending:
        return False
    rested = case.picture.observation.now - case.memory.supply_since
    steady = rested >= case.picture.clear_s + attainment.window_s
    busy = group.demand >= LEAST_DERATE * group.capacity(case.counts, 1.0)
    return steady and (busy or case.picture.backlogged)


def _proven(case: _Context) -> float:
    """Capacity has shown to be no more than what it now fails to carry."""
    hoped = case.group.capacity(case.counts, 1.0)
    carried = case.group.demand / hoped if hoped > 0 else 1.0
    return max(min(carried, case.memory.derate), LEAST_DERATE)


def _one_more(case: _Context) -> Proposal:
    counts = case.counts
    roomy = [column for column in case.group.columns if counts[column.goal.name] < column.goal.max]
    chosen = (roomy or list(case.group.columns))[0].goal.name
    body = (
        f"burn {case.group.burn or 0:.1f} (limit 1) while demand {case.group.demand:.2f} fits "
        f"{case.capacity(counts):.2f} by the model; {_supply(case.group)}"
    )
    return case.say({**counts, chosen: counts[chosen] + 1}, ScaleReason.ATTAINMENT, body, "hold: the budget burns")


def _rest(case: _Context) -> RankedProposal:
    group, picture = case.group, case.picture
    highest = max(peak(case.memory), group.demand)
    fewer = _one_fewer(case)
    if fewer is None:
        return RankedProposal(_hold(case))
    room = case.capacity(fewer)
    total = sum(fewer.values())
    told = f"peak {highest:.2f} of the last {picture.round_trip_s:.0f} s"
    if highest * SPARE > room or not case.fluid.fits(fewer):
        return RankedProposal(_hold(case, f"{total}: {told} would not fit {room:.2f}"))
    if covered_s(case.memory, picture.observation.now) < picture.round_trip_s:
        return RankedProposal(
            case.say(case.counts, ScaleReason.COOLDOWN, f"{total} would do, if the next {_left(case):.0f} s agree"), 1
        )
    return RankedProposal(
        case.say(fewer, ScaleReason.CONSOLIDATE, f"{told} fits {room:.2f} of {counted(total, 'replica')}"), 2
    )


def _one_fewer(case: _Context) -> dict[str, int] | None:
    """One replica less in the dearest pool that may lose one; the last replica goes only by idling."""
    counts = case.counts
    if sum(counts.values()) <= 1:
        return None
    for column in reversed(case.group.columns):
        name = column.goal.name
        if counts[name] > column.goal.min:
            return {**counts, name: counts[name] - 1}
    return None


def _left(case: _Context) -> float:
    return case.picture.round_trip_s - covered_s(case.memory, case.picture.observation.now)


def _hold(case: _Context, *rejected: str) -> Proposal:
    group = case.group
    now = group.capacity({c.goal.name: c.ready for c in group.columns}, case.memory.derate)
    waits = group.pending and group.demand * case.picture.horizon_s + group.backlog > now * case.picture.horizon_s
    body = f"demand {group.demand:.2f} replica-s/s fits {case.capacity(case.counts):.2f}; {_supply(group)}"
    return case.say(case.counts, ScaleReason.PENDING if waits else ScaleReason.STEADY, body, *rejected)


def _supply(group: RoleEstimate) -> str:
    pending = group.pending
    if not pending:
        return f"{group.ready} ready"
    soon = f"in {pending[0]:.0f} s" if pending[0] >= 1 else "within 1 s"
    return f"{group.ready} ready, {len(pending)} starting (next {soon})"
