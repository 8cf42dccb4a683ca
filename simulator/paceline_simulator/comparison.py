"""The rows of a study, compared: each policy over its seeds, which of them hold the promise, and at what cost.

A policy holds the promise if the median of its seeds has each target's share of requests in time. Costs are medians
too. The scale of comparison is the cheapest static pool that holds. A simulation errs by up to TIE in replica-time, so
a smaller difference is no difference.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from paceline_core.objects.resolved import Target
from paceline_core.units import brief, counted
from paceline_simulator.policies import STATIC
from paceline_simulator.study_rows import StudyRow

TIE = 0.1
"""The largest error of the simulator's replica time that `python -m benchmarks.simulator stack` found."""
FEWEST_MISSES = 10
"""So many requests must be allowed to miss a target, else luck decides whether it is kept."""
_SAME = "about as much"


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """One policy's rows by seed, with medians over them; `dollars` None if a price is unknown."""

    policy: str
    rows: tuple[StudyRow, ...]
    holds: bool

    @classmethod
    def of(cls, policy: str, rows: Iterable[StudyRow], promise: Sequence[Target]) -> "PolicySummary":
        by_seed = tuple(sorted(rows, key=lambda row: row.seed))
        met = all(median(row.targets[target.name] for row in by_seed) >= target.objective for target in promise)
        return cls(policy, by_seed, met)

    @property
    def static(self) -> bool:
        return self.policy.partition(":")[0] == STATIC

    @property
    def attainment(self) -> float:
        return median(row.attainment for row in self.rows)

    @property
    def gpu_hours(self) -> float:
        return median(row.gpu_hours for row in self.rows)

    @property
    def dollars(self) -> float | None:
        known = [row.dollars for row in self.rows if row.dollars is not None]
        return median(known) if len(known) == len(self.rows) else None

    @property
    def replicas(self) -> float:
        return median(row.mean_replicas for row in self.rows)

    def target(self, name: str) -> float:
        """The share of requests that met this target."""
        return median(row.targets[name] for row in self.rows)

    @property
    def worst(self) -> StudyRow:
        """The seed with the lowest attainment."""
        return min(self.rows, key=lambda row: (row.attainment, -row.gpu_hours))

    @property
    def typical(self) -> StudyRow:
        """The seed whose attainment is the median, the lower one of two."""
        return sorted(self.rows, key=lambda row: (row.attainment, row.seed))[(len(self.rows) - 1) // 2]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The policies of a study that have rows, in the order asked for; `runs` were asked for."""

    service: str
    promise: tuple[Target, ...]
    policies: tuple[PolicySummary, ...]
    runs: int

    @classmethod
    def of(
        cls, service: str, promise: Sequence[Target], runs: Sequence[tuple[str, int]], rows: Sequence[StudyRow]
    ) -> "Comparison":
        by_policy = {policy: [row for row in rows if row.policy == policy] for policy, _ in runs}
        found = tuple(PolicySummary.of(policy, own, promise) for policy, own in by_policy.items() if own)
        return cls(service, tuple(promise), found, len(runs))

    @property
    def reference(self) -> PolicySummary | None:
        """The cheapest static pool that holds; None if none does."""
        return _cheapest(policy for policy in self.policies if policy.static)

    def against_reference(self, policy: PolicySummary) -> float | None:
        """How much more GPU time than the reference, as a share; None without a reference, or if it does not hold."""
        reference = self.reference
        if reference is None or not policy.holds or not reference.gpu_hours:
            return None
        return policy.gpu_hours / reference.gpu_hours - 1

    def cost_against_reference(self, policy: PolicySummary) -> str:
        """The same in words; empty for None."""
        share = self.against_reference(policy)
        if share is None:
            return ""
        return f"{share:+.0%}, tie" if share and abs(share) < TIE else f"{share:+.0%}"

    def headline(self) -> str:
        """The result in a few sentences, of the policies that were run and no others; its reservations first."""
        return " ".join((*self._reservations(), self._result()))

    def _reservations(self) -> Iterator[str]:
        ended = sum(len(policy.rows) for policy in self.policies)
        if ended < self.runs:
            yield f"Interrupted after {ended} of {counted(self.runs, 'run')}."
        scored = max(row.offered for policy in self.policies for row in policy.rows)
        strictest = max(target.objective for target in self.promise)
        needed = round(FEWEST_MISSES / (1 - strictest))
        if scored < needed:
            yield f"Too few requests are scored to judge: {scored}, and {strictest:.0%} needs about {needed}."

    def _result(self) -> str:
        best, reference = _cheapest(self.policies), self.reference
        if best is None:
            closest = max(self.policies, key=lambda policy: policy.attainment)
            return f"No policy holds the promise; {closest.policy} is closest, with {closest.attainment:.1%} in time."
        cost = f"{best.policy} holds the promise at the least cost, {gpu_hours(best.gpu_hours)}"
        if reference is None:
            tried = any(policy.static for policy in self.policies)
            return f"{cost}; no static pool of this study holds it." if tried else f"{cost}."
        scaling = [policy for policy in self.policies if not policy.static]
        others = [policy for policy in scaling if policy.holds]
        if best is not reference:
            difference = _difference(self.against_reference(best))
            link = "as" if difference == _SAME else "than"
            return f"{cost}, {difference} {link} {reference.policy}, the cheapest static pool of this study."
        if not others:
            return f"{cost}; no policy of this study that scales holds it." if scaling else f"{cost}."
        second = min(others, key=lambda policy: policy.gpu_hours)
        return f"{cost}; {second.policy} needs {_difference(self.against_reference(second))}."


def _cheapest(policies: Iterable[PolicySummary]) -> PolicySummary | None:
    return min((policy for policy in policies if policy.holds), key=lambda policy: policy.gpu_hours, default=None)


def _difference(share: float | None) -> str:
    if share is None or abs(share) < TIE:
        return _SAME
    return f"{abs(share):.0%} {'less' if share < 0 else 'more'}"


def gpu_hours(value: float) -> str:
    return f"{value:.1f} GPU-hours" if value >= 1 else f"{value:.2f} GPU-hours"


def describe_target(target: Target) -> str:
    """`95 % TTFT ≤ 1s`, and what long prompts are allowed."""
    slower = f" + {brief(target.per_prompt_token * 1000)} per 1,000 prompt tokens" if target.per_prompt_token else ""
    return f"{target.objective:.0%} {target.metric.upper()} ≤ {brief(target.seconds)}{slower}"


def describe_promise(promise: Iterable[Target]) -> str:
    return ", ".join(map(describe_target, promise))
