"""Move orders away from pools that have no capacity. Pure.

What the policy orders in a blocked pool goes to the next pools of the role that have room, cheapest first. For each
replica that another pool gets, an absent order of the blocked pool is taken back; without another pool the orders stay,
since Kubernetes fills them as soon as it can.
"""

from dataclasses import replace
from math import ceil, floor, fsum

from paceline_autoscaler.model.estimate import RoleEstimate, WorkEstimate
from paceline_autoscaler.types import Recommendation
from paceline_core.registry.enums import ScaleLimit

_ROUNDING = 1e-9


def avoid_blocked_pools(work: WorkEstimate, wanted: Recommendation) -> Recommendation:
    """The same capacity from pools that are not blocked, as far as they have room."""
    counts, limit = dict(wanted.counts), wanted.limit
    for group in work.groups:
        if _place(group, counts, _moved(group, counts)) > _ROUNDING:
            limit = ScaleLimit.CAPACITY
        _take_back(group, counts)
    if counts == dict(wanted.counts):
        return wanted
    blocked = (
        pool for group in work.groups for pool in group.pools if counts[pool.spec.name] < wanted.counts[pool.spec.name]
    )
    why = "; ".join(f"pool {pool.spec.name} has no capacity ({pool.blocked})" for pool in blocked)
    return replace(wanted, counts=counts, limit=limit, body=f"{wanted.body}; {why}")


def _moved(group: RoleEstimate, counts: dict[str, int]) -> float:
    """Take new orders of blocked pools out of `counts`; returns their capacity in replicas of the reference pool."""
    capacity = 0.0
    for pool in group.pools:
        new = counts[pool.spec.name] - pool.status.desired
        if pool.blocked and new > 0:
            counts[pool.spec.name] -= new
            capacity += new / pool.ratio
    return capacity


def _place(group: RoleEstimate, counts: dict[str, int], capacity: float) -> float:
    """Order this capacity in the other pools; returns what they have no room for."""
    for pool in group.pools:
        if not pool.blocked:
            room = max(pool.spec.max - counts[pool.spec.name], 0)
            taken = min(room, ceil(capacity * pool.ratio - _ROUNDING))
            counts[pool.spec.name] += taken
            capacity = max(capacity - taken / pool.ratio, 0.0)
    return capacity


def _take_back(group: RoleEstimate, counts: dict[str, int]) -> None:
    """Take back as many absent orders as the other pools replace."""
    replaced = fsum(
        max(counts[pool.spec.name] - pool.status.desired, 0) / pool.ratio for pool in group.pools if not pool.blocked
    )
    for pool in group.pools:
        if pool.blocked:
            above_min = max(counts[pool.spec.name] - pool.spec.min, 0)
            back = min(pool.absent, floor(replaced * pool.ratio + _ROUNDING), above_min)
            counts[pool.spec.name] -= back
            replaced -= back / pool.ratio
