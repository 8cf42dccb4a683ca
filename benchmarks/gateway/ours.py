"""A gateway of ours as `paceline up` starts it: the same configuration file, access log and all.

Auth with a hashed key, every kind of limit, fair queue, `pace` routing with the prefix index, streams that can be
resumed: everything is on. `tree`: the code of another checkout, to compare a change with what was before it.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.gateway.cluster import SOCKET
from benchmarks.gateway.contestant import Contestant
from benchmarks.harness import ROOT
from tests.gateway.manifests import NAMESPACE
from tests.ports import free_port

from paceline_core.auth import new_signing_key
from paceline_core.config import FILE_VARIABLE

_NONE: Mapping[str, Any] = MappingProxyType({})


def gateway(name: str, folder: Path, socket_folder: Path, key: str, tree: Path = ROOT) -> Contestant:
    """One that is not started yet."""
    return of_settings(name, settings(name, folder, socket_folder, new_signing_key()), key, tree)


def settings(name: str, folder: Path, socket_folder: Path, signing_key: bytes, more: Mapping[str, Any] = _NONE) -> Path:
    """Its configuration file, with these settings on top."""
    folder.mkdir()
    key_file, trust, file = folder / "signing.key", folder / "jwks.json", folder / "gateway.yaml"
    key_file.write_bytes(signing_key)
    trust.write_text('{"keys": []}')
    config = {
        "name": name,
        "listen": {"host": "127.0.0.1", "port": free_port()},
        "admin": {"host": "127.0.0.1", "port": free_port()},
        "cluster": {"socket": str(socket_folder / SOCKET)},
        "namespace": NAMESPACE,
        "signing_key": str(key_file),
        "trust_bundle": str(trust),
    }
    file.write_text(json.dumps(config | dict(more)))
    return file


def of_settings(name: str, file: Path, key: str, tree: Path = ROOT) -> Contestant:
    """One that is not started yet, of this file, beside which its log is written."""
    command = [sys.executable, "-m", "paceline_gateway.main"]
    environment = {FILE_VARIABLE: str(file), "PYTHONPATH": ":".join(map(str, roots(tree)))}
    port = json.loads(file.read_text())["listen"]["port"]
    return Contestant(name, command, port, file.parent / "log", key, environment, file.parent)


def admin_port(contestant: Contestant) -> int:
    """Where a gateway of ours answers the cluster."""
    port: int = json.loads(Path(contestant.environment[FILE_VARIABLE]).read_text())["admin"]["port"]
    return port


def roots(tree: Path) -> list[Path]:
    """Where a checkout's packages lie."""
    return sorted({place.parent for place in tree.glob("*/paceline_*") if place.is_dir()})
