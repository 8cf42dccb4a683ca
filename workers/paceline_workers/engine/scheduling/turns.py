"""Which running prompt goes on first: by response ratio, as waiting ones do, but every TURN-th step the oldest.

Ratios alone would let a long prompt stand still while short ones keep coming.
"""

from collections.abc import Sequence
from math import inf
from operator import itemgetter

from paceline_workers.engine.scheduling.request import Request
from paceline_workers.engine.scheduling.waiting import ratio

TURN = 8


def prefill_order(prompts: Sequence[tuple[Request, float]], step: int, now: float) -> list[tuple[Request, float]]:
    """Prompts, given oldest first with the seconds they still need, in their order.

    Beside each stands the ratio that a new prompt must exceed to pass it; in a TURN-th step none does.
    """
    if step % TURN == 0:
        return [(request, inf) for request, _ in prompts]
    ratios = [(request, ratio(now - request.arrival, service)) for request, service in prompts]
    return sorted(ratios, key=itemgetter(1), reverse=True)
