"""`spec.classes`: the promise for each urgency of request."""

from typing import Annotated

from pydantic import Field

from paceline_core.objects.fields import ApiModel, Count, Days, Duration


class Quantiles(ApiModel):
    """A limit per quantile; each is its own target, with the rest (5 % for p95) as its error budget."""

    p50: Duration | None = None
    """Half of the requests stay below this. Example: 200ms."""
    p90: Duration | None = None
    """90 % of the requests stay below this. Example: 400ms."""
    p95: Duration | None = None
    """95 % of the requests stay below this. Example: 500ms."""
    p99: Duration | None = None
    """99 % of the requests stay below this. Example: 1s."""


class SLO(ApiModel):
    """What is promised. Shed, failed and cut requests miss every target."""

    ttft: Quantiles | None = None
    """Time to first token of a stream: from the request's last byte to the first content."""
    tpot: Quantiles | None = None
    """Time per output token after the first, averaged over one stream."""
    e2e: Quantiles | None = None
    """From the request's last byte to the answer's last byte; the one target of requests that do not stream.
    Default: ttft + tokens x tpot."""


class ServiceClass(ApiModel):
    """The promise and the limits of one class of requests."""

    slo: SLO = SLO()
    """Latency targets per quantile. Without any, the class is best effort."""
    availability: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of requests that must not fail or be shed, 0.5 to below 1. Default: 0.999."""
    slo_window: Days | None = None
    """Rolling window of the error budgets, in whole days. Default: 28d."""
    max_tokens: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    """Most output tokens a request may ask for, and the limit of one that asks for none.
    Default: 4096 (interactive), 8192 (batch), 16384 (offline)."""
    batch_window: Duration | None = None
    """How long an idle engine waits for company before it starts a step, at most 1s.
    Default: 3ms, 20ms, 40ms."""
    reserved_percent: Annotated[int, Field(ge=0, le=99)] | None = None
    """Share of a replica's KV pages and of its maxSeqs, in percent, that less urgent classes leave to this one. Not for
    offline, below which there is no class. Default: 0. Example: 25."""
    queue_limit: Count | None = None
    """Most requests waiting in the gateway; one more is refused with 503. Default: 256, 1024, 4096."""
    hold_timeout: Duration | None = None
    """Longest wait in the gateway for a worker, also while the service wakes from zero; then 504. From
    1ms to 24h. Default: 2m, 10m, 1h."""


class Classes(ApiModel):
    """One entry for each class that promises something; all three are served in any case."""

    interactive: ServiceClass = ServiceClass()
    """Somebody is waiting for each token. The class of requests that name none."""
    batch: ServiceClass = ServiceClass()
    """Waited for, but not token by token."""
    offline: ServiceClass = ServiceClass()
    """Whenever there is room."""
