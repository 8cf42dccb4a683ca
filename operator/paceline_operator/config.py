"""The operator's configuration file. It is not reloaded; only objects change while the operator runs."""

from typing import Literal

from pydantic import Field

from paceline_core.config import Config, Listen
from paceline_core.kube.connect import ClusterConfig
from paceline_operator.plans.types import Settings


class WorkerPodConfig(Config):
    image: str = Field(min_length=1)
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    """Names of Secrets in the services' namespaces."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    network_policy: bool = True
    """Restrict access to workers to paceline and the metrics namespaces."""
    metrics_namespaces: tuple[str, ...] = ()
    """Where Prometheus runs."""


class LeaseConfig(Config):
    """Leader election. Times in seconds."""

    ttl_s: float = Field(default=15.0, ge=3.0)
    """A leader that has not renewed its lease for this long is replaced; writing stops at two thirds of it."""


class KeysConfig(Config):
    rotation_days: float = Field(default=30.0, ge=1.0)


class HealthConfig(Config):
    """When liveness fails. Times in seconds."""

    watch_silence_s: float = Field(default=180.0, gt=0)
    """A healthy watch receives something each minute, and restarts after 70 to 90 s of silence."""
    queue_wait_s: float = Field(default=60.0, gt=0)
    """A key that waits this long while workers are idle is stuck."""


class OperatorConfig(Config):
    name: str = ""
    """The lease's holder; unique among replicas of the operator. Empty: the host's name, in a cluster the pod's."""
    namespace: str = "paceline-system"
    """Where paceline is installed: its Lease, its signing keys."""
    cluster: ClusterConfig = ClusterConfig()
    listen: Listen = Listen(port=8070)
    """Health and metrics."""
    endpoint: str = Field(pattern=r"^https?://")
    """URL of the gateway, as shown in the status of services."""
    worker: WorkerPodConfig
    route_hosts: tuple[str, ...] = ()
    """Outside hosts that InferenceRoutes may name."""
    requests_per_second: float = Field(default=50.0, gt=0)
    """Average rate of write requests to the API server."""
    burst: int = Field(default=100, ge=1)
    """Write requests at once."""
    workers: int = Field(default=16, ge=1, le=128)
    """Concurrent passes; two more are reserved for deletions and edits."""
    resync_s: float = Field(default=600.0, gt=0)
    """Every object is reconciled at this interval, whatever the watches report."""
    lease: LeaseConfig = LeaseConfig()
    keys: KeysConfig = KeysConfig()
    health: HealthConfig = HealthConfig()

    def settings(self) -> Settings:
        worker = self.worker
        return Settings(
            namespace=self.namespace,
            image=worker.image,
            endpoint=self.endpoint,
            pull_policy=worker.pull_policy,
            pull_secrets=worker.pull_secrets,
            log_level=worker.log_level,
            network_policy=worker.network_policy,
            metrics_namespaces=worker.metrics_namespaces,
            route_hosts=self.route_hosts,
        )
