"""When a status is worth a write: news at once, a first status that is not final and mere counters a little later.

A service that settles within HOLD_S of being first seen costs one write and not four. Many that start at once wait for
each other (for scheduler, registry and API server), so each of them is held for its TURN_S longer. Hole: a counter that
goes up and down again within COALESCE_S is never told.
"""

from collections.abc import Mapping
from typing import Any, Final

from paceline_operator.plans.status import CONDITIONS

HOLD_S: Final = 1.0
TURN_S: Final = 0.1
COALESCE_S: Final = 2.0

Status = Mapping[str, Any]


def status_due(before: Status, after: Status, *, now: float, held_until: float, written: float | None) -> float | None:
    """Seconds until `after` should be written: 0 for now, None when `before` says the same.

    `held_until`: when a first status that is not final may be told (see `initial_delay_s`); `written`: when the status
    was last written, if it was by this process.
    """
    if says_the_same(before, after):
        return None
    if not _own(before) and written is None:
        return 0.0 if _final(after) else max(held_until - now, 0.0)
    if written is None or _news(before, after):
        return 0.0
    return max(written + COALESCE_S - now, 0.0)


def initial_delay_s(crowd: int) -> float:
    """How long after it was first seen a service that has not settled says nothing; `crowd` start at once."""
    return max(HOLD_S, crowd * TURN_S)


def says_the_same(before: Status, after: Status) -> bool:
    """Whether the operator's share of `before` is `after`; what others write does not count."""
    return (
        before.get("observedGeneration") == after["observedGeneration"]
        and before.get("workload") == after["workload"]
        and _own(before) == _own(after)
    )


def _own(status: Status) -> dict[str, Any]:
    return {one["type"]: one for one in status.get("conditions") or () if one["type"] in CONDITIONS}


def _final(status: Status) -> bool:
    """Whether a status is not about to change by itself: refused, or nothing moves any more."""
    said = _own(status)
    return any(said[kind]["status"] == "False" for kind in ("Accepted", "Progressing"))


def _news(before: Status, after: Status) -> bool:
    """Ready or Accepted turned. What was never said counts as accepted and not ready, which is no news at first."""
    old, new = _own(before), _own(after)
    usual = {"Accepted": "True", "Ready": "False"}
    return any(old.get(kind, {}).get("status", said) != new[kind]["status"] for kind, said in usual.items())
