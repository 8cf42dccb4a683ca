"""When a status is worth a write: news at once, the first "not ready" and mere counters a little later.

A service that becomes ready within HOLD_S of being first seen costs one write and not four. Hole: a counter that goes
up and down again within COALESCE_S is never told.
"""

from collections.abc import Mapping
from typing import Any, Final

from paceline_operator.plans.status import CONDITIONS

HOLD_S: Final = 3.0
COALESCE_S: Final = 2.0

Status = Mapping[str, Any]


def status_due(before: Status, after: Status, *, now: float, since: float, written: float | None) -> float | None:
    """Seconds until `after` should be written: 0 for now, None when `before` says the same.

    `since`: when the service was first seen; `written`: when its status was last written, if it was by this process.
    """
    if says_the_same(before, after):
        return None
    if _news(before, after):
        return 0.0
    told = any(condition["type"] in CONDITIONS for condition in before.get("conditions") or ())
    if not told and written is None:
        return max(since + HOLD_S - now, 0.0)
    return 0.0 if written is None else max(written + COALESCE_S - now, 0.0)


def says_the_same(before: Status, after: Status) -> bool:
    """Whether the operator's share of `before` is `after`; what others write does not count."""
    return (
        before.get("observedGeneration") == after["observedGeneration"]
        and before.get("workload") == after["workload"]
        and _own(before) == _own(after)
    )


def _own(status: Status) -> dict[str, Any]:
    return {one["type"]: one for one in status.get("conditions") or () if one["type"] in CONDITIONS}


def _news(before: Status, after: Status) -> bool:
    """Ready or Accepted turned. What was never said counts as accepted and not ready, which is no news at first."""
    old, new = _own(before), _own(after)
    usual = {"Accepted": "True", "Ready": "False"}
    return any(old.get(kind, {}).get("status", said) != new[kind]["status"] for kind, said in usual.items())
