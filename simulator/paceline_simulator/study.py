"""A study: one service and one trace under several policies, each with several seeds.

A run depends on the study, a policy's name and a seed, on nothing else, so runs can be made in any order and anywhere.
A seed draws the starts' times and the phases of the trace's copies. Our autoscaler has seen each pool start before.
Requests are judged by the service's own SLO; those that its engine could never take are left out. The first `warmup_s`
seconds are neither scored nor paid; a static policy begins with its replicas, the others with the pools' minima.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import fsum, inf

from paceline_autoscaler.model.capacity import TokenCost, TokenMix, price
from paceline_autoscaler.policies.fluid_types import DemandBin
from paceline_autoscaler.policies.replica_policy import ProductionPolicy, ReplicaPolicy
from paceline_autoscaler.state import PoolSpeed
from paceline_autoscaler.types import CompletedRequests
from paceline_core import __version__
from paceline_core.errors import InvalidInput
from paceline_core.objects.resolved import ResolvedClass, Target
from paceline_core.registry.enums import Outcome, RequestClass
from paceline_planner.replica import LengthFactors, ReplicaModel
from paceline_simulator.bins import demand_bins
from paceline_simulator.policies import policy_of, static_replicas
from paceline_simulator.replay import Replay
from paceline_simulator.results import SimulationResult
from paceline_simulator.service_engine import SimulatedPools
from paceline_simulator.simulation import MOMENT_S, RunPlan, ServicePlan, Simulation
from paceline_simulator.study_rows import (
    Percentiles,
    ScaleDecision,
    StudyRow,
    answered,
    intervals,
    met_share,
)
from paceline_simulator.traces import TraceRequest

WARMUP_S = 600.0
WARMUP_SHARE = 0.25
"""The warm-up takes at most this share of the replay."""


@dataclass(frozen=True)
class Study:
    """`inputs` names what the service and the trace were read from, for the digest of a run."""

    pools: SimulatedPools
    trace: Sequence[TraceRequest]
    replay: Replay
    request_class: RequestClass
    warmup_s: float
    inputs: str

    @cached_property
    def promise(self) -> tuple[Target, ...]:
        """The targets to judge by; raises InvalidInput if the class has none."""
        targets = self._class.targets
        if not targets:
            field, fix = f"spec.classes.{self.request_class}.slo", "write one, such as ttft: {p95: 1s}"
            raise InvalidInput(field, f"promises nothing, and a simulation judges by the promise; {fix}")
        return targets

    @cached_property
    def fitting(self) -> list[TraceRequest]:
        """The trace's requests that every pool's engine can take. Raises InvalidInput if there is none."""
        most = self.max_model_len
        fitting = [request for request in self.trace if request.prompt_tokens + request.output_tokens <= most]
        if not fitting:
            raise InvalidInput("spec.engine.maxModelLen", f"no request of the trace fits into {most} tokens; raise it")
        return fitting

    @property
    def left_out(self) -> int:
        """Requests that are longer than the engine's context."""
        return len(self.trace) - len(self.fitting)

    @property
    def max_model_len(self) -> int:
        return min(pool.engine.limits.max_model_len for pool in self.pools.pools)

    @property
    def score(self) -> tuple[float, float]:
        """The window that is scored and paid, in seconds of the replay."""
        length = self.replay.seconds(self.fitting)
        return min(self.warmup_s, WARMUP_SHARE * length), length

    def digest(self, policy: str, seed: int) -> str:
        """Names everything that a run depends on."""
        replay = self.replay
        named = (
            *(__version__, self.inputs, str(self.request_class), self.warmup_s, policy, seed),
            *(replay.times, replay.crowd_s, replay.start_s, replay.span_s),
        )
        return sha256(json.dumps(named).encode()).hexdigest()[:16]

    def check(self, policy: str) -> None:
        """Raises InvalidInput for an unknown policy, and for static replicas outside the pools' bounds."""
        replicas = static_replicas(policy_of(policy))
        for place, pool in enumerate(self.pools.service.pools):
            if replicas is not None and not pool.min <= replicas <= pool.max:
                bounds = f"spec.pools[{place}].replicas allows {pool.min} to {pool.max}"
                raise InvalidInput("--policy", f"{policy}: {bounds}; choose a number within, or change the bounds")

    def seeds(self, policy: str, count: int) -> range:
        """Seeds of the policy's runs: one, if all would be equal, since nothing starts and the trace is played once."""
        alone = self.replay.times == 1 and static_replicas(policy_of(policy)) is not None
        return range(1 if alone else count)

    def run(self, policy: str, seed: int, progress: Callable[[float], None] = lambda _: None) -> StudyRow:
        """Simulate one run; `progress` is told the share of the replay that has been simulated."""
        requests = self.replay.requests(self.fitting, seed)
        chosen = policy_of(policy, {pool.target.pool: pool.start.mean_s for pool in self.pools.pools})
        simulation = Simulation(self._plan(chosen, requests, seed))
        events, (_, length) = simulation.events, self.score
        events.every(MOMENT_S, lambda: progress(min(events.now / length, 1.0)))
        result = simulation.run()
        decisions = chosen.decisions if isinstance(chosen, ProductionPolicy) else []
        offered, demand = self._demand(requests, len(result.timeline))
        start, end = result.start, result.end
        unfinished = result.offered() - sum(1 for _ in result.scored())
        outcomes = [request.outcome for request in result.scored()]
        shed, ok = outcomes.count(Outcome.SHED), outcomes.count(Outcome.OK)
        return StudyRow(
            policy=policy,
            seed=seed,
            digest=self.digest(policy, seed),
            version=__version__,
            score=(start, end),
            attainment=met_share(result),
            targets={target.name: met_share(result, target.name) for target in self.promise},
            gpu_hours=fsum(result.pool_gpu_s.values()) / 3600,
            dollars=self._dollars(result),
            mean_replicas=result.mean_replicas(self.pools.service.key),
            starts=sum(start <= at < end for at, _ in result.ordered),
            offered=result.offered(),
            shed=shed,
            failed=len(outcomes) - ok - shed + unfinished,
            ttft=Percentiles.of(r.ttft for r in answered(result) if r.ttft is not None),
            tpot=Percentiles.of(r.tpot for r in answered(result) if r.tpot is not None),
            timeline=tuple(intervals(result.timeline, offered, demand, MOMENT_S)),
            decisions=tuple(ScaleDecision.of(at, decision) for at, decision in decisions),
        )

    @property
    def _class(self) -> ResolvedClass:
        return self.pools.service.classes[self.request_class]

    def _plan(self, policy: ReplicaPolicy, requests: Sequence[TraceRequest], seed: int) -> RunPlan:
        service = self.pools.service
        replicas = static_replicas(policy)
        begin = {pool.name: pool.min if replicas is None else replicas for pool in service.pools}
        plan = ServicePlan(service, self.pools.pools, {self.request_class: requests}, policy, begin)
        return RunPlan((plan,), seed=seed, score=self.score)

    def _dollars(self, result: SimulationResult) -> float | None:
        """GPU time by the pools' prices; None if one is unknown."""
        spent = []
        for pool in self.pools.pools:
            price_per_hour = self.pools.prices[pool.target.pool]
            if price_per_hour is None:
                return None
            spent.append(result.pool_gpu_s[pool.target] / max(pool.gpus, 1) / 3600 * price_per_hour)
        return fsum(spent)

    def _demand(self, requests: Sequence[TraceRequest], count: int) -> tuple[list[int], list[float]]:
        """Requests offered, and replica-seconds of the first pool demanded, in each of `count` intervals."""
        offered, work, cost = [0] * count, [0.0] * count, self._token_cost(requests)
        for request in requests:
            place = int(request.at / MOMENT_S)
            if place < count:
                offered[place] += 1
                work[place] += cost.of(1, request.prompt_tokens, request.output_tokens)
        return offered, work

    def _token_cost(self, requests: Sequence[TraceRequest]) -> TokenCost:
        """The autoscaler's cost of a token on the first pool, for lengths as the requests have, none of them cached."""
        pool, service = self.pools.pools[0], self.pools.service
        engine, limits = pool.engine, pool.engine.limits
        speed = PoolSpeed(pool.target.pool, engine.model, limits.max_seqs, engine.pages * limits.page_tokens)
        total = sum(demand_bins(requests, MOMENT_S, hit_share=0.0), DemandBin())
        count, prompt, output = total.arrivals, total.prompt_tokens, total.output_tokens
        factors = LengthFactors.of(CompletedRequests(count, prompt, 0.0, output, total.attended_pairs, total.kv_reads))
        replica = ReplicaModel(speed, service.engine.step_tokens, self._class.tpot_s or inf)
        return price(replica, TokenMix(prompt / count, output / count), factors, "both")
