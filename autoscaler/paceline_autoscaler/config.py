"""The autoscaler's configuration file. Nothing in it reloads live; what changes while it runs are the objects."""

from pathlib import Path

from pydantic import Field

from paceline_core.config import Config, Listen


class PrometheusConfig(Config):
    """The Prometheus that scrapes the gateways. Times in seconds."""

    url: str = Field(pattern=r"^https?://")
    deadline_s: float = Field(default=2.0, gt=0)
    """Longest wait for one answer."""
    stale_after_s: float = Field(default=30.0, gt=0)
    """An older newest sample is not believed; three scrape intervals are a good choice."""


class AutoscalerConfig(Config):
    """Everything the autoscaler needs to know."""

    name: str = "autoscaler"
    """Who holds the lease; unique among replicas of the autoscaler."""
    listen: Listen = Listen(port=8090)
    """Metrics, health and decisions."""
    socket: Path
    """The local supervisor's Unix socket."""
    hop_key: Path
    """Private key of this autoscaler's hop tokens: a file of 32 raw bytes."""
    gateways: tuple[str, ...] = Field(min_length=1)
    """Admin addresses `host:port` of the gateways; a DNS name stands for all of its addresses, looked up repeatedly."""
    prometheus: PrometheusConfig | None = None
    """Where attainment is read. None: own scrapes of the gateways."""
    interval_s: float = Field(default=5.0, gt=0)
    """Between two passes; a held request starts one at once."""
    ledger: Path | None = None
    """File of decisions, one JSON object a line. None: kept in memory alone."""
