"""Which cluster a configuration means, and what local mode does not import."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.core.kube.api_peer import kubeconfig

from paceline_core.clock import SystemClock
from paceline_core.config import parse
from paceline_core.errors import InvalidInput
from paceline_core.kube.connect import ClusterConfig, connect
from paceline_core.kube.local import LocalCluster

HEAVY = """
import sys
import paceline_core.kube.connect
heavy = {"aiohttp", "kubernetes", "orjson"} & set(sys.modules)
sys.exit(f"imported: {heavy}" if heavy else 0)
"""


def test_two_places_are_refused() -> None:
    with pytest.raises(InvalidInput, match="socket and kubeconfig are both set"):
        parse(ClusterConfig, {"socket": "/a", "kubeconfig": "/b"}, "gateway.yaml")


async def test_a_socket_is_the_supervisor(tmp_path: Path) -> None:
    cluster = await connect(ClusterConfig(socket=tmp_path / "socket"), "paceline-system")
    assert isinstance(cluster, LocalCluster)
    await cluster.close()


async def test_a_kubeconfig_is_a_cluster(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"token": "t"}, server="http://127.0.0.1:9")
    cluster = await connect(ClusterConfig(kubeconfig=path), "paceline-system", SystemClock(), "pods")
    assert not isinstance(cluster, LocalCluster)
    await cluster.close()


@pytest.mark.real
def test_local_mode_imports_nothing_that_only_a_cluster_needs() -> None:
    done = subprocess.run([sys.executable, "-c", HEAVY], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
