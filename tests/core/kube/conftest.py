"""An API server that does what a script says, and our client on it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.core.kube.api_peer import Peer, connected, serving

from paceline_core.clock import ManualClock
from paceline_core.kube.client.client import KubeClient


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with serving() as found:
        yield found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def api(peer: Peer, tmp_path: Path, clock: ManualClock) -> AsyncIterator[KubeClient]:
    async with connected(peer, tmp_path, clock) as found:
        yield found
