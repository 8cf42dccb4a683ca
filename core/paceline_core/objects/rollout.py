"""`spec.rollout`: how a new revision replaces the old one without cutting a stream."""

from typing import Annotated, Literal

from pydantic import Field

from paceline_core.objects.fields import AS_SET, ApiModel, Duration, bounded

Strategy = Literal["rolling", "canary"]
GPUs = Literal["surge", "inPlace"]
AbortSignal = Literal["burn", "errors", "restarts"]

Percent = Annotated[int, Field(ge=1, le=100)]


class Canary(ApiModel):
    """Give the new revision a growing share of traffic, and go back if it does worse."""

    steps: Annotated[tuple[Percent, ...], bounded(10), AS_SET] = ()
    """Shares of traffic in percent, ascending. Default: [5, 25, 50, 100]."""
    window: Duration | None = None
    """How long each step is watched, from 1s to 24h. Default: 5m."""
    abort_on: Annotated[tuple[AbortSignal, ...], bounded(3), AS_SET] = ()
    """What ends the canary: burn (its SLO burn is above the old one's), errors (its failures are), restarts.
    Default: all three."""


class Rollout(ApiModel):
    """How a new revision replaces the old one."""

    strategy: Strategy = "rolling"
    """rolling replaces replica by replica (default); canary shifts traffic by steps and watches."""
    gpus: GPUs = "surge"
    """surge starts a new replica before an old one goes (default); inPlace stops first, where no GPU is spare."""
    canary: Canary | None = None
    """Settings of strategy canary."""
    drain_timeout: Duration | None = None
    """Longest time a leaving replica may take to finish its streams, from 1s to 24h. Default: 5m."""
