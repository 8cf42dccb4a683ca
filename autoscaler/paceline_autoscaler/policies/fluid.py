"""A fluid run of one service with one pool: demand in bins, a deadline queue, and the policies of the simulator. Pure.

Time goes in steps of a second, and a replica that becomes ready parts one. A policy decides every `period_s` from
signals that are `lag_s` old and from the replicas of now, as in the exact simulator. After the last bin the run goes on
until every request has ended or has waited for `hold_s`.

Attainment counts requests by their arrival. The fluid knows no single request: the spread of prompts decides about
each part of a second's arrivals.
"""

from collections import deque
from collections.abc import Callable
from math import floor, inf

from paceline_autoscaler.policies.fluid_latency import Latencies
from paceline_autoscaler.policies.fluid_pool import Ended, FluidPool
from paceline_autoscaler.policies.fluid_queue import DeadlineQueue, Part
from paceline_autoscaler.policies.fluid_signals import SCRAPE_S, FluidSignals
from paceline_autoscaler.policies.fluid_types import (
    MOMENT_S,
    DemandBin,
    FluidHour,
    FluidMoment,
    FluidPlan,
    FluidResult,
)
from paceline_autoscaler.policies.replica_policy import PastSignals, ProductionPolicy, ReplicaPolicy
from paceline_planner.replica import NO_REQUEST, ReplicaModel

FIRST_S = 1.0
"""When a policy first looks."""
ROUNDING = 1e-9
HOUR_S = 3600.0
_OFFERED, _GPU_S, _MET = 0, 1, 2
"""Columns of an hour's sums; the last one is the first of those of the targets."""


def run(plan: FluidPlan, policy: ReplicaPolicy, stop: Callable[[], bool] = lambda: False) -> FluidResult:
    """The policy on the plan's demand: same inputs, same result. The policy keeps its state, so pass a fresh one.

    `stop` is asked every MOMENT_S of the plan's time: the run ends before the plan does if it is true.
    """
    return _FluidRun(plan, policy).run(stop)


