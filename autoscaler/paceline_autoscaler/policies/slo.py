"""The policy `slo`: the fewest replicas whose work stays within the SLO, ordered ahead of need and removed late.

Demand may take any path that followed a similar level in the history of the service. Up: at once and by as many as
needed, when on these paths more of the work would be late than the strictest target allows, in the time when replicas
ordered now begin to serve. Two passes must agree, unless work is backlogged: then replicas are ordered that catch up
within one start and a bit. Pending replicas count from their learned arrival on, so an order is never repeated because
it has not arrived yet. Attainment adds one more when the error budget burns although no replica starts: either the
backlog outlives the time to catch up, or it was worked off a whole window ago (before, its own misses burn) and supply
is in real use. `derate` records by how much the model overrates replicas. Down: to what was needed at most within a
round trip (drain and start again).

Where the model is out of its depth, and replicas do far less than it says, open requests must fit as well; where no
step time is known they alone decide, and only up.
Holes: a step that is in no history meets only the ready replicas, and leaves a backlog.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from math import ceil, fsum

from paceline_autoscaler.model.demand_history import (
    MIN_DERATE,
    BusySample,
    DemandHistories,
    DemandHistory,
    DemandSample,
)
from paceline_autoscaler.model.estimate import USABLE, PoolEstimate, RoleEstimate, WorkEstimate
from paceline_autoscaler.model.late_work import OVERDUE_SHARE
from paceline_autoscaler.policies.constraints import cost_per_hour
from paceline_autoscaler.policies.target_tracking import OPEN_SHARE, open_requests, spread
from paceline_autoscaler.types import DEMAND_WINDOWS_S, MissingSignal, Recommendation, RejectedCount
from paceline_core.registry.enums import ScaleReason
from paceline_core.units import counted

DISTRUSTED = 0.6
"""With a lower derate the model is out of its depth."""
TEACHING_SHARE = 0.7
"""Of the modelled capacity: with less demand and no backlog, misses say nothing about capacity."""
UNBOUNDED = 100_000
MORE_OF_DEARER = 2
"""Replicas of a dearer pool that are tried in place of cheaper ones."""
TOLERANCE = 0.1
SPARE, UNDERRATED = 1.1, 0.99
"""While the derate is below that, so much more than needed must stay: with just enough, targets were missed."""
HYSTERESIS = 0.2
"""Replicas that are left beyond what was needed in a round trip, if it is shorter than the window of demand: its noise
does not show within it."""
METRICS_LAG_S = 15.0
"""How old the newest sample of a usual scrape may be."""


class SloPolicy:
    """Has no settings: it learns what it needs."""

    state_type = DemandHistories

    def recommend(
        self, group: RoleEstimate, work: WorkEstimate, own: DemandHistories
    ) -> tuple[Recommendation, DemandHistories]:
        complete = MissingSignal.GATEWAYS not in work.missing
        behind = work.backlogged or bool(group.pending)
        now, before = work.observation.now, own.of(group.role)
        needed = group.outlook.needed_after(group.demand, before.mean_with(now, group.demand))
        if before.derate < DISTRUSTED:
            needed = max(needed, group.capacity(spread(group, _for_open_requests(group, work)), before.derate))
        surge = max(group.surge / group.demand, 1.0) if group.demand > 0 else 1.0
        sample = DemandSample(now, group.demand, needed, group.ready, complete, group.backlog, behind, surge)
        history = before.with_sample(sample, work.round_trip_s).with_busy(now, _busy(group, work))
        confirmed = needed if before.latest is None else min(needed, before.latest)
        fluid = FluidModel(group, work.start_s, work.clear_s, history.derate, confirmed, backlogged=work.backlogged)
        ctx = _Context(group, work, history, fluid, fluid.least())
        if not group.speed_known:
            recommendation = _blind(ctx)
        elif ctx.least != ctx.counts:
            recommendation = _up(ctx, ctx.least)
            if recommendation.reason is ScaleReason.BACKLOG:
                history = history.with_peak(now, ctx.capacity(ctx.least), work.round_trip_s)
        elif _overrated(ctx):
            recommendation = _one_more(ctx)
            modelled = ctx.group.capacity(ctx.counts, 1.0)
            if recommendation.reason is ScaleReason.ATTAINMENT and modelled > 0:
                # capacity is at most the demand at which the SLO is now missed; a backlog may be of a higher demand
                proven = ctx.group.demand / modelled
                history = replace(history, derate=max(min(proven, ctx.history.derate), MIN_DERATE))
        else:
            recommendation = _down_or_hold(ctx)
        return recommendation, own.having(history)


def _for_open_requests(group: RoleEstimate, work: WorkEstimate) -> int:
    """The replicas that have slots for them, with some to spare."""
    return ceil(open_requests(group, work))


def _busy(group: RoleEstimate, work: WorkEstimate) -> BusySample | None:
    """Demand on the ready replicas while work waits; None while none does, or while demand is not known."""
    capacity = group.ready_capacity(1.0)
    if not work.backlogged or capacity <= 0 or MissingSignal.GATEWAYS in work.missing:
        return None
    return BusySample(group.demand, group.backlog, capacity)


@dataclass(frozen=True, slots=True)
class FluidModel:
    """One role's pools over a horizon (s): the work that arrives and the work that can be done, in the role's units.

    `needed`: the capacity for what demand may come to; `backlogged`: the horizon's work must be done, too.
    """

    group: RoleEstimate
    start_s: float
    clear_s: float
    derate: float
    needed: float
    backlogged: bool

    @property
    def work(self) -> float:
        """Replica-seconds of work within the horizon; what is overdue has time, since all others go first."""
        return self.group.backlog - self.group.overdue + self.group.surge * (self.start_s + self.clear_s)

    def least(self) -> dict[str, int]:
        """The cheapest counts, none below what is ordered, that suffice: cheap pools are filled first.

        A replica or two of a dearer pool may do the work of more cheap ones than they cost.
        """
        ordered = self.group.counts()
        filled = self._filled(ordered)
        choices = [filled]
        for pool in self.group.pools[1:]:
            name = pool.spec.name
            top = min(filled[name] + MORE_OF_DEARER, pool.spec.max)
            choices += [self._filled({**ordered, name: count}) for count in range(filled[name], top + 1)]
        return min(choices, key=self._dollars)

    def _dollars(self, counts: dict[str, int]) -> float:
        return fsum(counts[pool.spec.name] * pool.spec.dollars_per_hour for pool in self.group.pools)

    def _filled(self, ordered: dict[str, int]) -> dict[str, int]:
        """At least these counts, raised from the cheapest pool on until they suffice.

        The last pool is unbounded: the constraints cap what exceeds every maximum, and report it.
        """
        counts = dict(ordered)
        for index, pool in enumerate(self.group.pools):
            last = index == len(self.group.pools) - 1
            top = UNBOUNDED if last else max(pool.spec.max, counts[pool.spec.name])
            counts[pool.spec.name] = self._least(pool, counts, top)
        return counts

    def fits(self, counts: dict[str, int]) -> bool:
        """Whether these counts have the capacity, and do the work with a tolerance of a tenth of a replica."""
        if self.group.capacity(counts, self.derate) < self.needed:
            return False
        return not self.backlogged or self.supply(counts) + TOLERANCE * self.clear_s * self.derate >= self.work

    def supply(self, counts: dict[str, int]) -> float:
        """Replica-seconds that can be done within the horizon, without those for what is overdue."""
        others = 1 - OVERDUE_SHARE if self.group.overdue > 0 else 1.0
        return (
            USABLE
            * self.derate
            * others
            * fsum(self._seconds(pool, counts[pool.spec.name]) / pool.ratio for pool in self.group.pools)
        )

    def _seconds(self, pool: PoolEstimate, count: int) -> float:
        """Work of `count` replicas; if fewer than are ordered, absent ones and those ready last are left out first."""
        horizon, new = self.start_s + self.clear_s, count - pool.status.desired
        surplus = max(-new - pool.absent, 0)
        staying = sorted(pool.etas)[: max(len(pool.etas) - surplus, 0)]
        ready = pool.ready - max(surplus - len(pool.etas), 0)
        return ready * horizon + fsum(max(horizon - eta, 0.0) for eta in staying) + max(new, 0) * self.clear_s

    def _least(self, pool: PoolEstimate, counts: dict[str, int], top: int) -> int:
        name = pool.spec.name
        candidates = range(counts[name], top + 1)
        index = bisect_left(candidates, True, key=lambda count: self.fits({**counts, name: count}))
        return candidates[min(index, len(candidates) - 1)]


@dataclass(frozen=True, slots=True)
class _Context:
    group: RoleEstimate
    work: WorkEstimate
    history: DemandHistory
    fluid: FluidModel
    least: dict[str, int]

    @property
    def counts(self) -> dict[str, int]:
        return self.group.counts()

    @property
    def burning(self) -> bool:
        return self.group.burn is not None and self.group.burn > 1

    @property
    def catch_up_left_s(self) -> float:
        """How much of the time to catch up is left, since supply last changed."""
        return self.history.supply_since + self.work.clear_s - self.work.observation.now

    def capacity(self, counts: dict[str, int]) -> float:
        return self.group.capacity(counts, self.history.derate)

    def suffice(self, counts: dict[str, int], needed: float) -> bool:
        """Whether these counts have this capacity, with a margin where it is not sure, and do all work that waits."""
        spare = 1.0 if self.history.derate > UNDERRATED else SPARE
        brief = self.work.round_trip_s < DEMAND_WINDOWS_S[-1]
        margin = HYSTERESIS * USABLE * self.history.derate if brief else 0.0
        return self.capacity(counts) >= spare * needed + margin and self.fluid.fits(counts)

    def rejected(self, counts: dict[str, int], why: str) -> RejectedCount:
        """The whole service with these counts, beside what the other roles order."""
        service = {**self.work.ordered, **counts}
        return RejectedCount(sum(service.values()), cost_per_hour(self.work.spec, service), why)

    def recommend(
        self, counts: dict[str, int], reason: ScaleReason, body: str, *rejected: RejectedCount
    ) -> Recommendation:
        capacity = self.capacity(self.counts)
        return Recommendation(counts, reason, body, rejected=rejected, capacity=capacity, deferred=self.group.deferred)


def _blind(ctx: _Context) -> Recommendation:
    """Without a known speed: more replicas if open requests need them, but never fewer."""
    group, needed = ctx.group, _for_open_requests(ctx.group, ctx.work)
    why = "no replica has reported its step time yet"
    if needed > group.desired:
        body = f"{why}, so open requests decide: at {OPEN_SHARE:.0%} of the slots they need {needed}; {_supply(group)}"
        return ctx.recommend(spread(group, needed), ScaleReason.DEMAND, body)
    if group.pending:
        return ctx.recommend(ctx.counts, ScaleReason.PENDING, f"the first replica is not ready; {_supply(group)}")
    return ctx.recommend(ctx.counts, ScaleReason.MISSING_DATA, f"{why}, so demand cannot be estimated")


def _up(ctx: _Context, wanted: dict[str, int]) -> Recommendation:
    group = ctx.group
    last = [name for name, count in wanted.items() if count > ctx.counts[name]][-1]
    fewer = {**wanted, last: wanted[last] - 1}
    if ctx.capacity(fewer) < ctx.fluid.needed:
        body = f"{_needs(ctx, ctx.fluid.needed)}; {_supply(group)}"
        rejected = ctx.rejected(fewer, f"capacity {ctx.capacity(fewer):.2f}")
        return ctx.recommend(wanted, ScaleReason.DEMAND, body, rejected)
    body = (
        f"demand {group.surge:.2f} replica-s/s and backlog {group.backlog:.1f} replica-s over "
        f"{ctx.work.horizon_s:.0f} s need {sum(wanted.values())}; {_supply(group)}"
    )
    short = (ctx.fluid.work - ctx.fluid.supply(fewer)) / max(ctx.fluid.clear_s, 1e-9)
    rejected = ctx.rejected(fewer, f"{short:.2f} replica-s/s too little to catch up in {ctx.fluid.clear_s:.0f} s")
    return ctx.recommend(wanted, ScaleReason.BACKLOG, body, rejected)


def _needs(ctx: _Context, capacity: float) -> str:
    demand, start_s = ctx.group.demand, ctx.group.start_s
    needs = f"demand {demand:.2f} replica-s/s may need a capacity of {capacity:.2f} in {start_s:.0f} s"
    if ctx.history.derate >= DISTRUSTED:
        return needs
    least = _for_open_requests(ctx.group, ctx.work)
    return f"{needs}, and open requests {counted(least, 'replica')}: the model overrates replicas"


def _overrated(ctx: _Context) -> bool:
    """Whether the SLO is missed for longer than the model explains, so that the replicas do less than it says."""
    group, attainment = ctx.group, ctx.work.observation.attainment
    if attainment is None or not ctx.burning or group.pending:
        return False
    if ctx.history.caught_up_at is None:
        return ctx.work.backlogged and ctx.catch_up_left_s <= 0 and _outlasts_a_start(ctx)
    settled_at = max(ctx.history.supply_since + ctx.work.clear_s, ctx.history.caught_up_at) + ctx.work.answer_s
    if ctx.work.observation.now - settled_at < attainment.window_s + METRICS_LAG_S:
        return False
    return ctx.work.backlogged or group.demand >= TEACHING_SHARE * group.capacity(ctx.counts, 1.0)


def _outlasts_a_start(ctx: _Context) -> bool:
    """Whether the backlog, as fast as it shrank since supply changed, is still there when a new replica arrives."""
    worked_off = ctx.history.backlog - ctx.group.backlog
    took_s = ctx.work.observation.now - ctx.history.supply_since
    return ctx.group.backlog * took_s > worked_off * ctx.work.start_s


def _one_more(ctx: _Context) -> Recommendation:
    counts = ctx.counts
    with_room = [pool for pool in ctx.group.pools if counts[pool.spec.name] < pool.spec.max]
    chosen = (with_room or list(ctx.group.pools))[0].spec.name
    reason, since = ScaleReason.ATTAINMENT, ""
    if ctx.history.caught_up_at is None:
        reason, since = ScaleReason.BACKLOG, f" and a backlog should be gone {ctx.work.clear_s:.0f} s after a start"
    body = (
        f"burn {ctx.group.burn or 0:.1f} (limit 1) although demand {ctx.group.demand:.2f} fits capacity "
        f"{ctx.capacity(counts):.2f} by the model{since}; {_supply(ctx.group)}"
    )
    more = {**counts, chosen: counts[chosen] + 1}
    return ctx.recommend(more, reason, body, ctx.rejected(counts, "the error budget burns"))


def _down_or_hold(ctx: _Context) -> Recommendation:
    work, highest = ctx.work, ctx.history.peak
    options = _one_fewer(ctx, ctx.counts)
    if not options:
        return _hold(ctx)
    need = f"a capacity of {highest:.2f} was needed in the last {work.round_trip_s:.0f} s"
    fewer = ctx.counts
    while sufficing := [counts for counts in _one_fewer(ctx, fewer) if ctx.suffice(counts, highest)]:
        fewer = sufficing[0]
    if fewer == ctx.counts:
        return _hold(ctx, ctx.rejected(options[0], f"{need}, and they have {ctx.capacity(options[0]):.2f}"))
    total, left_s = sum(fewer.values()), work.round_trip_s - ctx.history.covered_s(work.observation.now)
    if left_s > 0:
        body = f"scale to {total} pending: {left_s:.0f} s of cooldown left"
        return ctx.recommend(ctx.counts, ScaleReason.COOLDOWN, body)
    body = f"{need}; {counted(total, 'replica')} {'has' if total == 1 else 'have'} {ctx.capacity(fewer):.2f}"
    return ctx.recommend(fewer, ScaleReason.CONSOLIDATE, body)


def _one_fewer(ctx: _Context, counts: dict[str, int]) -> list[dict[str, int]]:
    """Counts with one replica less, above a pool's minimum: first an absent one, then one of the most expensive pool.

    Only scale to zero removes the last replica.
    """
    if sum(counts.values()) <= 1:
        return []
    dearest_first = ctx.group.pools[::-1]
    pools = sorted(dearest_first, key=lambda pool: pool.absent <= pool.status.desired - counts[pool.spec.name])
    names = [pool.spec.name for pool in pools if counts[pool.spec.name] > pool.spec.min]
    return [{**counts, name: counts[name] - 1} for name in names]


def _hold(ctx: _Context, *rejected: RejectedCount) -> Recommendation:
    group, horizon_s = ctx.group, ctx.work.horizon_s
    ready = group.ready_capacity(ctx.history.derate)
    waits = group.pending and group.demand * horizon_s + group.backlog > ready * horizon_s
    body = f"demand {group.demand:.2f} replica-s/s fits capacity {ctx.capacity(ctx.counts):.2f}; {_supply(group)}"
    if waits:
        return ctx.recommend(ctx.counts, ScaleReason.PENDING, body, *rejected)
    if ctx.burning and ctx.work.backlogged:
        left = f"; a backlog of {group.backlog:.1f} replica-s is worked off, {max(ctx.catch_up_left_s, 0):.0f} s left"
        return ctx.recommend(ctx.counts, ScaleReason.BACKLOG, body + left, *rejected)
    return ctx.recommend(ctx.counts, ScaleReason.STEADY, body, *rejected)


def _supply(group: RoleEstimate) -> str:
    pending = group.pending
    if not pending:
        return f"{group.ready} ready"
    soon = f"in {pending[0]:.0f} s" if pending[0] >= 1 else "within 1 s"
    return f"{group.ready} ready, {len(pending)} starting (next {soon})"
