"""The nouns of a launch. Nothing here knows Kubernetes or processes; paths are absolute where the worker runs.

Why a worker's container ended, in the words of whoever knows: the kernel, the worker's last line, its exit code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline_core.launch.manifest_names import to_manifest_field
from paceline_core.objects.service_runtime import EnvSource


@dataclass(frozen=True, slots=True)
class Binding:
    """What differs between a pod and a process: where files lie and what to listen on.

    Probes and metrics have `metrics_port`. `page_dir` is for KV pages on disk; it outlives the process and goes with
    the replica.
    """

    name: str
    host: str
    port: int
    config_dir: str
    trust_bundle_path: str
    page_dir: str
    metrics_port: int
    python: str = "python"


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """A file that must exist before the start."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class Probe:
    """An HTTP GET that must answer 200; it has failed after `failures` misses in a row.

    `grace_s`: between SIGTERM and SIGKILL of what has failed it; None: as long as any other end may take.
    """

    path: str
    period_s: int
    timeout_s: int
    failures: int
    grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class Resources:
    """Requests and limits of a replica: `memory` and `disk` in bytes, `cpu` in cores; `disk` bounds `page_dir`.

    Beyond `memory_limit` a pod is killed; 0 is none, and a process of this machine has none.
    """

    cpu: float
    memory: int
    memory_limit: int = 0
    gpus: int = 0
    gpu_resource: str = ""
    disk: int = 0


@dataclass(frozen=True, slots=True)
class WorkerLaunch:
    """One worker, ready to be started. Probes ask `metrics_port`. `grace_s` is the time between SIGTERM and SIGKILL.

    `env` is literal; `env_from` names variables whose values only a cluster has (Secrets and ConfigMaps).
    """

    service: str
    pool: str
    track: str
    revision: str
    argv: tuple[str, ...]
    env: dict[str, str]
    files: tuple[LaunchFile, ...]
    port: int
    metrics_port: int
    startup: Probe
    liveness: Probe
    readiness: Probe
    resources: Resources
    grace_s: float
    emulated: bool
    image: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    env_from: dict[str, EnvSource] = field(default_factory=dict)


def termination_reason(terminated: Mapping[str, Any]) -> str:
    """One clause from a container's `terminated` state."""
    if terminated.get("reason") == "OOMKilled":
        return "the worker used more memory than its limit and was killed (OOMKilled)"
    lines = [line for line in (terminated.get("message") or "").splitlines() if line.strip()]
    if lines:
        return to_manifest_field(lines[-1].strip())
    return f"the worker ended with exit code {terminated.get('exitCode', 'unknown')}; see its log"
