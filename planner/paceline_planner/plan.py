"""Plans a service: which accelerator and split carry a load within its promise at the least cost. Pure.

One way through four questions, each asked of every accelerator that is left, and each answer is recorded:

    does the model fit        by bytes, for every split over the devices of a node
    is an idle replica fast   its TTFT and TPOT; what it misses, no number of replicas mends
    how many carry the rate   the fewest replicas whose late share is within the promise, for every split
    which costs least         dollars an hour; where a price is unknown, the fewest devices come after all priced ones

If no accelerator is left, the plan names the nearest promise that one keeps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from paceline_core.errors import InvalidInput
from paceline_core.units import brief, counted
from paceline_planner.candidates import PlannedLoad, PlannedPool, PlannedReplica
from paceline_planner.hardware import Accelerator
from paceline_planner.promises import (
    MOST_REPLICAS,
    WORTH,
    fewest_replicas,
    idle_latency,
    nearest_promise,
    quantile_prompt,
    tightest_ttft,
)
from paceline_planner.shapes import ModelShape
from paceline_planner.splits import MOST_DEVICES, DeviceSplit, splits
from paceline_planner.steptime import Caps

Question = Literal["fits", "fast when idle", "carries the rate", "costs least"]
MOST_ALTERNATIVES = 5
_FEWEST_STEP_TOKENS = 256


@dataclass(frozen=True, slots=True)
class PlanDecision:
    """One answer on the way, about an accelerator."""

    question: Question
    accelerator: str
    passed: bool
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """`chosen` is None if nothing keeps the promise.

    `nearest`: what keeps the nearest promise, if none is chosen and anything fits, or if what is chosen is mostly idle.
    """

    shape: ModelShape
    load: PlannedLoad
    chosen: PlannedPool | None
    alternatives: tuple[PlannedPool, ...]
    nearest: PlannedPool | None
    decisions: tuple[PlanDecision, ...]


def plan(
    shape: ModelShape,
    accelerators: Sequence[Accelerator],
    load: PlannedLoad,
    caps: Caps,
    most_devices: int = MOST_DEVICES,
) -> Plan:
    """The cheapest way to carry the load on one of these accelerators, over up to so many devices a replica."""
    walk = _Walk(load)
    for accelerator in accelerators:
        found = [
            PlannedReplica(shape, accelerator, split, sized)
            for split in splits(shape, accelerator, most_devices)
            for sized in _step_sizes(caps)
        ]
        walk.ask(accelerator, found)
    ranked = sorted(walk.candidates, key=_cost)
    chosen = ranked[0] if ranked else None
    if chosen is not None:
        walk.decisions.append(_cheapest(chosen, ranked))
    nearest = None
    if chosen is None:
        nearest = _nearest(walk.fitting, load)
    elif chosen.pool.usable < WORTH:
        nearest = _nearest([chosen.replica], load)
    return Plan(shape, load, chosen, tuple(_alternatives(ranked)), nearest, tuple(walk.decisions))


def _step_sizes(caps: Caps) -> Iterator[Caps]:
    """The caps, and those of shorter steps, which may keep a promise with fewer replicas; the longest first."""
    size = caps.step_tokens
    while size == caps.step_tokens or size >= max(caps.sequences, _FEWEST_STEP_TOKENS):
        yield replace(caps, step_tokens=size)
        size //= 2


class _Walk:
    """The answers so far, the replicas that fit, and the candidates that carry the load."""

    def __init__(self, load: PlannedLoad) -> None:
        self.load = load
        self.decisions: list[PlanDecision] = []
        self.fitting: list[PlannedReplica] = []
        self.candidates: list[PlannedPool] = []

    def ask(self, accelerator: Accelerator, replicas: list[PlannedReplica]) -> None:
        """Ask the questions of an accelerator in turn, until one has no replica left."""
        left = replicas
        for question in (self._fits, self._fast, self._carries):
            left, answer = question(accelerator, left)
            self.decisions.append(answer)
            if not left:
                return

    def _fits(
        self, accelerator: Accelerator, replicas: list[PlannedReplica]
    ) -> tuple[list[PlannedReplica], PlanDecision]:
        context = self.load.context
        try:
            found = [replica for replica in replicas if replica.fit(context).fits and replica.pool(self.load)]
        except InvalidInput as error:
            return [], PlanDecision("fits", accelerator.name, False, error.message)
        self.fitting += found
        if not found:
            return [], PlanDecision("fits", accelerator.name, False, replicas[-1].fit(context).reason)
        fit = found[0].fit(context)
        room = f"{fit.weight_bytes / 1e9:.1f} GB of weights leave room for {fit.kv_tokens:,} KV tokens"
        return found, PlanDecision("fits", accelerator.name, True, f"on {found[0].name}: {room}")

    def _fast(
        self, accelerator: Accelerator, replicas: list[PlannedReplica]
    ) -> tuple[list[PlannedReplica], PlanDecision]:
        found = [replica for replica in replicas if _excess(replica, self.load) <= 1]
        best = found[0] if found else min(replicas, key=lambda replica: _excess(replica, self.load))
        text = f"on {best.name}: {_idle(best, self.load)}"
        return found, PlanDecision("fast when idle", accelerator.name, bool(found), text)

    def _carries(
        self, accelerator: Accelerator, replicas: list[PlannedReplica]
    ) -> tuple[list[PlannedReplica], PlanDecision]:
        pools = [(replica, fewest_replicas(replica.pool(self.load), self.load.rate)) for replica in replicas]
        found = _best_of_splits([PlannedPool(replica, pool, self.load) for replica, pool in pools if pool is not None])
        self.candidates += found
        if not found:
            return [], PlanDecision("carries the rate", accelerator.name, False, _not_carried(replicas, self.load))
        best = min(found, key=_cost)
        text = f"{counted(best.replicas, 'replica')} on {best.replica.name} each, limited by {best.pool.limit}"
        return [best.replica], PlanDecision("carries the rate", accelerator.name, True, text)


def _best_of_splits(pools: Sequence[PlannedPool]) -> list[PlannedPool]:
    """Of each split the pool with the fewest replicas, the first of several."""
    best: dict[DeviceSplit, PlannedPool] = {}
    for pool in pools:
        known = best.setdefault(pool.replica.split, pool)
        if pool.replicas < known.replicas:
            best[pool.replica.split] = pool
    return list(best.values())


def _not_carried(replicas: Sequence[PlannedReplica], load: PlannedLoad) -> str:
    pools = [tightest_ttft(replica.pool(load)) for replica in replicas]
    if any(pool.keeps(0.0) for pool in pools):
        return f"needs more than {MOST_REPLICAS:,} replicas"
    late, allowed = min((pool.late_share(0.0), pool.promise.late) for pool in pools)
    return f"without any load {late:.1%} of first tokens are late, and {allowed:.1%} may be"


def _idle(replica: PlannedReplica, load: PlannedLoad) -> str:
    model = tightest_ttft(replica.pool(load))
    ttft_s, tpot_s, _ = idle_latency(model)
    promise, prompt = model.promise, quantile_prompt(model)
    parts = []
    if promise.ttft_s < inf:
        of = f"a prompt of {prompt:,.0f} tokens (p{promise.ttft_quantile * 100:g})"
        parts.append(f"TTFT {brief(ttft_s)} for {of}, promised {brief(promise.ttft_limit(prompt))}")
    if promise.tpot_s < inf:
        parts.append(f"TPOT {brief(tpot_s)}, promised {brief(promise.tpot_s)}")
    return "; ".join(parts)


def _cost(candidate: PlannedPool) -> tuple[float, int, float]:
    dollars = candidate.dollars_per_hour
    return (inf if dollars is None else float(dollars), candidate.devices, candidate.replica.split.pipeline)


def _alternatives(ranked: Sequence[PlannedPool]) -> Iterator[PlannedPool]:
    """The best of each other accelerator, and the next split of the chosen one; cheapest first."""
    if not ranked:
        return
    seen = {ranked[0].replica.accelerator.name: 0}
    left = MOST_ALTERNATIVES
    for candidate in ranked[1:]:
        name = candidate.replica.accelerator.name
        seen[name] = seen.get(name, -1) + 1
        if seen[name] <= (name == ranked[0].replica.accelerator.name) and left:
            left -= 1
            yield candidate


def _cheapest(chosen: PlannedPool, ranked: Sequence[PlannedPool]) -> PlanDecision:
    price = chosen.dollars_per_hour
    cost = f"${price:.2f} an hour" if price is not None else f"{counted(chosen.devices, 'device')} of unknown price"
    what = f"{counted(chosen.replicas, 'replica')} on {chosen.replica.name}"
    text = f"{what}: {cost}, the cheapest of {len(ranked)} that carry the rate"
    return PlanDecision("costs least", chosen.replica.accelerator.name, True, text)


def _nearest(replicas: Sequence[PlannedReplica], load: PlannedLoad) -> PlannedPool | None:
    """Of the replica that misses the promise by the least."""
    if not replicas:
        return None
    best = min(replicas, key=lambda replica: _excess(replica, load))
    pool = nearest_promise(lambda promise: best.pool(replace(load, promise=promise)), load.promise, load.rate)
    return None if pool is None else PlannedPool(best, pool, replace(load, promise=pool.promise))


def _excess(replica: PlannedReplica, load: PlannedLoad) -> float:
    return idle_latency(replica.pool(load))[2]
