"""A worker's backlog in seconds: how long its engine is predicted to compute the prompts that a class has queued. Pure.

Each step gives prefill what its running requests leave of the token budget, and costs the base and their decodes as
well. Classes add up: the sum over them is when the queue is empty if nothing more comes.
Known hole: a promised TPOT makes chunks smaller, so a worker that keeps one to its decodes takes longer than this.
"""

from collections.abc import Mapping

from paceline_core.registry import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.messages import Heartbeat


def backlog_seconds(beat: Heartbeat, model: StepTime, step_tokens: int) -> Mapping[RequestClass, float]:
    """Seconds by class; empty while nothing is known of the engine's speed."""
    if max(model.base, model.prefill) <= 0:
        return {}
    kv_tokens = beat.recent[-1].kv_tokens if beat.recent else 0
    decodes = model.seconds(prefill_tokens=0, sequences=beat.running, kv_tokens=kv_tokens)
    chunk = max(step_tokens - beat.running, 1)
    return {
        name: _prefill(model, tokens, beat.waiting.get(name, 0)) + decodes * -(-tokens // chunk)
        for name, tokens in beat.queued_tokens.items()
    }


def _prefill(model: StepTime, tokens: int, requests: int) -> float:
    """The prompts' own share; a token attends, in the mean, to half of its prompt."""
    context = tokens / max(requests, 1) / 2
    return tokens * (model.prefill + model.context * context)
