"""When a request's first token would be late, and what its client is told. Pure; times are the scheduler's seconds.

Every estimate is from below: its own prompt, or that and the shorter ones of its class, computed without a pause. So
what is shed could not have been in time; what is not shed may still be late, and then ends at its deadline. A model
that has seen fewer than OBSERVATIONS steps is a guess, and sheds nothing.
"""

from paceline_core.wire import StepTime
from paceline_workers.engine.scheduling import pace
from paceline_workers.engine.scheduling.request import Request, State

OBSERVATIONS = 16


def hopeless(model: StepTime, request: Request, ahead: int) -> str:
    """Why a new request is not queued behind `ahead` tokens; "" if it is."""
    if request.deadline is None or not ahead or not _trusted(model):
        return ""
    left = request.deadline - request.arrival
    if ahead * model.prefill + pace.service(model, request.uncached, request.wanted) <= left:
        return ""
    return f"shed: {ahead} tokens are to compute before, which takes longer than the {left:.3f} s to the deadline"


def latest_start(model: StepTime, request: Request, uncached: int) -> float:
    """Until when a request may wait, or, if it runs, have no token. It must have a deadline."""
    assert request.deadline is not None
    if request.state is State.RUNNING or not _trusted(model):
        return request.deadline
    return request.deadline - pace.service(model, uncached, request.wanted)


def too_late(request: Request, now: float) -> str:
    """Why a request ends that is past its deadline, or would be before its prompt is computed."""
    assert request.deadline is not None
    if now >= request.deadline:
        return f"no token before the deadline, {now - request.arrival:.3f} s"
    left = request.deadline - now
    return f"shed: {request.uncached} tokens are to compute, which takes longer than the {left:.3f} s to the deadline"


def _trusted(model: StepTime) -> bool:
    return pace.known(model) and model.observations >= OBSERVATIONS
