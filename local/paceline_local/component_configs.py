"""The components of a local run with their configuration files: gateway, autoscaler, and Prometheus if it is on PATH.

Prometheus scrapes every part every two seconds and keeps its data in the run's directory. Without it the autoscaler
reads the parts itself; the start-up lines say which.
"""

import json
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from paceline_core.config import FILE_VARIABLE, LEVEL_VARIABLE
from paceline_core.kube.cluster import ServiceEndpoints
from paceline_core.launch import Probe
from paceline_local import HOST, NAMESPACE
from paceline_local.context import RunContext
from paceline_local.process import ComponentSpec
from paceline_local.rundir import write_private

GATEWAY, AUTOSCALER, PROMETHEUS = "gateway", "autoscaler", "prometheus"
GATEWAY_DRAIN_S = 30.0
MARGIN_S = 5.0
AUTOSCALER_GRACE_S = 10.0
INTERVAL_S = 1.0
STALE_AFTER_S = 10.0
SCRAPE = "2s"


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of the parts. `prometheus` is None when there is none."""

    public: int
    gateway: int
    autoscaler: int
    prometheus: int | None


def components(site: RunContext, ports: Ports) -> list[ComponentSpec]:
    specs = [gateway(site, ports), autoscaler(site, ports)]
    if ports.prometheus and (executable := shutil.which(PROMETHEUS)):
        scraped = [(GATEWAY, ports.gateway), (AUTOSCALER, ports.autoscaler)]
        specs.append(prometheus(executable, site, ports.prometheus, scraped))
    return specs


def gateway(site: RunContext, ports: Ports) -> ComponentSpec:
    config = {
        "name": GATEWAY,
        "listen": {"host": HOST, "port": ports.public},
        "admin": {"host": HOST, "port": ports.gateway},
        "cluster": {"socket": str(site.run.socket)},
        "namespace": NAMESPACE,
        "signing_key": str(site.run.signing_key(GATEWAY)),
        "trust_bundle": str(site.run.trust_bundle),
        "drain_s": GATEWAY_DRAIN_S,
        "cors_origins": list(site.cors_origins),
    }
    return _part(site, GATEWAY, config, ports.gateway, GATEWAY_DRAIN_S + MARGIN_S)


def autoscaler(site: RunContext, ports: Ports) -> ComponentSpec:
    """The autoscaler, reading attainment from Prometheus if there is one."""
    source = {"url": f"http://{HOST}:{ports.prometheus}", "stale_after_s": STALE_AFTER_S}
    config = {
        "name": AUTOSCALER,
        "listen": {"host": HOST, "port": ports.autoscaler},
        "cluster": {"socket": str(site.run.socket)},
        "namespace": NAMESPACE,
        "signing_key": str(site.run.signing_key(AUTOSCALER)),
        "gateways": [f"{HOST}:{ports.gateway}"],
        "prometheus": source if ports.prometheus else None,
        "interval_s": INTERVAL_S,
        "ledger_dir": str(site.run.root / "ledger"),
    }
    return _part(site, AUTOSCALER, config, ports.autoscaler, AUTOSCALER_GRACE_S)


def _part(site: RunContext, name: str, config: dict[str, Any], port: int, grace_s: float) -> ComponentSpec:
    path = site.run.home(name) / f"{name}.yaml"
    write_private(path, yaml.safe_dump(config, sort_keys=False))
    return ComponentSpec(
        name=name,
        argv=(sys.executable, "-m", f"paceline_{name}.main"),
        env={FILE_VARIABLE: str(path), LEVEL_VARIABLE: site.log_level},
        port=port,
        ready=Probe("/readyz", period_s=1, timeout_s=2, failures=60),
        grace_s=grace_s,
    )


def prometheus(executable: str, site: RunContext, port: int, parts: Iterable[tuple[str, int]]) -> ComponentSpec:
    """Prometheus on `port`: fixed targets for `parts`, as (job, port); a file for workers, which come and go."""
    home = site.run.home(PROMETHEUS)
    write_scrape_targets(site, [])
    jobs = [{"job_name": job, "static_configs": [{"targets": [f"{HOST}:{at}"]}]} for job, at in parts]
    workers = {"job_name": "worker", "file_sd_configs": [{"files": [str(home / "workers.json")]}]}
    timing = {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": SCRAPE}
    config = {"global": timing, "scrape_configs": [*jobs, workers]}
    write_private(home / "prometheus.yml", yaml.safe_dump(config, sort_keys=False))
    return ComponentSpec(
        name=PROMETHEUS,
        argv=(
            executable,
            f"--config.file={home / 'prometheus.yml'}",
            f"--storage.tsdb.path={home / 'data'}",
            "--storage.tsdb.retention.time=2h",
            "--storage.tsdb.retention.size=256MB",
            f"--web.listen-address={HOST}:{port}",
        ),
        env={},
        port=port,
        ready=Probe("/-/ready", period_s=1, timeout_s=1, failures=30),
        grace_s=10.0,
    )


def write_scrape_targets(site: RunContext, services: Iterable[ServiceEndpoints]) -> None:
    """Write the list of workers for Prometheus, which notices the file's change itself."""
    rows = [
        {"targets": [f"{endpoint.host}:{endpoint.metrics_port}"], "labels": {"worker": endpoint.name}}
        for item in services
        for endpoint in item.endpoints
    ]
    path = site.run.home(PROMETHEUS) / "workers.json"
    text = json.dumps(rows)
    if not path.exists() or path.read_text() != text:
        write_private(path, text)
