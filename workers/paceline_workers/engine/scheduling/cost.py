"""What the step-time model says about a request and about a step: predicted seconds, and how long a chunk may be.

A step must not take longer than the time per output token promised to the decodes in it, so prefill tokens are added
only while the predicted step, and the share by which predictions are usually off, keep within that: a promise kept in
the mean alone is broken half of the time. A model without a prefill coefficient knows nothing: then nothing is
capped, and service is counted in tokens, which orders requests as well.
"""

from math import inf, sqrt

from paceline_core.wire import StepTime

UNKNOWN = StepTime(base=0.0, prefill=0.0)


def known(model: StepTime) -> bool:
    """Whether predictions mean anything."""
    return model.prefill > 0


def service(model: StepTime, tokens: int, length: int, seen: float = inf) -> float:
    """Seconds to compute the last `tokens` tokens of `length` in a step of their own; none attends to over `seen`."""
    if not known(model):
        return float(tokens)
    return model.seconds(prefill_tokens=tokens, sequences=0, kv_tokens=0, context=min(length - (tokens - 1) / 2, seen))


def spare(model: StepTime, promise: float, sequences: int, kv_tokens: int, margin: float = 0.0) -> float:
    """Seconds that prefill may add to a step with these decodes, if steps take up to `margin` longer than predicted."""
    if not sequences or not known(model):
        return inf
    return max(promise / (1 + margin) - model.seconds(prefill_tokens=0, sequences=sequences, kv_tokens=kv_tokens), 0.0)


def seconds(model: StepTime, start: int, count: int, seen: float = inf) -> float:
    """What a chunk of `count` tokens from `start` adds to a step; none of them attends to over `seen`."""
    return count * (model.prefill + model.context * min(start + (count + 1) / 2, seen))


def tokens(model: StepTime, start: int, budget: float, seen: float = inf) -> int | None:
    """The longest chunk from `start` within `budget` seconds (None: any): the root of `seconds(...) = budget`."""
    if budget == inf:
        return None
    linear = model.prefill + model.context * (start + 0.5)
    if not model.context:
        return int(budget / linear)
    root = int((sqrt(linear * linear + 2 * model.context * budget) - linear) / model.context)
    return max(root, int(budget / (model.prefill + model.context * seen)))
