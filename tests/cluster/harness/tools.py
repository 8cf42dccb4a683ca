"""The programs of the cluster tests, built once from Go modules into a cache outside the tree.

Each folder under `tests/cluster/tools` pins one program's version and the sums of all it needs. A build lands in
`$XDG_CACHE_HOME/paceline/tools/NAME-VERSION` by one rename, so a folder that is there is whole. Hole: other flags
for the same version need the folder removed by hand.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parents[1] / "tools"
BUILD_LIMIT_S = 3600.0
STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")


class ToolMissing(Exception):
    """A program could not be built or is not built; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One wrapper module: its folder, the module that names the version, how long a cold build takes on two cores."""

    name: str
    module: str
    takes: str
    stamps: tuple[str, ...] = ()
    tags: str = ""
    renamed: str = ""


_KUBERNETES = "k8s.io/component-base/version.git"

TOOLS = (
    Tool("etcd", "go.etcd.io/etcd/server/v3", "20 s", renamed="etcd"),
    Tool(
        "kubernetes",
        "k8s.io/kubernetes",
        "6 min",
        stamps=(_KUBERNETES + "Version={version}", _KUBERNETES + "Major={major}", _KUBERNETES + "Minor={minor}"),
    ),
    Tool("pause", "", "5 s"),
    Tool(
        "containerd",
        "github.com/containerd/containerd/v2",
        "1 min",
        stamps=("github.com/containerd/containerd/v2/version.Version={version}",),
        tags="no_btrfs no_devmapper no_zfs",
    ),
    Tool("kwok", "sigs.k8s.io/kwok", "1 min", stamps=("sigs.k8s.io/kwok/pkg/consts.Version={version}",)),
    Tool("helm", "helm.sh/helm/v4", "2 min", stamps=("helm.sh/helm/v4/internal/version.version={version}",)),
    Tool("coredns", "github.com/coredns/coredns", "90 s"),
    Tool("prometheus", "github.com/prometheus/prometheus", "4 min"),
    Tool("helm3", "helm.sh/helm/v3", "1 min", stamps=("helm.sh/helm/v3/internal/version.version={version}",)),
)


def cache() -> Path:
    """Where the programs are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline" / "tools"


def version_of(tool: Tool) -> str:
    """The version that the wrapper's go.mod asks for."""
    if not tool.module:
        return "v1.0.0"
    text = (MODULES / tool.name / "go.mod").read_text()
    found = re.search(rf"^(?:require)?\s*{re.escape(tool.module)} (v\S+)", text, re.MULTILINE)
    if found is None:
        raise ToolMissing(f"tests/cluster/tools/{tool.name}/go.mod: it requires no {tool.module}")
    return found[1]


def folder_of(tool: Tool) -> Path:
    """The folder of one tool's programs, built or not."""
    return cache() / f"{tool.name}-{version_of(tool)}"


def folder(name: str) -> Path:
    """The folder of a built tool's programs, by the tool's name."""
    [tool] = [tool for tool in TOOLS if tool.name == name]
    place = folder_of(tool)
    if not place.exists():
        raise ToolMissing(f"{place}: not built; run `make tools`")
    return place


def program(name: str, tool: str = "") -> Path:
    """A built program; `tool` where its folder is called otherwise."""
    return folder(tool or name) / name


def versions() -> str:
    """What the clusters of this tree are made of, for a report."""
    return ", ".join(f"{tool.name} {version_of(tool)}" for tool in TOOLS if tool.module)


def build_all(names: tuple[str, ...] = ()) -> None:
    """Build what is missing, one after the other: two linkers at once on two cores are slower and need more memory."""
    cache().mkdir(parents=True, exist_ok=True)
    with _one_at_a_time():
        for tool in TOOLS:
            if not names or tool.name in names:
                _ensure(tool)


def _ensure(tool: Tool) -> None:
    label = f"{tool.name} {version_of(tool)}"
    if folder_of(tool).exists():
        _say(f"{label}: at hand")
        return
    _check_go(tool)
    _say(f"{label}: building (about {tool.takes} on two cores) ...")
    began = time.monotonic()
    _build(tool)
    _say(f"{label}: built in {time.monotonic() - began:.0f} s")


def _build(tool: Tool) -> None:
    target = folder_of(tool)
    fresh = cache() / f".{target.name}.{os.getpid()}"
    log = cache() / f"{target.name}.log"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    try:
        _go(tool, ["build", *_flags(tool), "-o", f"{fresh}/", *_packages(tool, log)], log)
        if tool.renamed:
            _named_by_hand(fresh, tool.renamed)
        if tool.name == "kwok":
            _copy_stages(fresh, Path(_go(tool, ["list", "-m", "-f", "{{.Dir}}", tool.module], log).strip()))
        fresh.rename(target)
        log.unlink()
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _named_by_hand(fresh: Path, name: str) -> None:
    """Go names a program by its folder, which for etcd is `server`."""
    [only] = fresh.iterdir()
    only.rename(fresh / name)


def _flags(tool: Tool) -> list[str]:
    version = version_of(tool)
    major, minor, *_ = version.removeprefix("v").split(".")
    stamps = [f"-X {stamp.format(version=version, major=major, minor=minor)}" for stamp in tool.stamps]
    flags = ["-trimpath", "-ldflags", " ".join(["-s", "-w", *stamps])]
    return [*flags, "-tags", tool.tags] if tool.tags else flags


def _packages(tool: Tool, log: Path) -> list[str]:
    return _go(tool, ["list", "tool"], log).split() or ["."]


def _go(tool: Tool, arguments: list[str], log: Path) -> str:
    env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly"}
    done = subprocess.run(
        ["go", *arguments],
        cwd=MODULES / tool.name,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_LIMIT_S,
    )
    log.write_text(done.stderr)
    if done.returncode:
        tail = "\n".join(done.stderr.splitlines()[-10:])
        raise ToolMissing(f"{tool.name}: the build failed; all of it is in {log}. Its last lines:\n{tail}")
    return done.stdout


def _copy_stages(fresh: Path, source: Path) -> None:
    """KWOK's program has no life cycle of its own for nodes and pods; its module's folder has."""
    for stage in STAGES:
        for path in sorted((source / "kustomize/stage" / stage).glob("*.yaml")):
            if path.name != "kustomization.yaml":
                copied = fresh / "stages" / f"{stage.replace('/', '-')}-{path.name}"
                copied.parent.mkdir(exist_ok=True)
                copied.write_bytes(path.read_bytes())


def _check_go(tool: Tool) -> None:
    fix = "install Go as tests/cluster/tools/*/go.mod names it or later (https://go.dev/dl); apt's golang is too old"
    if shutil.which("go") is None:
        raise ToolMissing(f"go: not on PATH, and {tool.name} is not built yet; {fix}")
    asked = subprocess.run(
        ["go", "env", "GOVERSION"], cwd=MODULES / tool.name, capture_output=True, text=True, check=False, timeout=300
    )
    if asked.returncode:
        raise ToolMissing(f"go: {asked.stderr.strip()}; {fix}, or let it fetch one (GOTOOLCHAIN=auto)")


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    with (cache() / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another build is running; waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Build all, or the tools named on the command line."""
    try:
        build_all(tuple(sys.argv[1:]))
    except ToolMissing as problem:
        sys.exit(f"error: {problem}")


if __name__ == "__main__":
    main()
