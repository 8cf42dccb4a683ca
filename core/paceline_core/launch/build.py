"""Builds one worker's launch from a resolved service: the same for a pod and for a process; pure.

Paths are absolute where the worker runs. The worker's file is plain data here, since core imports no component; a test
parses it with the worker's own model. A worker's errors name fields of worker.yaml; `to_manifest_field` replaces them
by the manifest's fields, because users do not see worker.yaml.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from paceline_core.config import FILE_VARIABLE, LEVEL_VARIABLE
from paceline_core.objects.naming import pod_labels
from paceline_core.objects.resolved import ResolvedPool, ResolvedService
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
    """Turn a worker's last line, `paceline worker: field: message`, into `field: message` with the manifest's field."""
    if not line.startswith(_SPEAKER):
        return line
    named = _FIELD.sub(lambda found: FIELDS.get(found[0], found[0]), line.removeprefix(_SPEAKER))
    return _FILTER.sub("spec.", named)


@dataclass(frozen=True, slots=True)
class Binding:
    """The differences between a pod and a process: paths and listening ports.

    Probes and metrics use `metrics_port`. `page_dir` is for KV pages on disk; it outlives the process and is deleted
    with the replica.
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

    `grace_s`: the time between SIGTERM and SIGKILL after such a failure; None: the same as for any other end.
    """

    path: str
    period_s: int
    timeout_s: int
    failures: int
    grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class Resources:
    """Requests and limits of a replica: `memory` and `disk` in bytes, `cpu` in cores; `disk` bounds `page_dir`.

    A pod is killed beyond `memory_limit`; 0 is no limit, and a local process has none.
    """

    cpu: float
    memory: int
    memory_limit: int = 0
    gpus: int = 0
    gpu_resource: str = ""
    disk: int = 0


@dataclass(frozen=True, slots=True)
class WorkerLaunch:
    """One worker, ready to be started. Probes call `metrics_port`. `grace_s` is the time between SIGTERM and SIGKILL.

    `env` has literal values; `env_from` names variables whose values only a cluster has (Secrets and ConfigMaps).
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


MODULE: Final = "paceline_workers.main"
GRACE_MARGIN_S: Final = 15.0
WEDGED_S: Final = 5
"""Time between SIGTERM and SIGKILL of a worker whose event loop hangs: it cannot drain, and blocks its streams."""
LOAD_LIMIT_S: Final = 600.0
EMULATED_LOAD_LIMIT_S: Final = 120.0
GPU_RESOURCE: Final = "nvidia.com/gpu"
DISK_BUFFERS: Final = 512 << 20
"""The most bytes of pages in memory on their way to or from the disk; a test compares it with the worker."""
DEMO: Final = "builtin://demo"
_STARTUP_PERIOD_S: Final = 2


def build(service: ResolvedService, pool: ResolvedPool, track: str, binding: Binding, image: str = "") -> WorkerLaunch:
    path, emulation = f"{binding.config_dir}/worker.yaml", service.engine.emulation
    # JSON, which is YAML too, because it is faster: an operator writes it for each of a thousand services
    content = json.dumps(worker_config(service, pool, binding), indent=2) + "\n"
    # only literal values: the adapter binds or refuses what comes from a Secret or a ConfigMap
    env = {variable.name: variable.value for variable in service.runtime.env if variable.value is not None}
    # ready within the emulated cold start, or within the time that large weights take to load
    load_s = EMULATED_LOAD_LIMIT_S + 2 * emulation.cold_start_s if emulation else LOAD_LIMIT_S
    return WorkerLaunch(
        service=service.key,
        pool=pool.name,
        track=track,
        revision=service.revision,
        argv=(binding.python, "-m", MODULE),
        env=env | {FILE_VARIABLE: path, LEVEL_VARIABLE: "INFO"},
        env_from={variable.name: variable.value_from for variable in service.runtime.env if variable.value_from},
        files=(LaunchFile(path, content),),
        port=binding.port,
        metrics_port=binding.metrics_port,
        startup=Probe("/readyz", _STARTUP_PERIOD_S, timeout_s=2, failures=math.ceil(load_s / _STARTUP_PERIOD_S)),
        liveness=Probe("/healthz", period_s=5, timeout_s=3, failures=6, grace_s=WEDGED_S),
        readiness=Probe("/readyz", period_s=1, timeout_s=1, failures=3),
        resources=_resources(service, pool),
        grace_s=service.rollout.drain_timeout_s + GRACE_MARGIN_S,
        emulated=service.emulated,
        image=image,
        labels=pod_labels(service.name, pool.name, role=pool.role, revision=service.revision, track=track),
    )


