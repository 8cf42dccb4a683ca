"""The clusters of a test session: each is started once, when the first test asks for it, and ended with its scope.

`cluster` is the full one, real node included: the only one with pods that run. `apiserver` has no node,
`kwok_cluster` has fake ones. `PACELINE_TEST_KUBECONFIG` puts somebody else's cluster (kind, k3d) behind `cluster`;
the image `localhost/paceline:test` and a node are theirs to give, and tests that ask for `machine` are deselected
and counted.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.harness.commands import Helm, Kubectl
from tests.cluster.harness.machine import Machine, Options
from tests.cluster.harness.start import started
from tests.cluster.harness.tools import versions
from tests.cluster.harness.workbench import Workbench

FOREIGN = os.environ.get("PACELINE_TEST_KUBECONFIG", "")
KWOK_NODES = 10
LONGEST = "test_golden_path.py"


@contextmanager
def _bench(options: Options) -> Iterator[Workbench]:
    with started(options) as machine:
        yield Workbench(Kubectl(machine.kubeconfig), machine.run.folder, machine)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """The full cluster: pods run, Services and names work."""
    if not FOREIGN:
        with _bench(Options(real_node=True)) as bench:
            yield bench
        return
    bench = Workbench(Kubectl(Path(FOREIGN)), tmp_path_factory.mktemp("foreign"), None)
    yield bench
    bench.close()


@pytest.fixture(scope="session")
def machine(cluster: Workbench) -> Machine:
    """The full cluster's insides: parts to kill, the audit log, programs run in its network."""
    return cluster.machine


@pytest.fixture(scope="session")
def apiserver() -> Iterator[Workbench]:
    """An API server with the built-in controllers and no node: for objects, admission and roles."""
    with _bench(Options()) as bench:
        yield bench


@pytest.fixture(scope="module")
def kwok_cluster() -> Iterator[Workbench]:
    """Fake nodes on which pods become Ready without running."""
    with _bench(Options(kwok_nodes=KWOK_NODES, raised_limits=True)) as bench:
        yield bench


@pytest.fixture
def namespace(cluster: Workbench) -> Iterator[str]:
    """A restricted namespace of the test's own in the full cluster."""
    with cluster.namespace() as name:
        yield name


@pytest.fixture
def kubectl(cluster: Workbench, namespace: str) -> Kubectl:
    """`kubectl` in the test's namespace."""
    return cluster.kubectl.within(namespace)


@pytest.fixture
def helm(cluster: Workbench) -> Helm:
    """Helm 4 on the full cluster."""
    return cluster.helm()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest story, so that nobody waits for it at the end; leave out what another's cluster lacks."""
    items.sort(key=lambda item: item.path.name != LONGEST)
    if not FOREIGN:
        return
    out = [item for item in items if "machine" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]


def pytest_report_header() -> str:
    """Say which cluster it is."""
    if FOREIGN:
        return f"cluster: {FOREIGN} (PACELINE_TEST_KUBECONFIG); tests that need the fixture `machine` are deselected"
    return f"cluster: the harness's own ({versions()})"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the cluster's story under a failed test."""
    report = yield
    if report.failed:
        values = getattr(item, "funcargs", {}).values()
        report.sections += [("cluster", bench.story()) for bench in values if isinstance(bench, Workbench)]
    return report
