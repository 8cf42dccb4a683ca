"""The common parts of every object: its metadata, its conditions, its key."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from paceline_core.objects.fields import ApiModel, Subdomain, Time, Total, bounded, keyed

GROUP: Final = "paceline.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "paceline.dev/v1alpha1"

INFERENCE_SERVICE: Final = "InferenceService"
TENANT: Final = "Tenant"
INFERENCE_ROUTE: Final = "InferenceRoute"
ACCELERATOR_PROFILE: Final = "AcceleratorProfile"

ConditionStatus = Literal["True", "False", "Unknown"]


class ObjectMeta(ApiModel):
    """Kubernetes's own metadata; what paceline does not read is kept as it came."""

    name: Subdomain
    """The object's name, unique for its kind within its namespace."""
    namespace: Subdomain | None = None
    """The object's namespace; `default` where none is written."""
    labels: dict[str, str] = {}
    """Labels, for selection."""
    annotations: dict[str, str] = {}
    """Annotations; `paceline.dev/pause-until` and `paceline.dev/upgrade` mean something here."""
    uid: str = ""
    """Unique for the object's whole life; a new object of the same name has another."""
    resource_version: str = ""
    """Changes with each write; opaque."""
    generation: int = 0
    """Counts changes of the spec."""
    creation_timestamp: str | None = None
    """When the object was made, RFC 3339 UTC; the older object wins a contested model name."""
    deletion_timestamp: str | None = None
    """When deletion was asked for."""
    deletion_grace_period_seconds: int | None = None
    """Kubernetes's own."""
    generate_name: str | None = None
    """Kubernetes's own."""
    finalizers: tuple[str, ...] = ()
    """Kubernetes's own; paceline sets none."""
    owner_references: tuple[dict[str, Any], ...] = ()
    """Kubernetes's own."""
    managed_fields: tuple[dict[str, Any], ...] = ()
    """Kubernetes's own."""
    self_link: str | None = None
    """Kubernetes's own."""


class Condition(ApiModel):
    """One aspect of an object's state, in Kubernetes's usual form."""

    type: Annotated[str, Field(min_length=1, max_length=64)]
    """The aspect, like Ready, SLOMet or MetricsFresh."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Annotated[str, Field(min_length=1, max_length=128)]
    """One word in CamelCase, for machines."""
    message: Annotated[str, Field(max_length=4096)]
    """One sentence for people: what is so, and what would change it."""
    last_transition_time: Time
    """When `status` last changed, RFC 3339 UTC."""
    observed_generation: Total | None = None
    """The generation of the spec that this speaks of."""


class Object(ApiModel):
    """One of the four kinds; `kind`, `spec` and `status` are the subclass's."""

    api_version: Literal["paceline.dev/v1alpha1"] = API_VERSION
    """Always paceline.dev/v1alpha1."""
    metadata: ObjectMeta
    """Kubernetes's object metadata."""

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """The object's namespace; `default` if none is written, as in kubectl."""
        return self.metadata.namespace or "default"

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


Conditions = Annotated[tuple[Condition, ...], bounded(16), keyed("type")]
