import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from paceline_autoscaler.process import AutoscalerConfig
from paceline_core.auth import InvalidToken, TokenSigner, TokenVerifier
from paceline_core.clock import ManualClock
from paceline_core.config import load
from paceline_core.kube import Endpoint, ObjectKey, ServiceEndpoints
from paceline_core.launch import Probe
from paceline_gateway.config import GatewayConfig
from paceline_local import HOST, NAMESPACE, component_configs, keys
from paceline_local.component_configs import Ports
from paceline_local.context import PortPool, RunContext
from paceline_local.process import ComponentSpec
from paceline_local.rundir import run_dir

PORTS = Ports(public=8000, gateway=8001, autoscaler=8002, prometheus=8003)
WORKER = Endpoint("chat-main-1", "main", "stable", "abc", "127.0.0.1", 20001, ready=True, metrics_port=20002)


class Nobody:
    """A prober that finds nobody."""

    async def ask(self, host: str, port: int, probe: Probe) -> bool:
        return False


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RunContext]:
    with run_dir(tmp_path) as run:
        keys.create_signing_keys(run)
        yield RunContext(run, PortPool(HOST), ManualClock(), Nobody(), "http://127.0.0.1:8000")


def file_of(part: ComponentSpec) -> Path:
    return Path(part.env["PACELINE_CONFIG"])


def test_the_gateway_reads_its_file(site: RunContext) -> None:
    part = component_configs.gateway(site, PORTS)
    config = load(GatewayConfig, file_of(part))
    assert (config.listen.port, config.admin.port, config.cluster.socket) == (8000, 8001, site.run.socket)
    assert len(config.signing_key.read_bytes()) == 32
    assert part.grace_s > config.drain_s
    assert part.argv[-1] == "paceline_gateway.main"


def test_the_gateway_is_told_whose_pages_may_read_answers(site: RunContext) -> None:
    part = component_configs.gateway(replace(site, cors_origins=("http://localhost:3000",)), PORTS)
    assert load(GatewayConfig, file_of(part)).cors_origins == ("http://localhost:3000",)


def test_the_autoscaler_reads_its_file(site: RunContext) -> None:
    config = load(AutoscalerConfig, file_of(component_configs.autoscaler(site, PORTS)))
    assert (config.cluster.socket, config.namespace) == (site.run.socket, NAMESPACE)
    assert config.gateways == ("127.0.0.1:8001",)
    assert config.prometheus is not None
    assert config.prometheus.url == "http://127.0.0.1:8003"


def test_without_prometheus_the_autoscaler_is_told_of_none(site: RunContext) -> None:
    config = load(AutoscalerConfig, file_of(component_configs.autoscaler(site, Ports(8000, 8001, 8002, None))))
    assert config.prometheus is None


@pytest.mark.parametrize("signer", keys.SIGNERS)
def test_the_trust_bundle_knows_every_signer(site: RunContext, signer: str) -> None:
    now = site.clock.utc()
    token = TokenSigner(site.run.signing_key(signer).read_bytes(), signer).token("default/chat", now)
    trust = json.loads(site.run.trust_bundle.read_text())
    claims = TokenVerifier(trust, "default/chat").verify(token, now)
    assert claims.issuer == signer
    other = next(name for name in keys.SIGNERS if name != signer)
    forged = TokenSigner(site.run.signing_key(signer).read_bytes(), other).token("default/chat", now)
    with pytest.raises(InvalidToken, match="wrong_issuer"):
        TokenVerifier(trust, "default/chat").verify(forged, now)


def test_prometheus_scrapes_the_parts_and_the_workers_that_there_are(site: RunContext) -> None:
    part = component_configs.prometheus("/usr/bin/prometheus", site, 8003, [("gateway", 8001), ("autoscaler", 8002)])
    text = next(word for word in part.argv if word.startswith("--config.file=")).partition("=")[2]
    jobs = {job["job_name"]: job for job in yaml.safe_load(Path(text).read_text())["scrape_configs"]}
    assert jobs["gateway"]["static_configs"] == [{"targets": ["127.0.0.1:8001"]}]
    found = Path(jobs["worker"]["file_sd_configs"][0]["files"][0])
    assert yaml.safe_load(found.read_text()) == []
    component_configs.write_scrape_targets(site, [ServiceEndpoints(ObjectKey("default", "chat"), (WORKER,))])
    assert yaml.safe_load(found.read_text()) == [{"targets": ["127.0.0.1:20002"], "labels": {"worker": "chat-main-1"}}]
