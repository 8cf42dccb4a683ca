"""Our own client on a real API server that knows the four kinds: the administrator's; a namespace of a test's own."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.cluster.apiclients import administrator, namespace
from tests.cluster.harness.workbench import Workbench
from tests.cluster.served import serving

from paceline_core.kube.client.client import KubeClient


@pytest.fixture(scope="module")
def bench(apiserver: Workbench) -> Iterator[Workbench]:
    with serving(apiserver):
        yield apiserver


@pytest.fixture
async def api(bench: Workbench) -> AsyncIterator[KubeClient]:
    async with administrator(bench) as found:
        yield found


@pytest.fixture
async def place(api: KubeClient) -> AsyncIterator[str]:
    async with namespace(api) as name:
        yield name
