"""`spec.scaling`: what decides the number of replicas, and within which cost."""

from typing import Annotated, Literal

from pydantic import Field

from paceline_core.objects.fields import ApiModel, Duration, Money

Policy = Literal["slo", "advise", "queue", "concurrency", "kv", "fixed", "external"]


class ScaleToZero(ApiModel):
    """Let an idle service go to zero replicas; the next request is held while it wakes."""

    after: Duration | None = None
    """Idle time before the last replica goes, from 1s to 168h. Default: 15m."""


class Budget(ApiModel):
    """What scaling may use at most; the promise yields to it, and the status says so."""

    gpus: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """Most GPUs over all pools. Default: no limit."""
    dollars_per_hour: Money | None = None
    """Highest price of all replicas together, in US dollars an hour; replicas.min runs even where it cannot pay.
    Default: no limit. Example: "40.00"."""


class Scaling(ApiModel):
    """What decides the number of replicas."""

    policy: Policy = "slo"
    """slo keeps the promise at least cost (default); advise only says what slo would do; queue, concurrency and kv
    follow one signal; fixed keeps min; external leaves the Deployments to an HPA or KEDA."""
    scale_to_zero: ScaleToZero | None = None
    """Go to zero replicas when idle; every pool's min must be 0. Default: never."""
    budget: Budget | None = None
    """What scaling may use at most. Default: no limit."""
