"""Decides which tokens of which requests the next step computes, in which pages. Pure: no clock, no I/O, no torch."""

from paceline_workers.engine.scheduling.plan import NO_TOKEN, Chunk, Counters, SampledToken, SchedulerLimits, StepPlan
from paceline_workers.engine.scheduling.request import Request, RequestStatus
from paceline_workers.engine.scheduling.scheduler import Rejection, Scheduler
from paceline_workers.engine.scheduling.step_builder import WeightedShares

__all__ = [
    "NO_TOKEN",
    "Chunk",
    "Counters",
    "Rejection",
    "Request",
    "RequestStatus",
    "SampledToken",
    "Scheduler",
    "SchedulerLimits",
    "StepPlan",
    "WeightedShares",
]  # fmt: skip
