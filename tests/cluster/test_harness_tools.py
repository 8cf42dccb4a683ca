"""The build of the programs: what is pinned, and what it says when it cannot build."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.harness.runs import CHECKOUT
from tests.cluster.harness.tools import TOOLS, Tool, folder, version_of
from tests.every import cases

BUILDABLE = [tool for tool in TOOLS if tool.module]


def build(name: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The build command in an environment of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tests.cluster.harness.tools", name],
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@cases("tool", BUILDABLE)
def test_a_tool_is_pinned_with_the_sums_of_its_module(tool: Tool) -> None:
    sums = (CHECKOUT / "tests/cluster/tools" / tool.name / "go.sum").read_text()
    assert f"{tool.module} {version_of(tool)} h1:" in sums


@pytest.mark.real
def test_a_machine_without_go_is_told_what_to_install(tmp_path: Path) -> None:
    done = build("etcd", PATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("error: go: not on PATH, and etcd is not built yet; install Go")


@pytest.mark.real
def test_a_failed_build_names_its_log_and_leaves_no_folder(tmp_path: Path) -> None:
    nowhere = {"GOPROXY": "off", "GOMODCACHE": str(tmp_path / "modules"), "GOFLAGS": "-modcacherw"}
    done = build("etcd", XDG_CACHE_HOME=str(tmp_path), **nowhere)
    [log] = (tmp_path / "paceline/tools").glob("*.log")
    assert done.returncode == 1
    assert str(log) in done.stderr
    assert log.read_text().strip().splitlines()[-1] in done.stderr
    assert [path for path in log.parent.iterdir() if path.is_dir()] == []


@pytest.mark.real
def test_what_is_built_is_not_built_again() -> None:
    done = build("pause", PATH="/nowhere")
    assert done.stdout == f"pause {folder('pause').name.removeprefix('pause-')}: at hand\n"
