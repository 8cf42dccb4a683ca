"""Predicted seconds of requests and steps, by the step-time model, and how long a chunk may be.

A step must not take longer than the time per output token that the decodes in it are promised. So prefill tokens are
added only while the predicted step, widened by the share by which predictions are usually off, keeps within that: a
target kept in the mean alone is broken half of the time. A model without a prefill coefficient predicts nothing: then
nothing is capped, and service is counted in tokens, which orders requests as well.

`visible` bounds the tokens that one token attends to.
"""

from math import inf, sqrt

from paceline_core.wire import StepTime
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling.fair_share import ClassPolicy
from paceline_workers.engine.scheduling.request import Request

UNKNOWN = StepTime(base=0.0, prefill=0.0)


class CostEstimator:
    """The step-time `model` applied to requests. Predictions are usually off by a share of `margin`."""

    def __init__(self, memory: KVCacheManager, policy: ClassPolicy) -> None:
        self.model: StepTime = UNKNOWN
        self.margin = 0.0
        self._memory = memory
        self._policy = policy

    def refresh(self, request: Request) -> None:
        """Look up what a waiting request has cached by now."""
        request.uncached = self._memory.uncached(request)
        request.service = self.service(request, request.uncached)

    def service(self, request: Request, tokens: int) -> float:
        """Its service in the response ratio, if so many tokens are to be computed."""
        visible = self._memory.attention_window.visible(inf)
        return self._policy.service(service(self.model, tokens, request.wanted, visible))


def known(model: StepTime) -> bool:
    """Whether predictions mean anything."""
    return model.prefill > 0


def service(model: StepTime, tokens: int, length: int, visible: float = inf) -> float:
    """Seconds to compute the last `tokens` tokens of `length` in a step of their own."""
    if not known(model):
        return float(tokens)
    context = min(length - (tokens - 1) / 2, visible)
    return model.seconds(prefill_tokens=tokens, sequences=0, kv_tokens=0, context=context)


def spare(model: StepTime, target: float, sequences: int, kv_tokens: int, margin: float = 0.0) -> float:
    """Seconds that prefill may add to a step with these decodes, if steps take up to `margin` longer than predicted."""
    if not sequences or not known(model):
        return inf
    return max(target / (1 + margin) - model.seconds(prefill_tokens=0, sequences=sequences, kv_tokens=kv_tokens), 0.0)


def seconds(model: StepTime, start: int, count: int, visible: float = inf) -> float:
    """The seconds that a chunk of `count` tokens from `start` adds to a step."""
    return count * (model.prefill + model.context * min(start + (count + 1) / 2, visible))


def tokens(model: StepTime, start: int, budget: float, visible: float = inf) -> int | None:
    """The longest chunk from `start` within `budget` seconds (None: any): the root of `seconds(...) = budget`."""
    if budget == inf:
        return None
    linear = model.prefill + model.context * (start + 0.5)
    if not model.context:
        return int(budget / linear)
    root = int((sqrt(linear * linear + 2 * model.context * budget) - linear) / model.context)
    return max(root, int(budget / (model.prefill + model.context * visible)))
