"""The data types of the operator's plans: desired and observed children, the input of a reconcile, its plan.

Plain data: a `ReconcileInput` goes into a plan, a `ReconcilePlan` comes out, and the shell executes it. A `Memo` only
saves time: a plan without it is the same. Times are seconds of a monotonic clock (`now`) and RFC 3339 UTC (`time`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline_core.auth import JwkSet
from paceline_core.kube.cluster import Event, Manifest, ObjectKey
from paceline_core.objects.model_names import LostName
from paceline_core.objects.resolved import ResolvedService
from paceline_core.objects.service import InferenceService
from paceline_core.objects.workload_status import ConditionValue

MANAGER = "paceline-operator"
REPLICAS_MANAGER = "paceline-replicas"
SCALER = "paceline-autoscaler"

ObjectRef = tuple[str, ObjectKey]
"""A child's kind and key."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The install's settings for every worker pod. `pull_secrets` are names; `endpoint` is the gateway's URL.

    `route_hosts` are the outside hosts that InferenceRoutes may name.
    """

    namespace: str
    image: str
    endpoint: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    log_level: str = "INFO"
    network_policy: bool = True
    metrics_namespaces: tuple[str, ...] = ()
    route_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Owner:
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PodProblem:
    """Why pods do not become ready: one CamelCase word, a sentence, the pool and the number of affected pods."""

    reason: str
    message: str
    pool: str = ""
    pods: int = 1


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """A Deployment's counts. `total` includes old and new pods, but not `terminating` ones.

    `shared`: another manager owns `.spec.replicas`, so that an apply may leave it out. `problem`: from the Deployment's
    own conditions (FailedCreate, ProgressDeadlineExceeded). `scaled_by`: the manager that set `desired`, if it is not
    ours.
    """

    desired: int
    total: int
    updated: int
    ready: int
    available: int
    terminating: int
    generation: int
    observed_generation: int
    shared: bool
    problem: PodProblem | None = None
    scaled_by: str = ""

    @property
    def observed(self) -> bool:
        return self.observed_generation >= self.generation

    @property
    def settled(self) -> bool:
        """Every replica runs the present template and is ready, and no other pod runs or terminates."""
        same = self.desired == self.total == self.updated == self.ready == self.available
        return self.observed and same and not self.terminating


@dataclass(frozen=True, slots=True)
class DesiredChild:
    """One desired object: a complete apply configuration, for a Deployment without its replicas."""

    kind: str
    key: ObjectKey
    body: Manifest

    @property
    def place(self) -> ObjectRef:
        return (self.kind, self.key)


@dataclass(frozen=True, slots=True)
class ObservedChild:
    """One observed object. `content` is JSON of all that a plan compares; `fingerprint` is its digest.

    `inputs` is the annotation of that name; only Deployments have `replicas`. `changed_by`: the manager of the last
    change, nothing if that is us or unknown. `additions`: what others added to a Deployment, each as manager and
    fields.
    """

    kind: str
    key: ObjectKey
    uid: str
    owner: Owner | None
    content: bytes
    fingerprint: str
    managed: bool
    inputs: str = ""
    pool: str = ""
    replicas: ReplicaCounts | None = None
    changed_by: str = ""
    additions: tuple[tuple[str, str], ...] = ()

    @property
    def place(self) -> ObjectRef:
        return (self.kind, self.key)


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """A service's spec as its status reports it; plain values, so that it is cheap to keep.

    `pools`: those that should run; `workload`: an unmanaged Deployment that serves instead. If a spec is not accepted,
    the revision, the model, the name and the bounds are those reported last.
    """

    generation: int
    revision: str
    pools: tuple[str, ...]
    emulated: bool
    accepted: ConditionValue
    fits: ConditionValue
    workload: str = ""
    model: str = ""
    served_name: str = ""
    min_replicas: int = 0
    max_replicas: int = 0


@dataclass(frozen=True, slots=True)
class Validation:
    """`service` and `resolved` are None if they cannot be read; `runs`: its children should be created."""

    accepted: ConditionValue
    fits: ConditionValue
    runs: bool
    service: InferenceService | None = None
    resolved: ResolvedService | None = None


@dataclass(frozen=True, slots=True)
class Converged:
    """Nothing had to be done for these inputs and these children (their fingerprints)."""

    inputs: tuple[object, ...]
    children: frozenset[tuple[ObjectRef, str]]
    facts: ServiceFacts


@dataclass(frozen=True, slots=True)
class Memo:
    """What to keep between two plans of one service: when it was first seen, when its status was last written.

    `validated` (the input and its verdict) is large, so it is kept only until the service is settled. `reported`: for
    each child its uid, its desired replicas and others' additions, as reported by Events; None before the first plan.
    """

    since: float
    written: float | None = None
    settled: Converged | None = None
    validated: tuple[tuple[object, ...], Validation] | None = None
    reported: Mapping[ObjectRef, tuple[str, int, tuple[tuple[str, str], ...]]] | None = None


@dataclass(frozen=True, slots=True)
class ReconcileInput:
    """The input of one service's reconcile. `service` is the object as the API server has it.

    `children`: every observed object that the service owns or that has a child's kind and name, managed or not.
    `shared`: the namespace's shared objects by kind. `profiles`: AcceleratorProfiles by name, None if they may not
    be read. `loss`: the object that wins the service's served name, if there is one (see `ModelNameIndex`).
    `bulk_starts`: how many services start at once, if they are many; then some reports are delayed.
    """

    service: Manifest
    children: Mapping[ObjectRef, ObservedChild]
    shared: Mapping[str, ObservedChild]
    settings: Settings
    now: float
    time: str
    profiles: Mapping[str, Manifest] | None = field(default_factory=dict)
    problems: tuple[PodProblem, ...] = ()
    loss: LostName | None = None
    bulk_starts: int = 0
    memo: Memo | None = None


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply. Without `uid` it creates and must not force; with it, it forces on that object alone."""

    child: DesiredChild
    force: bool
    reason: str
    replicas: int | None = None
    uid: str | None = None

    def manifest(self) -> Manifest:
        body = self.child.body
        if self.uid is not None:
            body = {**body, "metadata": {**body["metadata"], "uid": self.uid}}
        if self.replicas is not None:
            body = {**body, "spec": {"replicas": self.replicas, **body["spec"]}}
        return body


