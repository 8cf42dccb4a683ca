"""The work that waits at gateways, in replica-seconds: what the horizon must do, and what is too late. Pure."""

from math import fsum

from paceline_autoscaler.model.capacity import TokenCost, mix_of, output_of
from paceline_autoscaler.state import LearnedState
from paceline_autoscaler.types import ClassSignals, Observation


def queued_work(
    observation: Observation, classes: list[ClassSignals], unit: TokenCost, state: LearnedState, horizon_s: float
) -> float:
    """Replica-seconds queued at gateways, as much as the strictest TTFT, else the deadline, puts within the horizon."""
    queued = 0.0
    for cls in classes:
        prompt_tokens = mix_of([cls], None).prompt_tokens
        targets = [
            target.limit(prompt_tokens)
            for target in observation.goal.targets
            if target.cls is cls.name and target.metric == "ttft"
        ]
        slack = min(targets, default=cls.deadline_s)
        work = _work(cls, unit, state)
        queued += work * (1.0 if slack is None else min(1.0, horizon_s / max(slack, 1e-9)))
    return queued


def overdue_work(classes: list[ClassSignals], unit: TokenCost, state: LearnedState) -> float:
    """Replica-seconds queued at gateways for requests that are too late for their targets."""
    return fsum(_work(cls, unit, state) * cls.overdue_tokens / max(cls.queued_tokens, 1) for cls in classes)


def _work(cls: ClassSignals, unit: TokenCost, state: LearnedState) -> float:
    """Replica-seconds of all queued requests; prompts of unknown length count as the recent mean."""
    waiting = max(cls.queued, cls.held)
    tokens: float = cls.queued_tokens
    if waiting and not tokens and cls.flows and cls.flows[-1].arrivals:
        tokens = waiting * cls.flows[-1].prompt_tokens / cls.flows[-1].arrivals
    return unit.of(waiting, tokens, output_of(cls, state.output_tokens))
