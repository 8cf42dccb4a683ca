"""What each part of our policy earns: the same windows without it, in the fluid model (`development`).

A part is taken out by what the policy is given: another outlook, other signals, other times. GPU time is over that of
the oracle, the cheapest of its choices that holds on the window.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from math import exp, inf
from typing import Any

from benchmarks.autoscaling.development import developments, learned_in_fluid
from benchmarks.autoscaling.fluid import fluid_plan, oracles, ranked, requests_of
from benchmarks.autoscaling.store import FOLDER, write
from benchmarks.simulator.cells import LEAD_S

from paceline_autoscaler.model.demand_history import DemandHistories
from paceline_autoscaler.model.demand_paths import DemandPaths
from paceline_autoscaler.model.estimate import OutlookOf, WorkEstimate, estimate
from paceline_autoscaler.model.history import learn
from paceline_autoscaler.model.outlook import DemandOutlook, Outlook, lead_bins, service_outlook
from paceline_autoscaler.model.work_history import WorkHistory
from paceline_autoscaler.policies.constraints import constrain
from paceline_autoscaler.policies.decision import recommend
from paceline_autoscaler.policies.fluid import run
from paceline_autoscaler.policies.replica_policy import ProductionPolicy
from paceline_autoscaler.state import LearnedState
from paceline_autoscaler.types import ClassSignals, Observation

FILE = FOLDER / "ablations.json"
SEEDS = (1, 2, 3)
WHOLE = "all of it"
_SPREAD = 0.15
_HOLD_S = 300.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one window: attainment (0 to 1), and GPU time over the oracle's."""

    attainment: float
    over_oracle: float


def _same_signals(observation: Observation, learned: LearnedState) -> Observation:
    del learned
    return observation


def _same_work(work: WorkEstimate) -> WorkEstimate:
    return work


@dataclass(frozen=True, slots=True)
class Ablation:
    """What the policy is given instead; `feedback`: whether it learns how far the model overrates replicas."""

    outlook: OutlookOf = service_outlook
    signals: Callable[[Observation, LearnedState], Observation] = _same_signals
    work: Callable[[WorkEstimate], WorkEstimate] = _same_work
    feedback: bool = True


@dataclass(slots=True)
class AblatedPolicy(ProductionPolicy):
    """`decide`, part by part."""

    ablation: Ablation = field(default_factory=Ablation)

    def replicas(self, observation: Observation) -> Mapping[str, int]:
        seen = self.ablation.signals(observation, self.state.learned)
        state = learn(seen, self.state)
        work = self.ablation.work(estimate(seen, state.learned, self.knowledge, self.ablation.outlook))
        recommendation, own = recommend(work, state.own)
        if not self.ablation.feedback and isinstance(own, DemandHistories):
            own = replace(own, roles=tuple(replace(role, derate=1.0) for role in own.roles))
        decision, self.state = constrain(work, recommendation), replace(state, own=own)
        self.knowledge = self.recorder.knowledge(seen, self.state.learned, self.knowledge)
        return {pool.name: pool.replicas for pool in decision.pools}


# --- other outlooks


def _of_now(history: WorkHistory, lead_s: float, level: float, slack_s: float, allowed: float) -> Outlook:
    """Demand stays as it is."""
    del history, lead_s, slack_s, allowed
    return Outlook(level, level, level)


def _fixed_spread(history: WorkHistory, lead_s: float, level: float, slack_s: float, allowed: float) -> Outlook:
    """Log-normal around the level, whatever the history says; needs its 99th percentile."""
    del history, lead_s, slack_s, allowed
    return Outlook(level * exp(2.326 * _SPREAD), level, level * exp(1.282 * _SPREAD))


def _others(history: WorkHistory, lead_s: float, level: float, slack_s: float, allowed: float) -> Outlook:
    """From the library, as for a service without a history."""
    return service_outlook(WorkHistory(mean=history.mean), lead_s, level, slack_s, allowed)


def _own_alone(history: WorkHistory, lead_s: float, level: float, slack_s: float, allowed: float) -> Outlook:
    return replace(service_outlook(history, lead_s, level, slack_s, allowed), doubt=0.0)


def _without_constant(history: WorkHistory, lead_s: float, level: float, slack_s: float, allowed: float) -> Outlook:
    found = service_outlook(history, lead_s, level, slack_s, allowed)
    return replace(found, constant=inf, highest=inf, busiest=inf)


def _whole_share(history: WorkHistory, lead_s: float, level: float, slack_s: float, allowed: float) -> Outlook:
    """Plans to use up all of the share that may be late, and half of it for a constant."""
    return service_outlook(history, lead_s, level, slack_s, 2 * allowed)


class _Alike(DemandPaths):
    """All of the past counts the same, at whatever level."""

    def near(self, level: float) -> tuple[int, list[float]]:
        del level
        return 0, [1.0] * len(self)


class _Ratios(DemandPaths):
    """Paths grow with the level."""

    def slope(self, first: int, weights: Any) -> float:
        del first, weights
        return 1.0


class _Absolute(DemandPaths):
    """Paths stay where they were."""

    def slope(self, first: int, weights: Any) -> float:
        del first, weights
        return 0.0


