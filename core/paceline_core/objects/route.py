"""InferenceRoute: one public model name, and the services or outside endpoints that answer it."""

from typing import Annotated, Literal

from pydantic import Field

from paceline_core.objects.fields import (
    AS_SET,
    HEADER_PATTERN,
    ApiModel,
    Duration,
    Label,
    ModelName,
    ServiceName,
    Total,
    bounded,
    keyed,
)
from paceline_core.objects.metadata import Conditions, Object

When = Literal["always", "overflow", "failure"]
Escalation = Literal["error", "refusal", "length", "filter"]
Pressure = Literal["overload", "burn"]


class Backend(ApiModel):
    """Who answers: a service of this namespace, or an outside endpoint."""

    service: ServiceName | None = None
    """InferenceService in the route's namespace. Exactly one of service and url."""
    url: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Base URL of an OpenAI-compatible API; its host must be in the install's allowlist. Not acted on yet: such a
    backend takes no requests. Example: https://api.example.com/v1."""
    model: ModelName | None = None
    """Model name sent to this backend. Default: the service's own; for a url, the route's model."""
    region: Label | None = None
    """Where it is; the gateway prefers its own region among equals. Not acted on yet. Example: eu-west."""
    weight: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Share of the traffic among backends with the same `when`; 0 takes none. Default: 1."""
    when: When = "always"
    """always (default), overflow (the others cannot keep the promise), or failure (no other is ready)."""


class HeaderMatch(ApiModel):
    """A header with exactly this value."""

    name: Annotated[str, Field(pattern=HEADER_PATTERN, min_length=1, max_length=64)]
    """Name of the header, compared without case. Example: x-team."""
    value: Annotated[str, Field(max_length=256)]
    """Its value, compared exactly."""


class Match(ApiModel):
    """All that is written here must hold; the route applies if any of its matches does."""

    headers: Annotated[tuple[HeaderMatch, ...], bounded(8), keyed("name")] = ()
    """Headers that the request must carry, at most 8."""
    tenants: Annotated[tuple[Label, ...], bounded(64), AS_SET] = ()
    """Tenants, any of which must have sent the request, at most 64."""


class Retry(ApiModel):
    """Dispatch again before the first byte. After it, streams are resumed, not retried."""

    attempts: Annotated[int, Field(ge=1, le=5)] | None = None
    """Dispatches of one request in all, beside those after a worker's death; the last of them goes to the route's next
    destination if that can take it. 1: no request is sent twice. Default: 2, or 3 where the route has more than one."""
    budget: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Retries as a share of all requests over ten seconds; beyond it failures are passed on. Default: 0.2."""


class Cascade(ApiModel):
    """Ask a small model first; ask the backends only where its answer does not do."""

    first: ModelName
    """Public name of the small model. Example: llama-3.1-8b."""
    escalate_on: Annotated[tuple[Escalation, ...], bounded(4), AS_SET] = ()
    """What sends a request on: error, refusal, length (it hit the limit), filter (an output filter refused).
    Default: error and refusal."""


class Degrade(ApiModel):
    """Serve less rather than refuse, while the promise cannot be kept; each such answer says so in
    `x-paceline-degraded`. Only requests of classes with a target get less."""

    trigger: Pressure = "overload"
    """overload (the predicted wait of an interactive request breaks its ttft; default) or burn (an error budget burns
    above 1 by the verdicts of a gateway's last minute)."""
    model: ModelName | None = None
    """Public name of a smaller model that answers instead, while it keeps its own promise and the tenant may use it."""
    max_tokens: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    """Cap on output tokens meanwhile; longer answers end with finish_reason length. Example: 256."""
    after: Duration | None = None
    """How long the pressure must last first; it ends once the promise was kept for 10s, and later if it returns soon.
    Default: 10s."""


class RouteSpec(ApiModel):
    """What is wished."""

    model: ModelName
    """Public model name that clients use; of several objects that claim it the oldest one's namespace has it.
    Example: llama-3.1-8b."""
    backends: Annotated[tuple[Backend, ...], bounded(16, least=1)]
    """Who answers, 1 to 16."""
    matches: Annotated[tuple[Match, ...], bounded(16)] = ()
    """Requests that the route applies to; none means all, at most 16."""
    fallback: Annotated[tuple[ModelName, ...], bounded(8), AS_SET] = ()
    """Public model names tried in order when no backend can answer, at most 8."""
    retry: Retry = Retry()
    """Dispatch again before the first byte."""
    cascade: Cascade | None = None
    """Ask a small model first. Not acted on yet: the backends answer every request. Default: no."""
    degrade: Degrade | None = None
    """Serve less rather than refuse while the promise cannot be kept. Default: no."""


class RouteStatus(ApiModel):
    """What is so. Written by the operator."""

    observed_generation: Total | None = None
    """Generation of the spec that the operator judged."""
    conditions: Conditions = ()
    """Accepted: false with NameTaken if another object answers to the model name."""


class InferenceRoute(Object):
    """One public model name, and which services or outside endpoints answer for it."""

    kind: Literal["InferenceRoute"] = "InferenceRoute"
    """Always InferenceRoute."""
    spec: RouteSpec
    """What is wished."""
    status: RouteStatus = RouteStatus()
    """What is so; written by the operator."""
