"""`spec.runtime`: the program that serves the model, paceline's own or a foreign one."""

from typing import Annotated, Literal

from pydantic import Field

from paceline_core.objects.fields import ENV_PATTERN, LINE_PATTERN, ApiModel, ProcessText, Subdomain, bounded, keyed

RuntimeName = Literal["paceline", "vllm", "sglang", "trtllm", "tgi", "lmdeploy", "llamacpp", "ollama", "custom"]


class KeyReference(ApiModel):
    """One key of a Secret or ConfigMap in the service's namespace."""

    name: Subdomain
    """Name of the Secret or ConfigMap."""
    key: Annotated[str, Field(min_length=1, max_length=253)]
    """Key within it. Example: token."""
    optional: bool | None = None
    """Start without the variable if the key is missing. Default: false."""


class EnvSource(ApiModel):
    """Where a variable's value comes from; exactly one of the fields."""

    secret_key_ref: KeyReference | None = None
    """A key of a Secret. Not available in local mode."""
    config_map_key_ref: KeyReference | None = None
    """A key of a ConfigMap. Not available in local mode."""


class EnvVar(ApiModel):
    """One environment variable of the runtime's container."""

    name: Annotated[str, Field(pattern=ENV_PATTERN, max_length=128)]
    """Name of the variable. Example: HF_HOME."""
    value: ProcessText | None = None
    """Its value, taken literally. Exactly one of value and valueFrom."""
    value_from: EnvSource | None = None
    """Where its value comes from. Exactly one of value and valueFrom."""


class WorkloadRef(ApiModel):
    """An existing Deployment: the operator never writes to it; the autoscaler scales it unless the policy is advise."""

    name: Subdomain
    """Name of the Deployment in the service's namespace."""
    kind: Literal["Deployment"] | None = None
    """Kind of the workload. Default and only choice: Deployment."""


class Runtime(ApiModel):
    """What serves the model. Every field here is part of the service's revision."""

    name: RuntimeName = "paceline"
    """The serving program. Default: paceline, the built-in worker. `custom` speaks the OpenAI API and brings its own
    image, or names an existing Deployment."""
    image: Annotated[str, Field(pattern=LINE_PATTERN, min_length=1, max_length=512)] | None = None
    """Container image. Default: the install's image for this runtime; needed for custom."""
    args: Annotated[tuple[ProcessText, ...], bounded(64)] = ()
    """Arguments added after those that paceline gives, at most 64. Example: ["--enforce-eager"]."""
    env: Annotated[tuple[EnvVar, ...], bounded(64), keyed("name")] = ()
    """Environment variables added to the container, at most 64."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of the runtime's OpenAI API. Default: the runtime's own, 8000 for custom."""
    workload_ref: WorkloadRef | None = None
    """Serve from an existing Deployment of a foreign runtime instead of making one."""
