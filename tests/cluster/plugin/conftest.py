"""The plugin's user on an API server that knows the four kinds: the administrator, in a namespace of a test's own."""

from collections.abc import Iterator

import httpx
import pytest
from tests.cluster.harness.commands import Kubectl
from tests.cluster.harness.workbench import Workbench
from tests.cluster.plugin_user import Call, administrator, caller
from tests.cluster.served import serving


@pytest.fixture(scope="module")
def api(apiserver: Workbench) -> Iterator[httpx.Client]:
    with serving(apiserver) as client:
        yield client


@pytest.fixture
def namespace(apiserver: Workbench, api: httpx.Client) -> Iterator[str]:
    with apiserver.namespace() as name:
        yield name


@pytest.fixture
def kubectl(apiserver: Workbench, namespace: str) -> Kubectl:
    return apiserver.kubectl.within(namespace)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Call:
    return caller(capsys)


@pytest.fixture
def call(run: Call, apiserver: Workbench, namespace: str) -> Call:
    return administrator(run, apiserver, namespace)