def _by(paths: type[DemandPaths]) -> OutlookOf:
    @lru_cache(maxsize=1)
    def made(history: WorkHistory, bins: int) -> DemandOutlook:
        return DemandOutlook(history, bins, paths)

    def outlook(history: WorkHistory, lead_s: float, level: float, slack_s: float, allowed: float) -> Outlook:
        found, whole = made(history, lead_bins(lead_s)), service_outlook(history, lead_s, level, slack_s, allowed)
        if not found.known:
            return whole
        return replace(found.at(level, slack_s, allowed), others=whole.others, doubt=whole.doubt)

    return outlook


# --- other signals and times


def _mean_lengths(observation: Observation, learned: LearnedState) -> Observation:
    """Requests are counted, not their tokens: each has the mean prompt of those that were answered."""
    done = learned.completed
    if done is None:
        return observation
    classes = tuple(_of_length(cls, done.prompt_tokens / done.requests) for cls in observation.demand.classes)
    return replace(observation, demand=replace(observation.demand, classes=classes))


def _of_length(cls: ClassSignals, prompt: float) -> ClassSignals:
    flows = tuple(replace(flow, prompt_tokens=flow.arrivals * prompt) for flow in cls.flows)
    return replace(cls, flows=flows, queued_tokens=round(cls.queued * prompt))


def _nothing_overdue(work: WorkEstimate) -> WorkEstimate:
    """Capacity is ordered for what is too late, too."""
    return replace(work, groups=tuple(replace(group, overdue=0.0) for group in work.groups))


def _ready_at_once(work: WorkEstimate) -> WorkEstimate:
    """Pending replicas count as ready ones."""
    groups = tuple(
        replace(group, pools=tuple(replace(pool, etas=(0.0,) * len(pool.etas)) for pool in group.pools))
        for group in work.groups
    )
    return replace(work, groups=groups)


def _holding(starts: float, seconds: float) -> Callable[[WorkEstimate], WorkEstimate]:
    """So many starts or seconds before replicas are removed, not a round trip."""

    def held(work: WorkEstimate) -> WorkEstimate:
        return replace(work, drain_s=starts * work.start_s + seconds - work.start_s)

    return held


ABLATIONS = {
    WHOLE: Ablation(),
    "demand stays as it is": Ablation(outlook=_of_now),
    "a fixed spread of 15 %": Ablation(outlook=_fixed_spread),
    "no history of its own": Ablation(outlook=_others),
    "its own history alone": Ablation(outlook=_own_alone),
    "past at any level": Ablation(outlook=_by(_Alike)),
    "past as ratios": Ablation(outlook=_by(_Ratios)),
    "past as it was": Ablation(outlook=_by(_Absolute)),
    "no constant": Ablation(outlook=_without_constant),
    "the whole share planned": Ablation(outlook=_whole_share),
    "requests, not tokens": Ablation(signals=_mean_lengths),
    "no capacity feedback": Ablation(feedback=False),
    "capacity for the overdue": Ablation(work=_nothing_overdue),
    "pending as ready": Ablation(work=_ready_at_once),
    "held for half a start": Ablation(work=_holding(0.5, 0.0)),
    "held for 300 s": Ablation(work=_holding(0.0, _HOLD_S)),
    "held for two starts": Ablation(work=_holding(2.0, 0.0)),
}


def ablate(task: tuple[str, int]) -> dict[str, Outcome]:
    """All ablations on a cell's window, by name, with a seed."""
    name, seed = task
    windows = developments()[name]
    requests = requests_of(windows.tried, seed)
    plan, known = fluid_plan(windows.tried, requests), learned_in_fluid(windows.learned, seed)
    oracle_s = next(iter(ranked(plan, oracles(plan, requests)).values())).gpu_s
    outcomes = {}
    for label, ablation in ABLATIONS.items():
        begun = known.policy(LEAD_S)
        policy = AblatedPolicy(state=begun.state, knowledge=begun.knowledge, ablation=ablation)
        result = run(plan, policy)
        outcomes[label] = Outcome(round(result.attainment, 5), round(result.gpu_s / oracle_s, 4))
    return outcomes


def save(found: Mapping[tuple[str, int], Mapping[str, Outcome]]) -> None:
    rows = [
        {"cell": name, "seed": seed, **{label: asdict(outcome) for label, outcome in outcomes.items()}}
        for (name, seed), outcomes in sorted(found.items())
    ]
    write(FILE, {"rows": rows})


def table(found: Mapping[tuple[str, int], Mapping[str, Outcome]]) -> str:
    """Markdown: the median attainment in %, and the mean GPU time over the oracle's."""
    names = list(dict.fromkeys(name for name, _ in found))
    rows = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for label in ABLATIONS:
        cells = [_words([found[name, seed][label] for seed in SEEDS]) for name in names]
        rows.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _words(outcomes: list[Outcome]) -> str:
    attainment = sorted(outcome.attainment for outcome in outcomes)[len(outcomes) // 2]
    over = sum(outcome.over_oracle for outcome in outcomes) / len(outcomes)
    return f"{100 * attainment:.1f} / {over:.2f}"
