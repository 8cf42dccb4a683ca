"""Which tokens of which requests the next step computes, and in which pages. Pure: no clock, no I/O, no torch."""

from paceline_workers.engine.scheduling.plan import NO_TOKEN, Chunk, Counters, Limits, Plan, Sample
from paceline_workers.engine.scheduling.policy import Policy, WeightedShares
from paceline_workers.engine.scheduling.refusal import Refusal
from paceline_workers.engine.scheduling.request import Request, State
from paceline_workers.engine.scheduling.scheduler import Scheduler

__all__ = [
    "NO_TOKEN", "Chunk", "Counters", "Limits", "Plan", "Policy", "Refusal", "Request", "Sample", "Scheduler", "State",
    "WeightedShares",
]  # fmt: skip
