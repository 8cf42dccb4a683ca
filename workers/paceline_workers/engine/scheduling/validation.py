"""Why a request is not queued, in words for its client; "" if it is. Checked once, before any step.

A request that can never run, one that finds no room now and one that would be late end differently: clients should give
up, retry later, or allow more time, and a gateway must count none of them as a failing engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling.beams import too_wide
from paceline_workers.engine.scheduling.plan import SchedulerLimits
from paceline_workers.engine.scheduling.request import Request


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a request is not queued, and how its only frame ends (`Tokens.finish`)."""

    message: str
    finish: Literal["refused", "queue_full", "abort", "error"] = "refused"


def invalid(request: Request, limits: SchedulerLimits) -> str:
    """Nothing to compute, nothing to produce, or ids that the model has no embedding for."""
    if not request.prompt_len or request.max_tokens < 0:
        return "the prompt must have at least one token, and max_tokens 0 or more"
    if min(request.tokens) < 0 or max(request.tokens) >= limits.vocab_size:
        return f"the prompt holds a token id outside this model's vocabulary of {limits.vocab_size}"
    return ""


def too_large(request: Request, limits: SchedulerLimits, memory: KVCacheManager) -> str:
    """More than the model's context, or than all pages: it would wait forever."""
    length = request.prompt_len
    if length + min(request.max_tokens, 1) > limits.max_model_len:
        return f"the prompt has {length} tokens; this model takes fewer than {limits.max_model_len}"
    if not memory.fits_alone(min(length + request.max_tokens, limits.max_model_len)):
        return f"the request needs more KV memory than there is ({memory.pool.total * limits.page_tokens} tokens)"
    return too_wide(request, limits, memory)


def queue_full(name: RequestClass, waiting: Mapping[RequestClass, int], limits: SchedulerLimits) -> str:
    """As many requests wait as may, of all classes or of its own."""
    if sum(waiting.values()) >= limits.max_waiting:
        return f"the engine's queue is full ({limits.max_waiting} requests)"
    limit = limits.class_waiting.get(name, limits.max_waiting)
    if waiting[name] >= limit:
        return f"the engine's queue for class {name} is full ({limit} requests)"
    return ""
