"""The Prometheus of a run: the one found on PATH, scraping every part every two seconds, data in the run's directory.

Without one the autoscaler reads the parts itself; the start-up lines say which.
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import yaml

from paceline_core.kube.cluster import ServiceEndpoints
from paceline_core.launch import Probe
from paceline_local import HOST
from paceline_local.context import RunContext
from paceline_local.process import ComponentSpec
from paceline_local.rundir import write_private

NAME = "prometheus"
SCRAPE = "2s"
RETENTION = "2h"
RETENTION_SIZE = "256MB"


def find() -> str | None:
    return shutil.which(NAME)


def spec(executable: str, site: RunContext, port: int, parts: Iterable[tuple[str, int]]) -> ComponentSpec:
    """Prometheus on `port`; `parts` are (job, port) of what does not come and go."""
    home = site.run.home(NAME)
    targets(site, [])
    write_private(home / "prometheus.yml", yaml.safe_dump(configuration(home, parts), sort_keys=False))
    return ComponentSpec(
        name=NAME,
        argv=(
            executable,
            f"--config.file={home / 'prometheus.yml'}",
            f"--storage.tsdb.path={home / 'data'}",
            f"--storage.tsdb.retention.time={RETENTION}",
            f"--storage.tsdb.retention.size={RETENTION_SIZE}",
            f"--web.listen-address={HOST}:{port}",
        ),
        env={},
        port=port,
        ready=Probe("/-/ready", period_s=1, timeout_s=1, failures=30),
        grace_s=10.0,
    )


def configuration(home: Path, parts: Iterable[tuple[str, int]]) -> dict[str, object]:
    """prometheus.yml: fixed targets for the parts, a file of targets for the workers."""
    jobs = [{"job_name": job, "static_configs": [{"targets": [f"{HOST}:{port}"]}]} for job, port in parts]
    workers = {"job_name": "worker", "file_sd_configs": [{"files": [str(home / "workers.json")]}]}
    timing = {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": SCRAPE}
    return {"global": timing, "scrape_configs": [*jobs, workers]}


def targets(site: RunContext, services: Iterable[ServiceEndpoints]) -> None:
    """Tell Prometheus which workers there are; it notices the file's change by itself."""
    rows = [
        {"targets": [f"{endpoint.host}:{endpoint.metrics_port}"], "labels": {"worker": endpoint.name}}
        for item in services
        for endpoint in item.endpoints
    ]
    path = site.run.home(NAME) / "workers.json"
    text = json.dumps(rows)
    if not path.exists() or path.read_text() != text:
        write_private(path, text)