class _FluidRun:
    def __init__(self, plan: FluidPlan, policy: ReplicaPolicy) -> None:
        self._plan = plan
        self._policy = policy
        self._model = ReplicaModel(plan.speed, plan.service.step_tokens, plan.tpot.seconds, plan.min_prefill)
        queue = DeadlineQueue(lambda mix: plan.ttft.limit(mix.prompt))
        self._pool = FluidPool(self._model, plan.lead_s, plan.lead_spread, queue)
        self._mixes = [demand.mix(plan.speed.step_time) if demand.arrivals else None for demand in plan.bins]
        self._mix = next((mix for mix in self._mixes if mix), NO_REQUEST)
        total = sum(plan.bins, DemandBin())
        mean = total.mix(plan.speed.step_time) if total.arrivals else NO_REQUEST
        self._latencies = Latencies(plan.speed.step_time, plan.lengths, mean)
        self._signals = FluidSignals(plan, self._pool, self._latencies)
        self._timeline: list[FluidMoment] = []
        self._offered = self._answered = self._attained = self._gpu_s = 0.0
        self._hours: list[list[float]] = []
        self._second = (0.0, 0.0)
        self._looks, self._seen = FIRST_S, deque[tuple[float, PastSignals]]()

    def run(self, stop: Callable[[], bool]) -> FluidResult:
        now, span_s = 0.0, len(self._plan.bins) * self._plan.bin_s
        self._pool.begin(self._plan.replicas)
        while now < span_s or self._pool.queue.requests or self._pool.answers:
            self._act(now, span_s)
            if now % MOMENT_S == 0 and stop():
                break
            end = self._until(now)
            self._advance(now, end)
            now = end
        made = tuple(self._policy.decisions) if isinstance(self._policy, ProductionPolicy) else ()
        hours = tuple(FluidHour(offered, tuple(met), gpu_s) for offered, gpu_s, *met in self._hours)
        sums = (self._offered, self._answered, self._attained, self._gpu_s)
        return FluidResult(*sums, tuple(self._timeline), made, hours, now)

    # --- what happens at an instant

    def _act(self, now: float, span_s: float) -> None:
        self._pool.start_due(now)
        if now % SCRAPE_S == 0:
            self._signals.scrape(now)
        if now % MOMENT_S == 0 and now < span_s:
            self._timeline.append(self._moment(now))
        if now >= self._looks:
            self._seen.append((now + self._policy.lag_s, self._signals.signals(now)))
            self._looks += self._policy.period_s
        while self._seen and now >= self._seen[0][0]:
            self._decide(now, self._seen.popleft()[1])

    def _decide(self, now: float, seen: PastSignals) -> None:
        observation = self._signals.observation(now, seen, self._policy.lag_s)
        counts = self._policy.replicas(observation)
        self._pool.scale(counts[self._plan.service.pools[0].name], now)
        self._pool.start_due(now)

    def _until(self, now: float) -> float:
        """The end of the step from now on: nothing happens within it."""
        next_bin = (self._bin(now) + 1) * self._plan.bin_s
        decides = self._seen[0][0] if self._seen else inf
        return min(floor(now) + 1.0, next_bin, self._pool.next_ready(), self._looks, decides)

    def _moment(self, now: float) -> FluidMoment:
        pool, plan = self._pool, self._plan
        first, last = self._bin(now), self._bin(now + MOMENT_S)
        demand = sum(plan.bins[first : max(last, first + 1)], DemandBin())
        mix = demand.mix(plan.speed.step_time) if demand.arrivals else self._mix
        return FluidMoment(
            at=now,
            demand=demand.arrivals / max(MOMENT_S, plan.bin_s),
            capacity=len(pool.ready) * self._model.sustainable(mix),
            desired=pool.desired,
            ready=len(pool.ready),
            starting=len(pool.starting),
            draining=len(pool.draining),
            queued=pool.queue.requests,
            running=pool.running,
        )

    # --- what happens over a step

    def _advance(self, now: float, end: float) -> None:
        start, stop = self._plan.score
        paid_s = max(min(end, stop) - max(now, start), 0.0)
        gpu_s = self._pool.size * paid_s * self._plan.service.pools[0].gpus
        self._gpu_s += gpu_s
        self._note(now, _GPU_S, gpu_s)
        self._arrive(now, end)
        self._pool.advance(now, end, self._mix)
        for part in self._pool.queue.expire(end - self._plan.hold_s):
            self._signals.missed(part.requests)
        for ended in self._pool.finished(end):
            self._end(ended)

    def _arrive(self, now: float, end: float) -> None:
        index = self._bin(now)
        if index < len(self._plan.bins):
            self._mix = self._mixes[index] or self._mix
            requests = self._plan.bins[index].arrivals * (end - now) / self._plan.bin_s
            fitting = min(requests, max(self._plan.queue_limit - self._pool.queue.requests, 0.0))
            part = Part(now, end, requests, self._mix, 0.0, 0.0)
            self._offered += self._scored(part)
            self._note(now, _OFFERED, self._scored(part))
            self._pool.queue.join(now, end, fitting, self._mix)
            if fitting < requests:
                self._signals.missed(requests - fitting)
            self._second = (self._second[0] + requests, self._second[1] + requests * self._mix.prompt)
        if end == floor(end):
            self._signals.arrived(*self._second)
            self._second = (0.0, 0.0)

    def _end(self, ended: Ended) -> None:
        shares = self._signals.ended(ended)
        scored = self._scored(ended.answers.part)
        for place, share in enumerate(shares):
            self._note(ended.answers.part.first, _MET + place, scored * share)
        self._answered += scored
        if ended.keeps(self._plan.tpot.seconds):
            self._attained += scored * self._latencies.share_in_time(ended.answers, self._plan.ttft)

    def _note(self, at: float, column: int, amount: float) -> None:
        """Add to the hour of a time within the scored window."""
        hour = floor((at - self._plan.score[0]) / HOUR_S)
        if amount and hour >= 0:
            while hour >= len(self._hours):
                self._hours.append([0.0] * (_MET + len(self._signals.targets)))
            self._hours[hour][column] += amount

    def _bin(self, now: float) -> int:
        """The bin that a time is in; the start of one, but for a rounding error, is in it."""
        return int(now / self._plan.bin_s + ROUNDING)

    def _scored(self, part: Part) -> float:
        return part.requests * part.share_between(*self._plan.score)
