"""Worker configurations, and both ends of an engine's socket."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.peer import Peer

from paceline_core.config import Listen
from paceline_workers.config import WorkerConfig

Settings = Callable[..., WorkerConfig]


@pytest.fixture
def settings() -> Settings:
    """A worker's configuration with the given engine fields."""

    def make(model: str = "builtin://demo", **engine: Any) -> WorkerConfig:
        data = {
            "service": "default/chat",
            "revision": "abc",
            "pool": "default",
            "model": model,
            "served_names": ["chat"],
            "listen": Listen(),
            "engine": engine,
        }
        return WorkerConfig.model_validate(data)

    return make


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Peer]]:
    """The engine's raw end, and the API process's end as a Peer."""
    theirs, ours = socket.socketpair()
    peer = Peer(ours)
    yield theirs, peer
    peer.close()
    theirs.close()


@pytest.fixture
def worker_file(tmp_path: Path) -> Callable[[WorkerConfig], Path]:
    """Write a configuration where PACELINE_CONFIG can point."""

    def write(config: WorkerConfig) -> Path:
        path = tmp_path / "worker.yaml"
        path.write_text(config.model_dump_json())
        return path

    return write
