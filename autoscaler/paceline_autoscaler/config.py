"""The autoscaler's configuration file. It is not read again; what changes while it runs are the objects and the key."""

import socket
from pathlib import Path

from pydantic import Field

from paceline_core.config import Config, Listen
from paceline_core.kube.connect import ClusterConfig


class PrometheusConfig(Config):
    """The Prometheus that scrapes the gateways. Times in seconds."""

    url: str = Field(pattern=r"^https?://")
    deadline_s: float = Field(default=2.0, gt=0)
    """Longest wait for one answer."""
    stale_after_s: float = Field(default=30.0, gt=0)
    """An older newest sample is not believed; three scrape intervals are a good choice."""


class AutoscalerConfig(Config):
    """Everything the autoscaler needs to know."""

    name: str = Field(default_factory=socket.gethostname, min_length=1)
    """Who holds the lease; unique among autoscalers. Left out: the host's name, which in a pod is the pod's."""
    listen: Listen = Listen(port=8090)
    """Metrics, health and decisions."""
    cluster: ClusterConfig = ClusterConfig()
    """What plays the API server: the local supervisor's socket, a kubeconfig, or by default the pod's own cluster."""
    namespace: str = "paceline-system"
    """Where the lease is kept."""
    signing_key: Path
    """Private key of this autoscaler's internal tokens: a file of 32 raw bytes, read again when it changes."""
    gateways: tuple[str, ...] = Field(min_length=1)
    """Admin addresses `host:port` of the gateways; a DNS name stands for all of its addresses, looked up repeatedly."""
    prometheus: PrometheusConfig | None = None
    """Where attainment is read. None: own scrapes of the gateways."""
    interval_s: float = Field(default=5.0, gt=0, le=10)
    """Between two passes; a held request starts one at once."""
    ledger: Path | None = None
    """File of decisions, one JSON object a line. None: kept in memory alone."""
