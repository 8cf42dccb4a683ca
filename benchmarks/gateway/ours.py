"""A gateway of ours as `paceline up` starts it: the same configuration file, access log and all.

Auth with a hashed key, every kind of limit, fair queue, `pace` routing with the prefix index, streams that can be
resumed: everything is on. `tree`: the code of another checkout, to compare a change with what was before it.
"""

import json
import sys
from pathlib import Path

from benchmarks.gateway.cluster import SOCKET
from benchmarks.gateway.contestant import Contestant
from benchmarks.harness import ROOT
from tests.gateway.manifests import NAMESPACE
from tests.ports import free_port

from paceline_core.auth import new_hop_key
from paceline_core.config import FILE_VARIABLE


def gateway(name: str, folder: Path, socket_folder: Path, key: str, tree: Path = ROOT) -> Contestant:
    """One that is not started yet."""
    folder.mkdir()
    hop_key, trust, settings = folder / "hop.key", folder / "trust.yaml", folder / "gateway.yaml"
    hop_key.write_bytes(new_hop_key())
    trust.write_text("{}\n")
    port = free_port()
    config = {
        "name": name,
        "listen": {"host": "127.0.0.1", "port": port},
        "admin": {"host": "127.0.0.1", "port": free_port()},
        "cluster": {"socket": str(socket_folder / SOCKET)},
        "namespace": NAMESPACE,
        "hop_key": str(hop_key),
        "trust": str(trust),
    }
    settings.write_text(json.dumps(config))
    command = [sys.executable, "-m", "paceline_gateway.main"]
    environment = {FILE_VARIABLE: str(settings), "PYTHONPATH": ":".join(map(str, roots(tree)))}
    return Contestant(name, command, port, folder / "log", key, environment, folder)


def roots(tree: Path) -> list[Path]:
    """Where a checkout's packages lie."""
    return sorted({place.parent for place in tree.glob("*/paceline_*") if place.is_dir()})