def worker_config(service: ResolvedService, pool: ResolvedPool, binding: Binding) -> dict[str, Any]:
    own = [one for one in service.filters if one.stage == "output"]  # the others run in the gateway
    filters = [{"name": one.name, "config": dict(one.config), "failure": one.failure} for one in own]
    return {
        "name": binding.name,
        "service": service.key,
        "revision": service.revision,
        "pool": pool.name,
        "model": service.model.source,
        "served_names": list(dict.fromkeys((service.model.served_name, service.key))),
        "listen": {"host": binding.host, "port": binding.port},
        "metrics": {"host": binding.host, "port": binding.metrics_port},
        "trust_bundle": binding.trust_bundle_path,
        "engine": _engine(service, pool, binding),
        **({"filters": filters} if filters else {}),
        "drain_timeout_s": service.rollout.drain_timeout_s,
        **({"trace_ratio": service.sample_ratio} if service.sample_ratio else {}),
    }


def _engine(service: ResolvedService, pool: ResolvedPool, binding: Binding) -> dict[str, Any]:
    engine, classes, emulation = service.engine, service.classes, service.engine.emulation
    settings = {
        "max_model_len": engine.max_model_len,
        "max_seqs": engine.max_seqs,
        "step_tokens": engine.step_tokens,
        "page_tokens": engine.page_tokens,
        "attention_window": engine.attention_window,
        "sink_tokens": engine.sink_tokens or None,
        "kv_dtype": None if engine.kv_dtype == "auto" else engine.kv_dtype,
        "host_bytes": engine.host_offload_bytes or None,
        "disk_bytes": engine.disk_offload_bytes or None,
        "disk_path": binding.page_dir if engine.disk_offload_bytes else None,
        "prefix_cache": engine.prefix_cache,
        "warm_prefixes": list(engine.warm_prefixes) or None,
        "batching": None if engine.batching == "continuous" else engine.batching,
        "batch_invariant": engine.batch_invariant or None,
        "batch_window_s": {str(name): cls.batch_window_s for name, cls in classes.items()},
        "class_reserved": {str(name): cls.reserved for name, cls in classes.items() if cls.reserved} or None,
        "device": None if service.emulated else "cuda" if pool.gpus else "cpu",
        "emulate": {
            "accelerator": emulation.accelerator,
            "model": emulation.model,
            "cold_start_s": emulation.cold_start_s,
        }
        if emulation
        else None,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _resources(service: ResolvedService, pool: ResolvedPool) -> Resources:
    """Requests and limits of a replica; an emulated worker loads no weights and uses no GPU, the demo's have 4 MB.

    Memory depends on the kind of worker, since the size of a model's files is not known here. The limit keeps a runaway
    worker from taking down its node: on CPUs there is room for 7 B parameters in fp32; on GPUs weights pass through the
    page cache, which the kernel reclaims. `hostOffloadBytes` is added to both, unless steps are emulated: they move no
    bytes.

    A kubelet evicts a pod that exceeds its disk, in whole MiB. The worker counts a file's blocks within its bytes; on
    top come bytes written before older files are erased, at most its write buffer, and the folder itself.
    """
    engine, pages = service.engine, service.engine.disk_offload_bytes
    disk = -(-(pages + pages // 16 + DISK_BUFFERS) // (1 << 20)) << 20 if pages else 0
    host = 0 if service.emulated else engine.host_offload_bytes + (DISK_BUFFERS if disk else 0)
    if service.emulated or (pool.gpus == 0 and service.model.source == DEMO):
        return Resources(cpu=0.25, memory=(512 << 20) + host, memory_limit=(4 << 30) + host, disk=disk)
    if pool.gpus == 0:
        return Resources(cpu=2.0, memory=(4 << 30) + host, memory_limit=(32 << 30) + host, disk=disk)
    memory, limit = (16 << 30) + host, (64 << 30) + host
    return Resources(4.0, memory, limit, gpus=pool.gpus, gpu_resource=GPU_RESOURCE, disk=disk)
