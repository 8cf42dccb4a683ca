"""The gateway's and the autoscaler's configuration files of a local run, as their own config models read them."""

import sys
from dataclasses import dataclass
from typing import Any

import yaml

from paceline_core.config import FILE_VARIABLE, LEVEL_VARIABLE
from paceline_core.launch import Probe
from paceline_local import HOST, NAMESPACE, keys
from paceline_local.context import RunContext
from paceline_local.process import ComponentSpec
from paceline_local.rundir import write_private

GATEWAY, AUTOSCALER = "gateway", "autoscaler"
GATEWAY_DRAIN_S = 30.0
MARGIN_S = 5.0
AUTOSCALER_GRACE_S = 10.0
INTERVAL_S = 1.0
STALE_AFTER_S = 10.0
READY = Probe("/readyz", period_s=1, timeout_s=2, failures=60)


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the parts listen. `prometheus` is None when there is none."""

    public: int
    gateway: int
    autoscaler: int
    prometheus: int | None


def gateway(site: RunContext, ports: Ports) -> ComponentSpec:
    config = {
        "name": GATEWAY,
        "listen": {"host": HOST, "port": ports.public},
        "admin": {"host": HOST, "port": ports.gateway},
        "cluster": {"socket": str(site.run.socket)},
        "namespace": NAMESPACE,
        "signing_key": str(keys.signing_key_path(site.run, GATEWAY)),
        "trust_bundle": str(keys.trust_bundle_path(site.run)),
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
        "signing_key": str(keys.signing_key_path(site.run, AUTOSCALER)),
        "gateways": [f"{HOST}:{ports.gateway}"],
        "prometheus": source if ports.prometheus else None,
        "interval_s": INTERVAL_S,
        "ledger": str(site.run.root / "ledger.jsonl"),
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
        ready=READY,
        grace_s=grace_s,
    )
