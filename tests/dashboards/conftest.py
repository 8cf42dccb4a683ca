"""Debian's Prometheus (2.42) and the 3.x that the cluster tests build; both must be there."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cluster.harness import tools


@dataclass(frozen=True, slots=True)
class Programs:
    """One version's server and checker."""

    prometheus: Path
    promtool: Path


def _debian() -> Programs:
    found = [shutil.which(name) for name in ("prometheus", "promtool")]
    if None in found:
        pytest.fail("no `prometheus` or `promtool` on PATH; install them: apt-get install prometheus")
    server, checker = (Path(str(path)) for path in found)
    return Programs(server, checker)


def _built() -> Programs:
    try:
        return Programs(tools.program("prometheus"), tools.program("promtool", "prometheus"))
    except tools.ToolMissing as missing:
        pytest.fail(str(missing))


@pytest.fixture(scope="session", params=[_debian, _built], ids=["debian", "3.x"])
def programs(request: pytest.FixtureRequest) -> Programs:
    """Each test runs under both versions."""
    programs: Programs = request.param()
    return programs
