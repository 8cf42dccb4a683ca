"""Pages and slots that are kept for a class and those more urgent: the others may not plan to fill them.

It holds at admission alone, by the same predicted peak, and only against requests of the same kind: those less urgent
than the class may together reach all pages, and take all slots, but the ones kept. Whoever runs is not held to it, and
where none of them runs the first is admitted whatever it needs. So it takes nothing from the scheduler's argument
against livelock: those that run end, then the next of them begins. While one has to wait for this, none that is as
urgent or less passes it.
"""

from collections.abc import Sequence

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.scheduling.forecast import Load, peak
from paceline_workers.engine.scheduling.plan import SchedulerLimits


def reserved(
    urgency: int, joining: Sequence[Load], running: Sequence[tuple[int, Load]], limits: SchedulerLimits, total: int
) -> bool:
    """Whether loads of this urgency, beside `running` with theirs, would reach into what is kept for others."""
    kept = 0.0
    for place, name in enumerate(RequestClass):
        share = limits.reserved.get(name, 0.0)
        kept += share
        others = [load for other, load in running if other > place]
        if not share or urgency <= place or not others:
            continue
        loads = sorted([*joining, *others], reverse=True)
        if len(loads) > (1 - kept) * limits.slots or peak(loads, limits.page_tokens) > (1 - kept) * total:
            return True
    return False
