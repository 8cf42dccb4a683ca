"""One worker's launch, without Kubernetes or processes; paths are absolute where the worker runs.

A worker names fields of worker.yaml; `to_manifest_field` names the manifest's field in its place, for users see no
worker.yaml.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from paceline_core.objects.service_runtime import EnvSource

FIELDS: Final[Mapping[str, str]] = {
    "model": "spec.model.source",
    "engine.max_model_len": "spec.engine.maxModelLen",
    "engine.max_seqs": "spec.engine.maxSeqs",
    "engine.step_tokens": "spec.engine.stepTokens",
    "engine.page_tokens": "spec.engine.kvCache.pageTokens",
    "engine.attention_window": "spec.engine.kvCache.attentionWindow",
    "engine.sink_tokens": "spec.engine.kvCache.sinkTokens",
    "engine.kv_dtype": "spec.engine.kvCache.dtype",
    "engine.device": "spec.pools[].accelerator",
    "engine.batch_invariant": "spec.engine.batchInvariant",
    "engine.warm_prefixes": "spec.engine.warmPrefixes",
    "engine.host_bytes": "spec.engine.kvCache.hostOffloadBytes",
    "engine.disk_bytes": "spec.engine.kvCache.diskOffloadBytes",
    "engine.disk_path": "spec.engine.kvCache.diskOffloadBytes",
    "engine.class_reserved": "spec.classes",
    "engine.emulate": "spec.engine.emulate",
    "engine.emulate.accelerator": "spec.engine.emulate.accelerator",
    "engine.emulate.model": "spec.engine.emulate.model",
    "engine.emulate.cold_start_s": "spec.engine.emulate.coldStart",
}
_SPEAKER: Final = "paceline worker: "
_FIELD: Final = re.compile(r"^[a-z_.]+(?=: )")
_FILTER: Final = re.compile(r"^(?=filters\[\d+\][a-z_.]*: )")


def to_manifest_field(line: str) -> str:
    """A worker's last line, `paceline worker: field: message`, as `field: message` with the manifest's field."""
    if not line.startswith(_SPEAKER):
        return line
    named = _FIELD.sub(lambda found: FIELDS.get(found[0], found[0]), line.removeprefix(_SPEAKER))
    return _FILTER.sub("spec.", named)


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
