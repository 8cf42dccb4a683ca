"""The operator's share of an InferenceService's status, as local mode writes it: pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline_cli.supervisor.replicas import Counts
from paceline_core.objects.naming import STABLE
from paceline_core.objects.resolved import ResolvedService
from paceline_core.units import counted

MANAGER = "paceline-operator"
Condition = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Observed:
    """One service's replicas by pool, the number wanted over all pools, and the workers that keep ending."""

    pools: Mapping[str, Counts]
    desired: int
    failing: tuple[str, ...] = ()

    @property
    def ready(self) -> int:
        """Replicas that take requests, over all pools."""
        return sum(counts.ready for counts in self.pools.values())


def status(
    service: ResolvedService, observed: Observed, endpoint: str, before: Sequence[Condition], now: str
) -> dict[str, Any]:
    """What the operator says; `now` is RFC 3339 UTC, `before` the conditions it wrote last."""
    summary = f"{observed.ready}/{observed.desired}"
    return {
        "observedGeneration": 1,
        "conditions": _dated(_conditions(observed), before, now),
        "workload": {
            "summary": f"{summary} emulated" if service.emulated else summary,
            "revision": service.revision,
            "shares": {STABLE: 100},
            "pools": [
                {"name": name, "ready": counts.ready, "starting": counts.starting, "draining": counts.draining}
                for name, counts in observed.pools.items()
            ],
            "endpoint": endpoint,
            "emulated": service.emulated,
        },
    }


def _conditions(observed: Observed) -> list[Condition]:
    settled = observed.ready >= observed.desired and not any(c.draining for c in observed.pools.values())
    failing = ", ".join(observed.failing)
    return [
        _condition("Accepted", True, "Valid", "The object is valid and its parts were started."),
        _condition("Ready", observed.ready > 0, *_readiness(observed)),
        _condition(
            "Progressing",
            not settled,
            "Scaling" if not settled else "Settled",
            f"{observed.ready} of {observed.desired} replicas are ready.",
        ),
        _condition(
            "Degraded",
            bool(failing),
            "BackOff" if failing else "AsExpected",
            f"Workers keep ending: {failing}; see their logs." if failing else "No worker keeps ending.",
        ),
    ]


def _readiness(observed: Observed) -> tuple[str, str]:
    if observed.ready:
        return "WorkersReady", f"{counted(observed.ready, 'worker')} ready for requests."
    if observed.desired:
        return "NoWorkerReady", "No worker is ready yet; requests are held."
    return "AtZero", "Scaled to zero; the next request wakes a worker."


def _condition(kind: str, holds: bool, reason: str, message: str) -> Condition:
    return {"type": kind, "status": str(holds), "reason": reason, "message": message}


def _dated(conditions: Sequence[Condition], before: Sequence[Condition], now: str) -> list[Condition]:
    """A condition keeps the time at which its status last changed."""
    known = {(old["type"], old["status"]): old["lastTransitionTime"] for old in before}
    return [{**new, "lastTransitionTime": known.get((new["type"], new["status"]), now)} for new in conditions]
