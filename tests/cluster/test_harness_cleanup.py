"""However a run ends, nothing of it is left: no process, container, cgroup, mount, namespace or folder."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cluster.harness import runs
from tests.cluster.harness.commands import Kubectl
from tests.cluster.harness.images import PACELINE_IMAGE
from tests.cluster.harness.runs import CHECKOUT, Run
from tests.cluster.harness.workbench import Workbench

pytestmark = pytest.mark.real

LIMIT_S = 90.0


@dataclass(frozen=True)
class Kept:
    """A run that another process keeps, with a pod in it, and what of it was seen."""

    owner: subprocess.Popen[str]
    run: Run
    namespaces: set[str]
    containers: set[str]

    def left(self) -> list[str]:
        """Everything that is still there."""
        mounts = Path("/proc/self/mountinfo").read_text()
        found = [f"process {process}" for process in runs.members(self.run)]
        found += [str(path) for path in runs.cgroups(self.containers)]
        found += [f"mount of {self.run.name}"] * (self.run.name in mounts)
        found += sorted(self.namespaces & _all_namespaces())
        return found + [str(self.run.folder)] * self.run.folder.exists()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    """`make cluster` in the hands of another process, put in the background as a shell does it: SIGINT ignored."""
    argv = ["sh", "-c", 'trap \'\' INT; exec "$0" "$@"', sys.executable, "-m", "tests.cluster.harness.up"]
    place = _place(tmp_path / "runs" / "run")
    with subprocess.Popen(argv, cwd=CHECKOUT, env=place, stdout=subprocess.PIPE, text=True) as owner:
        try:
            kubeconfig = _pasted(owner)
            run = Run(kubeconfig.parent)
            _run_a_pod(Workbench(Kubectl(kubeconfig), run.folder, None))
            with _held(run) as namespaces:
                yield Kept(owner, run, namespaces, runs.containers(run))
        finally:
            owner.kill()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_nothing_is_left_when_the_owner_ends(kept: Kept, how: signal.Signals) -> None:
    assert len(kept.containers) == 2
    assert len(kept.namespaces) >= 2
    kept.owner.send_signal(how)
    kept.owner.wait(LIMIT_S)
    runs.until(LIMIT_S, lambda: not kept.run.folder.exists(), "the folder is gone")
    # A killed process loses its environment, by which it is found, a moment before its namespaces.
    runs.until(LIMIT_S, lambda: not kept.left(), "nothing is left")


def test_a_suspended_container_and_what_entered_it_without_the_mark_end_too(kept: Kept) -> None:
    with subprocess.Popen(["sleep", "600"], env={}) as stranger:
        try:
            for folder in runs.cgroups(kept.containers):
                (folder / "cgroup.procs").write_text(str(stranger.pid))
            _suspend(kept.containers)
            kept.owner.send_signal(signal.SIGTERM)
            kept.owner.wait(LIMIT_S)
            assert stranger.wait(LIMIT_S) == -signal.SIGKILL
            assert kept.left() == []
        finally:
            stranger.kill()


def test_the_next_start_removes_what_was_left_when_the_owner_and_its_warden_were_killed(kept: Kept) -> None:
    [warden] = [process for process in _processes() if str(kept.run.folder) in _words(process)]
    os.kill(warden, signal.SIGKILL)
    kept.owner.kill()
    kept.owner.wait(LIMIT_S)
    assert kept.left() != []
    _start_another(kept)
    assert kept.left() == []


def test_a_start_leaves_the_runs_of_others_alone(kept: Kept) -> None:
    _start_another(kept)
    assert kept.owner.poll() is None
    assert kept.containers == runs.containers(kept.run)


def _start_another(kept: Kept) -> None:
    """Open and end a run in the same place, in a process of its own."""
    opened = "from tests.cluster.harness.runs import open_run; open_run().end()"
    subprocess.run(
        [sys.executable, "-c", opened], cwd=CHECKOUT, env=_place(kept.run.folder), check=True, timeout=LIMIT_S
    )


def _suspend(containers: set[str]) -> None:
    """As a runtime does before it kills all of a container's processes."""
    files = [folder / name for folder in runs.cgroups(containers) for name in ("freezer.state", "cgroup.freeze")]
    for file in files:
        if file.exists():
            file.write_text("FROZEN" if file.name == "freezer.state" else "1")


def _place(run: Path) -> dict[str, str]:
    """A place of this test's own for runs: another session's start would sweep them first."""
    return {**os.environ, "TMPDIR": str(run.parents[1])}


def _pasted(owner: subprocess.Popen[str]) -> Path:
    """The kubeconfig it prints; its start has limits of its own and ends it with a reason."""
    assert owner.stdout is not None
    for line in owner.stdout:
        if found := re.search(r"KUBECONFIG=(\S+)", line):
            return Path(found[1])
    raise AssertionError(f"it ended with {owner.wait(5)} and printed no kubeconfig")


def _run_a_pod(bench: Workbench) -> None:
    namespace = bench.kubectl.within("default")
    namespace("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    namespace("run", "left", f"--image={PACELINE_IMAGE}", "--image-pull-policy=Never")
    namespace("wait", "pod/left", "--for=condition=Ready", "--timeout=60s")


@contextmanager
def _held(run: Run) -> Iterator[set[str]]:
    """The network and mount namespaces of its processes that are not this machine's own.

    They are kept from being freed: another run that starts meanwhile could be given their numbers.
    """
    with ExitStack() as held:
        found = set()
        for process in runs.members(run):
            for kind in ("net", "mnt"):
                with suppress(OSError):
                    namespace = held.enter_context(Path(f"/proc/{process}/ns/{kind}").open("rb"))
                    found.add(_link(Path(f"/proc/self/fd/{namespace.fileno()}")))
        yield found - _inodes([os.getpid()])


def _all_namespaces() -> set[str]:
    return _inodes(_processes())


def _inodes(processes: list[int]) -> set[str]:
    links = [Path(f"/proc/{process}/ns/{kind}") for process in processes for kind in ("net", "mnt")]
    return {found for link in links if (found := _link(link))}


def _link(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _words(process: int) -> list[str]:
    try:
        return Path(f"/proc/{process}/cmdline").read_text().split("\0")
    except OSError:
        return []
