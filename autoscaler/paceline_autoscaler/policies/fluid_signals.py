"""The signals of a fluid run, as streams and the metrics source would bring them to a policy. Pure.

Demand comes by second, in the windows of the demand meter; load is what each ready replica reports; verdicts and
latencies are those of ended requests, as scraped every SCRAPE_S. Replicas and gateways report whole requests.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import ceil, floor, inf
from operator import attrgetter

from paceline_autoscaler.policies.fluid_latency import Latencies
from paceline_autoscaler.policies.fluid_pool import Ended, FluidPool, FluidReplica
from paceline_autoscaler.policies.fluid_types import CLASS, FluidPlan
from paceline_autoscaler.policies.replica_policy import PastSignals
from paceline_autoscaler.types import (
    ATTAINMENT_WINDOW_S,
    DEMAND_WINDOWS_S,
    Attainment,
    ClassSignals,
    CompletedRequests,
    Demand,
    MeasuredLatency,
    Observation,
    PoolStatus,
    RateWindow,
    Replica,
    SloCounts,
    SloTarget,
    WorkerLoad,
)
from paceline_core.registry.enums import QueryResult, ReplicaState
from paceline_planner.replica import RequestMix

SCRAPE_S = 15.0
UNREPORTED_S = 0.5
"""Gateways report once a second, so that on average half of the last second is missing in every window."""
LOOKAHEAD_S = 0.5
"""Prefill work that a replica gets in advance; what is beyond waits at the gateways."""

Counts = tuple[float, float]
"""Good and bad requests."""


@dataclass(frozen=True, slots=True)
class _Scrape:
    at: float
    counts: tuple[Counts, ...]
    latencies: tuple[MeasuredLatency, ...]


class FluidSignals:
    """`targets` are the service's, as policies read them."""

    def __init__(self, plan: FluidPlan, pool: FluidPool, latencies: Latencies) -> None:
        self._plan = plan
        self._pool = pool
        self._latencies = latencies
        self.targets = [target for target in plan.service.targets if target.cls is CLASS]
        self._counts = [(0.0, 0.0)] * len(self.targets)
        self._ended: deque[Ended] = deque()
        self._scrapes: deque[_Scrape] = deque(maxlen=ceil((ATTAINMENT_WINDOW_S + plan.metrics_lag_s) / SCRAPE_S) + 2)
        self._arrived = [(0.0, 0.0)]
        self._completed: list[tuple[float, CompletedRequests]] = [(-inf, _NONE)]

    # --- what happens

    def arrived(self, requests: float, prompt_tokens: float) -> None:
        """Arrivals of the next second."""
        before = self._arrived[-1]
        self._arrived.append((before[0] + requests, before[1] + prompt_tokens))

    def ended(self, ended: Ended) -> list[float]:
        """A part of the requests that has its last token; returns the share of it that met each target."""
        requests, mix = ended.answers.part.requests, ended.answers.part.mix
        self._completed.append((ended.at, _sum(self._completed[-1][1], mix, requests)))
        self._ended.append(ended)
        shares = [self._share_met(ended, target) for target in self.targets]
        for place, share in enumerate(shares):
            good = requests * share
            self._count(place, good, requests - good)
        return shares

    def missed(self, requests: float) -> None:
        """Requests that were never answered."""
        for place in range(len(self.targets)):
            self._count(place, 0.0, requests)

    def scrape(self, now: float) -> None:
        while self._ended and self._ended[0].at <= now - ATTAINMENT_WINDOW_S:
            self._ended.popleft()
        measured = tuple(self._measured()) if self._plan.latencies else ()
        self._scrapes.append(_Scrape(now, tuple(self._counts), measured))

    # --- what is seen

    def signals(self, now: float) -> PastSignals:
        visible = [scrape for scrape in self._scrapes if scrape.at <= now - self._plan.metrics_lag_s]
        return PastSignals(
            demand=Demand(1, 1, self._classes(now)),
            loads=self._loads(),
            attainment=self._attainment(visible),
            latencies=visible[-1].latencies if visible else (),
            attainment_age_s=now - visible[-1].at if visible else None,
        )

    def observation(self, now: float, seen: PastSignals, lag_s: float) -> Observation:
        """Signals of `lag_s` ago, and the replicas of now."""
        pool, spec = self._pool, self._plan.service.pools[0]
        replicas = (
            *(_replica(one, ReplicaState.READY, now) for one in pool.ready),
            *(_replica(one, ReplicaState.STARTING, now) for one in pool.starting),
            *(_replica(one, ReplicaState.DRAINING, now) for one in pool.draining),
        )
        loads = tuple(seen.loads[one.name] for one in pool.ready if one.name in seen.loads)
        return Observation(
            now=self._plan.start + now,
            goal=self._plan.service,
            demand=seen.demand,
            pools=(PoolStatus(spec.name, pool.desired, replicas, loads),),
            attainment=seen.attainment,
            latencies=seen.latencies,
            demand_age_s=lag_s,
            attainment_age_s=seen.attainment_age_later_s(lag_s),
        )

    # --- parts

    def _share_met(self, ended: Ended, target: SloTarget) -> float:
        if target.metric == "ttft":
            return self._latencies.share_in_time(ended.answers, target)
        return float(target.metric != "tpot" or ended.keeps(target.seconds))

    def _count(self, place: int, good: float, bad: float) -> None:
        before = self._counts[place]
        self._counts[place] = (before[0] + good, before[1] + bad)

    def _measured(self) -> list[MeasuredLatency]:
        by_metric = {"ttft": self._latencies.ttft_s, "tpot": self._latencies.tpot_s}
        return [
            MeasuredLatency(
                target.cls, target.metric, target.quantile, by_metric[target.metric](self._ended, target.quantile)
            )
            for target in self.targets
            if self._ended and target.metric in by_metric
        ]

    def _attainment(self, scrapes: Sequence[_Scrape]) -> Attainment | None:
        """Counts of the window before the last scrape; None before there are two."""
        if len(scrapes) < 2:
            return None
        last = scrapes[-1]
        index = bisect_right(scrapes, last.at - ATTAINMENT_WINDOW_S, key=lambda scrape: scrape.at) - 1
        before = scrapes[max(index, 0)].counts
        rows = tuple(
            SloCounts(target.cls, target.name, now[0] - old[0], now[1] - old[1])
            for target, now, old in zip(self.targets, last.counts, before, strict=True)
            if now[0] + now[1] > 0
        )
        return Attainment(QueryResult.VALUE, ATTAINMENT_WINDOW_S, rows, "simulation")

    def _classes(self, now: float) -> tuple[ClassSignals, ...]:
        arrived, end = self._arrived, min(floor(now), len(self._arrived) - 1)
        if not arrived[end][0]:
            return ()
        newest = [
            last - UNREPORTED_S * (last - earlier) for last, earlier in zip(arrived[end], arrived[end - 1], strict=True)
        ]
        flows = []
        for window in DEMAND_WINDOWS_S:
            before = arrived[max(end - window, 0)]
            seconds = min(window, max(now, 1.0))
            flows.append(RateWindow(seconds, newest[0] - before[0], newest[1] - before[1]))
        queue, inside, completed = self._pool.queue, self._inside(), self._completed[-1][1]
        queued = max(round(queue.requests - inside), 0)
        oldest_s = queue.oldest_s(now) if queued else 0.0
        share = (queue.requests - inside) / queue.requests if queued else 0.0
        return (
            ClassSignals(
                name=CLASS,
                flows=tuple(flows),
                output_tokens=completed.output_tokens / completed.requests if completed.requests >= 1 else None,
                queued=queued,
                queued_tokens=round(queue.tokens() * share) if queued else 0,
                overdue_tokens=round(queue.overdue_tokens() * share) if queued else 0,
                held=0 if self._pool.ready else queued,
                in_flight=round(self._computing() + inside + sum(one.running for one in self._pool.draining)),
                oldest_s=oldest_s,
                deadline_s=self._plan.hold_s - oldest_s if queued else None,
                completed=self._completed_since(now - DEMAND_WINDOWS_S[-1]),
            ),
        )

    def _completed_since(self, start: float) -> CompletedRequests | None:
        """What was completed after `start`, if anything was."""
        before = self._completed[bisect_right(self._completed, start, key=lambda each: each[0]) - 1][1]
        found = [last - first for last, first in zip(_sums(self._completed[-1][1]), _sums(before), strict=True)]
        return CompletedRequests(*found) if found[0] > 0 else None

    def _computing(self) -> float:
        """Requests whose prompts or answers ready replicas compute."""
        return self._pool.prefilling + self._pool.running

    def _inside(self) -> float:
        """Requests that wait in replicas, beside those whose prompts are computed."""
        queue, ahead_s = self._pool.queue, LOOKAHEAD_S * len(self._pool.ready)
        ahead = queue.requests * ahead_s / queue.work if queue.work > 0 else 0.0
        return min(max(ahead - self._pool.prefilling, 0.0), queue.requests)

    def _loads(self) -> dict[str, WorkerLoad]:
        pool, speed = self._pool, self._plan.speed
        if not pool.ready:
            return {}
        count, inside = len(pool.ready), self._inside()
        prompt = pool.queue.tokens() / pool.queue.requests if inside else 0.0
        kv_used = min((pool.held + inside * prompt) / count / speed.kv_tokens, 1.0)
        return {
            one.name: WorkerLoad(
                worker=one.name,
                slots=speed.slots,
                running=_part(self._computing(), place, count),
                waiting=_part(inside, place, count),
                queued_tokens=round(inside * prompt / count),
                kv_tokens=speed.kv_tokens,
                kv_used=kv_used,
                step_time=speed.step_time,
            )
            for place, one in enumerate(pool.ready)
        }


_sums = attrgetter(*(column.name for column in fields(CompletedRequests)))
_NONE = CompletedRequests(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def _sum(done: CompletedRequests, mix: RequestMix, requests: float) -> CompletedRequests:
    """With so many more requests of this mix."""
    return CompletedRequests(
        requests=done.requests + requests,
        prompt_tokens=done.prompt_tokens + requests * mix.prompt,
        cached_tokens=done.cached_tokens + requests * (mix.prompt - mix.uncached),
        output_tokens=done.output_tokens + requests * mix.output,
        attended_pairs=done.attended_pairs + requests * mix.attended_pairs,
        kv_reads=done.kv_reads + requests * mix.output * mix.held_tokens,
    )


def _part(total: float, place: int, count: int) -> int:
    """One of `count` whole parts that sum up to the rounded total."""
    whole = round(total)
    return whole * (place + 1) // count - whole * place // count


def _replica(one: FluidReplica, state: ReplicaState, now: float) -> Replica:
    return Replica(one.name, state, now - one.ordered)
