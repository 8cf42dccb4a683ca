"""When a request's first token would be late, and what its client is told. Pure; times are the scheduler's seconds.

With a window in sight, tokens see half of it or more on the way to the last one.
Every estimate is from below: its own prompt, or that and the shorter ones of its class, computed without a pause. So
what is shed could not have been in time; what is not shed may still be late, and then ends at its deadline. A model
that has seen fewer than OBSERVATIONS steps is a guess, and sheds nothing.
"""

from math import inf

from paceline_core.wire import StepTime
from paceline_workers.engine.memory.sight import ALL, AttentionWindow
from paceline_workers.engine.scheduling import pace
from paceline_workers.engine.scheduling.request import Request, RequestStatus

OBSERVATIONS = 16


def cannot_meet_deadline(model: StepTime, request: Request, ahead: int, sight: AttentionWindow = ALL) -> str:
    """Why a new request is not queued behind `ahead` tokens; "" if it is."""
    if request.deadline is None or not ahead or not _trusted(model):
        return ""
    left = request.deadline - request.arrival
    if ahead * model.prefill + _service(model, request, request.uncached, sight) <= left:
        return ""
    return f"shed: {ahead} tokens are to compute before, which takes longer than the {left:.3f} s to the deadline"


def latest_start(model: StepTime, request: Request, uncached: int, sight: AttentionWindow = ALL) -> float:
    """Until when a request may wait, or, if it runs, have no token. It must have a deadline."""
    assert request.deadline is not None
    if request.state is RequestStatus.RUNNING or not _trusted(model):
        return request.deadline
    return request.deadline - _service(model, request, uncached, sight)


def too_late(request: Request, now: float) -> str:
    """Why a request ends that is past its deadline, or would be before its prompt is computed."""
    assert request.deadline is not None
    if now >= request.deadline:
        return f"no token before the deadline, {now - request.arrival:.3f} s"
    left = request.deadline - now
    return f"shed: {request.uncached} tokens are to compute, which takes longer than the {left:.3f} s to the deadline"


def _service(model: StepTime, request: Request, tokens: int, sight: AttentionWindow) -> float:
    return pace.service(model, tokens, request.wanted, inf if sight.window is None else sight.window / 2)


def _trusted(model: StepTime) -> bool:
    return pace.known(model) and model.observations >= OBSERVATIONS
