"""What a service would cost and keep with another promise or more requests, on the traffic that it has had.

Its work history and the summary of its requests' lengths become traffic; its replicas are as fast, and start as slowly,
as has been learned. The fluid model plays the whole span, and the exact simulator as much of the worst hour as there is
time for. Both let the policy `slo` scale, with the history of before the span as its knowledge.

What is not known of the span is played on a straight line from what came before to what came after. The first
WARM_UP_S, at most a quarter, are not scored.
Known holes: one pool and one class, that of the promise; the fluid model has no E2E and no work of other classes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import ceil, fsum, inf, log
from statistics import pstdev

from paceline_autoscaler.model.estimate import USABLE
from paceline_autoscaler.model.lengths import LengthSummary
from paceline_autoscaler.model.observation import scaling_spec
from paceline_autoscaler.model.starts import start_s
from paceline_autoscaler.model.work_history import BIN_S, RATES, WorkHistory, code_of
from paceline_autoscaler.policies.fluid import run
from paceline_autoscaler.policies.fluid_types import CLASS, FluidPlan
from paceline_autoscaler.policies.replica_policy import ProductionPolicy
from paceline_autoscaler.state import Knowledge, LearnedState, PoolSpeed, StartSample, State
from paceline_autoscaler.types import ScalingSpec, SloTarget, StartKind
from paceline_core.errors import InvalidInput
from paceline_core.objects.resolved import ResolvedService, Target
from paceline_core.registry.enums import RequestClass
from paceline_core.units import counted
from paceline_planner.replica import ReplicaModel
from paceline_simulator.cluster import EPOCH, StartTimes
from paceline_simulator.past_traffic import LengthParts, PastTraffic
from paceline_simulator.service_engine import learned_pool
from paceline_simulator.simulation import MOMENT_S, RunPlan, ServicePlan, Simulation
from paceline_simulator.what_if_outcome import EXACT_WARM_UP_S, LEAST_REQUESTS, ExactRun, FluidSpan

WARM_UP_S, WARM_UP_SHARE = 900.0, 0.25
LEAST_BINS = 10
"""Five minutes of work: a shorter history is none."""
EXACT_S = 3600.0
LONGEST_PERIOD_S, PERIOD_SHARE = 10.0, 1 / 6
"""The share of a start after which the policy decides again in the fluid model, to save time."""
_STEP = log(RATES[3] / RATES[2])
_EPOCH_S = EPOCH.timestamp()


@dataclass(frozen=True, slots=True)
class PastService:
    """What an autoscaler has learned of a service until `now`, in Unix seconds."""

    learned: LearnedState
    history: WorkHistory
    lengths: tuple[LengthSummary, ...]
    now: float


@dataclass(frozen=True, slots=True)
class ServiceVariant:
    """The service as it is, or as it would be, with so many times the requests."""

    service: ResolvedService
    factor: float = 1.0


@dataclass(frozen=True)
class WhatIf:
    """One question about a service with one pool. Raises InvalidInput for what cannot be answered."""

    as_is: ServiceVariant
    would_be: ServiceVariant
    past: PastService
    since_s: float
    request_class: RequestClass = CLASS

    @cached_property
    def speed(self) -> PoolSpeed:
        pools = self.as_is.service.pools
        if len(pools) != 1:
            raise InvalidInput("spec.pools", f"what-if is for one pool, and there are {len(pools)}; ask for each alone")
        found = next((speed for speed in self.past.learned.speeds if speed.pool == pools[0].name), None)
        if found is None:
            raise InvalidInput("NAME", f"no replica of pool {pools[0].name} has reported its speed; wait for one")
        return found

    @cached_property
    def lengths(self) -> LengthParts:
        """Of the class's requests, else of all."""
        rows = [one for one in self.past.lengths if one.requests >= 1 and one.prompts and one.outputs]
        own = [one for one in rows if one.name == self.request_class] or rows
        if not own:
            raise InvalidInput("NAME", "no lengths of requests are known yet; send some, and ask again in a minute")
        total = own[0]
        for one in own[1:]:
            total = total.plus(one)
        return LengthParts.of(total)

    @cached_property
    def known_s(self) -> float:
        """How much of the span is known."""
        return sum(code > 0 for code in self._codes) * BIN_S

    @property
    def gpus(self) -> int:
        """Of one replica."""
        return max(scaling_spec(self.as_is.service).pools[0].gpus, 1)

    def check(self) -> None:
        """Raises InvalidInput for whatever keeps the question from an answer."""
        for variant in (self.as_is, self.would_be):
            self.promise(variant)
        assert self._codes
        assert self.lengths
        for variant in (self.as_is, self.would_be):
            self._check_requests(variant)
            learned_pool(variant.service, 0, self.speed, self._starts(variant))

    def _check_requests(self, variant: ServiceVariant) -> None:
        count = self._traffic(variant).count
        if count < LEAST_REQUESTS:
            few = f"{counted(count, 'request')} would be left to play, and what-if needs {LEAST_REQUESTS}"
            option, fix = ("--since", "a longer time") if variant.factor == 1 else ("--rps", "more requests")
            raise InvalidInput(option, f"{few}; ask for {fix}")

    @property
    def span_s(self) -> float:
        """What is played: from the first time that is known."""
        return len(self._codes) * BIN_S

    @property
    def warm_up_s(self) -> float:
        return min(WARM_UP_S, WARM_UP_SHARE * self.span_s)

    @property
    def begin(self) -> float:
        """When the span begins, in Unix seconds."""
        return self._end - self.span_s

    def promise(self, variant: ServiceVariant) -> tuple[Target, ...]:
        """The class's targets."""
        targets = variant.service.classes[self.request_class].targets
        if not targets:
            field_ = f"spec.classes.{self.request_class}.slo"
            raise InvalidInput(field_, "promises nothing, and what-if judges by the promise; write ttft: {p95: 1s}")
        return targets

    def fluid(self, variant: ServiceVariant, stop: Callable[[], bool] = lambda: False) -> FluidSpan:
        """The whole span in the fluid model, or what of it is played until `stop`."""
        spec, traffic, starts = self._as_interactive(variant), self._traffic(variant), self._starts(variant)
        terms, bins = variant.service.classes[self.request_class], traffic.demand_bins()
        plan = FluidPlan(
            service=spec,
            speed=self.speed,
            bins=bins,
            replicas=self._first_replicas(variant),
            lead_s=starts.mean_s,
            lead_spread=starts.spread,
            lengths=traffic.lengths.spread,
            ttft=self._strictest(variant, "ttft"),
            tpot=self._strictest(variant, "tpot"),
            min_prefill=learned_pool(variant.service, 0, self.speed, starts).engine.limits.page_tokens,
            score=(self.warm_up_s, self.span_s),
            start=_EPOCH_S,
            hold_s=terms.hold_timeout_s,
            queue_limit=terms.queue_limit,
            latencies=False,
        )
        policy = self._policy(variant, 0.0)
        policy.period_s = max(min(LONGEST_PERIOD_S, PERIOD_SHARE * plan.lead_s), policy.period_s)
        judged = frozenset(target.name for target in spec.targets if target.metric in ("ttft", "tpot"))
        return FluidSpan.of(run(plan, policy, stop), plan.score, [target.name for target in spec.targets], judged)

    def worst_s(self, fluid: FluidSpan) -> float:
        """Where an exact run is to begin: shortly before most waits, else before the highest demand."""
        rows = [moment for moment in fluid.moments if fluid.start_s <= moment.at < fluid.end_s]
        worst = max(rows, key=lambda moment: (round(moment.queued), self._rates[int(moment.at / BIN_S)]))
        latest = max(self.span_s - EXACT_S, 0.0)
        return max(min(worst.at - 2 * EXACT_WARM_UP_S, latest) // BIN_S * BIN_S, 0.0)

    def exact(self, variant: ServiceVariant, start_s: float, replicas: int, stop: Callable[[], bool]) -> ExactRun:
        """An hour from `start_s` on in the exact simulator, or what of it is simulated until `stop`."""
        first, last = round(start_s / BIN_S), min(round((start_s + EXACT_S) / BIN_S), len(self._codes))
        pool = learned_pool(variant.service, 0, self.speed, self._starts(variant))
        requests = self._traffic(variant).requests(first, last, pool.engine.limits.max_model_len)
        policy = self._policy(variant, start_s)
        arrivals, begin = {self.request_class: requests}, {pool.target.pool: replicas}
        plan = ServicePlan(_scaled_by_slo(variant.service), (pool,), arrivals, policy, begin)
        seconds = (last - first) * BIN_S
        simulation = Simulation(RunPlan((plan,), score=(0.0, seconds)))
        stopped = False

        def look() -> None:
            nonlocal stopped
            if not stopped and stop():
                stopped = True
                simulation.events.stop()

        simulation.events.every(MOMENT_S, look)
        result = simulation.run()
        return ExactRun.of(result, result.seconds if stopped else seconds, whole=not stopped)

    # --- parts

    @cached_property
    def _end(self) -> float:
        history = self.past.history
        return history.begin + len(history.codes) * BIN_S

    @cached_property
    def _codes(self) -> bytes:
        """The bins of the span, from its first known one on."""
        after = ceil((self.past.now - self.since_s - self.past.history.begin) / BIN_S)
        codes = self.past.history.codes[max(after, 0) :].lstrip(b"\0")
        known = len(codes) - codes.count(0)
        if known < LEAST_BINS:
            so_far = f"{known * BIN_S / 60:.1f} minutes of the service's work are known"
            all_known = len(self.past.history.codes) - self.past.history.codes.count(0)
            fix = "ask again later" if all_known < LEAST_BINS else "ask for a longer time"
            raise InvalidInput("--since", f"{so_far}, and what-if needs 5; {fix}")
        if max(codes) == code_of(0.0):
            raise InvalidInput("--since", "no request came in this time; ask for a longer one")
        return codes

    @cached_property
    def _rates(self) -> list[float]:
        return _without_gaps(self._codes)

    @cached_property
    def _request_s(self) -> float:
        """Replica-seconds of a mean request, as the history has priced it."""
        spec = scaling_spec(self.as_is.service)
        tpot_s = min((target.seconds for target in spec.targets if target.metric == "tpot"), default=inf)
        model = ReplicaModel(self.speed, spec.step_tokens, tpot_s)
        return model.request_s(self.lengths.mean.mix(self.speed.step_time))

    def _traffic(self, variant: ServiceVariant) -> PastTraffic:
        mix = self.lengths.mean.mix(self.speed.step_time)
        usual = self._request_s * self.lengths.work_variance(mix.prefill_s, mix.decode_s) / (BIN_S / 3)
        beyond = max(self.past.history.dispersion - usual, 0.0) / self._request_s
        rates = [rate / self._request_s for rate in self._rates]
        return PastTraffic(rates, self.lengths, beyond).times(variant.factor)

    def _as_interactive(self, variant: ServiceVariant) -> ScalingSpec:
        """The specification for the fluid model, whose only class is the interactive one."""
        spec = scaling_spec(_scaled_by_slo(variant.service))
        targets = [replace(target, cls=CLASS) for target in spec.targets if target.cls == self.request_class]
        return replace(spec, targets=tuple(targets))

    def _strictest(self, variant: ServiceVariant, metric: str) -> SloTarget:
        found = [target for target in self.promise(variant) if target.metric == metric]
        if not found:
            return SloTarget(CLASS, metric, 0.5, inf)
        one = min(found, key=lambda target: target.seconds)
        return SloTarget(CLASS, metric, one.quantile, one.seconds, one.per_prompt_token)

    def _starts(self, variant: ServiceVariant) -> StartTimes:
        """As the pool's last starts, or as the policy expects the first one."""
        name = variant.service.pools[0].name
        seen = [sample.seconds for sample in self.past.learned.starts if sample.pool == name]
        lead_s = fsum(seen) / len(seen) if seen else start_s(scaling_spec(variant.service), self.past.learned, name)
        spread = StartTimes.of(lead_s).spread if len(seen) < 2 else min(pstdev(seen) / lead_s, 0.5)
        return StartTimes.of(max(lead_s, 1.0), spread)

    def _first_replicas(self, variant: ServiceVariant) -> int:
        """Enough for the work of the first two minutes, within the pool's bounds."""
        pool, first = variant.service.pools[0], max(self._rates[:4])
        return min(max(ceil(variant.factor * first / USABLE), pool.min, 1), max(pool.max, 1))

    def _policy(self, variant: ServiceVariant, start_s: float) -> ProductionPolicy:
        """As an autoscaler that has seen all until then, with this variant's requests."""
        known, later = self.past.history, len(self._codes) - round(start_s / BIN_S)
        codes = known.codes[: len(known.codes) - later]
        history = WorkHistory(
            _EPOCH_S - len(codes) * BIN_S,
            _scaled(codes, variant.factor),
            variant.factor * known.variance,
            variant.factor * known.mean,
        )
        learned = self.past.learned
        samples = tuple(StartSample(s.pool, StartKind.COLD, s.seconds) for s in learned.starts)
        state = LearnedState(
            starts=samples,
            drains_s=learned.drains_s,
            output_tokens=learned.output_tokens,
            completed=learned.completed,
            speeds=learned.speeds,
        )
        return ProductionPolicy(
            state=State(learned=state), knowledge=Knowledge(((variant.service.pools[0].role, history),))
        )


def _scaled_by_slo(service: ResolvedService) -> ResolvedService:
    """With our policy, whatever scales it in fact, and without a pause."""
    return replace(service, scaling=replace(service.scaling, policy="slo"), pause_until=None)


def _without_gaps(codes: bytes) -> list[float]:
    """The rate of each bin; those of unknown ones are on a line from the one before to the one after."""
    known = [(place, RATES[code]) for place, code in enumerate(codes) if code]
    rates = [known[-1][1]] * len(codes)
    for (place, rate), (after, next_rate) in pairwise(known):
        for between in range(place, after):
            rates[between] = rate + (next_rate - rate) * (between - place) / (after - place)
    return rates


def _scaled(codes: bytes, factor: float) -> bytes:
    """Codes of so many times the rates; unknown bins and those without work stay as they are."""
    steps = round(log(factor) / _STEP)
    return bytes(min(max(code + steps, 2), 255) if code > 1 else code for code in codes)