@dataclass(frozen=True, slots=True)
class HandOver:
    """Let `paceline-replicas` co-own a Deployment's replicas at their live value. No force: a Conflict means done."""

    key: ObjectKey
    uid: str
    replicas: int
    reason: str

    def manifest(self) -> Manifest:
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": self.key.name, "namespace": self.key.namespace, "uid": self.uid},
            "spec": {"replicas": self.replicas},
        }


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete this exact object, and no other of its name."""

    kind: str
    key: ObjectKey
    uid: str
    reason: str


Action = Apply | HandOver | Delete


@dataclass(frozen=True, slots=True)
class ReconcilePlan:
    """What to do, in this order: actions, status, events; then look again after `again_s`, if it is set.

    `status` is the operator's whole share, or None if the live one is right or must wait. `memo` goes into the next
    input of the same service.
    """

    actions: tuple[Action, ...] = ()
    status: Manifest | None = None
    events: tuple[Event, ...] = ()
    again_s: float | None = None
    memo: Memo | None = None


@dataclass(frozen=True, slots=True)
class NamespaceView:
    """The input for planning the shared objects of one namespace.

    `services`: InferenceServices there; `terminating`: the namespace is being deleted. `trust`: the JWK set of public
    keys and their issuers, or None while unknown. In the release namespace (`settings.namespace`) the trust ConfigMap
    always exists.
    """

    namespace: str
    services: int
    shared: Mapping[str, ObservedChild]
    settings: Settings
    trust: JwkSet | None
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The public half of a key pair whose private half this process holds."""

    kid: str
    public: str


@dataclass(frozen=True, slots=True)
class KeysView:
    """The input for planning the rotation of signing keys.

    `registry`: the ConfigMap `paceline-signing-keys` as the API server has it, None if it does not exist (a view must
    not be made before that is known). `held`: by signer (gateway, autoscaler), the pair whose private half this process
    holds; once its id is in `delivered` and active, a new pair replaces it. `delivered`: ids of keys that this process
    has written into their Secrets. `wall` is in Unix seconds.
    """

    registry: Manifest | None
    held: Mapping[str, SigningKey]
    delivered: frozenset[str]
    namespace: str
    now: float
    wall: float
    rotate_every_s: float = 30 * 86400.0
    memo: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deliver:
    """Write the private half of this key into the Secret `paceline-signing-key-<signer>`, key `signing.key`."""

    signer: str
    kid: str


@dataclass(frozen=True, slots=True)
class KeysPlan:
    """At most one step: a registry to write (guarded by its resourceVersion), or private halves to deliver.

    `trust` is what every trust ConfigMap must contain now; `memo` goes into the next KeysView.
    """

    registry: Apply | None
    deliver: tuple[Deliver, ...]
    trust: JwkSet
    memo: Mapping[str, float]
    again_s: float | None
