"""InferenceService: one model, the latency it promises, and where it may run."""

from typing import Annotated, Literal

from paceline_core.objects.fields import ApiModel, bounded, keyed
from paceline_core.objects.metadata import Object
from paceline_core.objects.service_policy import Classes, Pool, Rollout, Scaling, Telemetry
from paceline_core.objects.service_runtime import Engine, Filter, Model, Runtime
from paceline_core.objects.status import ServiceStatus


class ServiceSpec(ApiModel):
    """What is wished."""

    model: Model
    """The model to serve."""
    runtime: Runtime = Runtime()
    """The program that serves it. Default: paceline's own worker."""
    engine: Engine = Engine()
    """Settings of the worker's engine."""
    classes: Classes = Classes()
    """The promise for each class of requests: interactive, batch, offline."""
    pools: Annotated[tuple[Pool, ...], bounded(8, least=1), keyed("name")]
    """Sets of equal replicas, 1 to 8; each becomes the Deployment <service>-<pool>.
    Example: [{name: main, accelerator: cpu}]."""
    scaling: Scaling = Scaling()
    """What decides the number of replicas, and within which cost."""
    rollout: Rollout = Rollout()
    """How a new revision replaces the old one."""
    filters: Annotated[tuple[Filter, ...], bounded(16), keyed("name", "stage")] = ()
    """Checks and changes on prompts and answers, in order, at most 16."""
    telemetry: Telemetry = Telemetry()
    """Traces and what may be logged."""


class InferenceService(Object):
    """One model, the latency it promises, and where it may run. The name has at most 40 characters."""

    kind: Literal["InferenceService"] = "InferenceService"
    """Always InferenceService."""
    spec: ServiceSpec
    """What is wished. Example: {model: {source: "builtin://demo"}, pools: [{name: main, accelerator: cpu}]}."""
    status: ServiceStatus = ServiceStatus()
    """What is so; written by operator and autoscaler."""
