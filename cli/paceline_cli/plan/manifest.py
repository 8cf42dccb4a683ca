"""A plan as an InferenceService, to apply or to edit: from the options, or from the file's own service."""

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

from paceline_cli.plan.inputs import Subject
from paceline_core.errors import InvalidInput
from paceline_core.objects import API_VERSION, FieldError, InferenceService, read, resolve
from paceline_core.registry import RequestClass
from paceline_core.units import duration
from paceline_local.preflight import unsupported_here
from paceline_planner.accelerators import CATALOGUE
from paceline_planner.candidates import PlannedPool
from paceline_planner.goodput import LatencyPromise
from paceline_planner.service_devices import unmanaged_accelerators

_QUANTILES = ("p50", "p90", "p95", "p99")
_SPARE = 2
"""The pool may grow to so many times the planned replicas."""


def manifest(chosen: PlannedPool, subject: Subject, model: str, request_class: RequestClass) -> dict[str, Any]:
    """One pool of the planned replicas; a service of a file keeps its name, model and runtime."""
    replica, split = chosen.replica, chosen.replica.split
    source = _source(model) if subject.service is None else subject.service.model.source
    quantization = replica.shape.quantization
    engine: dict[str, Any] = {"maxSeqs": replica.caps.sequences, "stepTokens": replica.caps.step_tokens}
    parallel = {"tensor": split.tensor, "pipeline": split.pipeline, "expert": split.expert}
    if split.devices > 1:
        engine["parallel"] = {name: degree for name, degree in parallel.items() if degree > 1}
    if replica.shape.kv_dtype.size == 1:
        engine["kvCache"] = {"dtype": replica.shape.kv_dtype.value}
    namespace, _, name = subject.name.rpartition("/")
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceService",
        "metadata": {"name": name.lower().replace(".", "-").replace("_", "-"), "namespace": namespace or "default"},
        "spec": {
            "model": {"source": source, **({"quantization": quantization.name} if quantization else {})},
            "engine": engine,
            "classes": {request_class.value: {"slo": _slo(chosen.load.promise)}},
            "pools": [
                {
                    "name": "main",
                    "accelerator": replica.accelerator.name,
                    "gpusPerReplica": split.devices,
                    "replicas": {"min": 1, "max": _SPARE * chosen.replicas},
                }
            ],
        },
    }


def unserved(made: dict[str, Any]) -> Iterator[FieldError]:
    """Fields of a made manifest that workers of this version refuse."""
    service = resolve(read(InferenceService, made))
    yield from unsupported_here(service)
    yield from unmanaged_accelerators(service, CATALOGUE.get)


def _source(model: str) -> str:
    folder = Path(model)
    return f"file://{folder.resolve()}" if folder.is_dir() else "file:///models/" + model


def _slo(promise: LatencyPromise) -> dict[str, Any]:
    slo: dict[str, Any] = {}
    if promise.ttft_s < inf:
        slo["ttft"] = {_quantile(promise.ttft_quantile): duration(promise.ttft_s)}
        if promise.per_prompt_token:
            slo["ttft"]["per1kPromptTokens"] = duration(promise.per_prompt_token * 1000)
    if promise.tpot_s < inf:
        slo["tpot"] = {_quantile(promise.tpot_quantile): duration(promise.tpot_s)}
    for one in promise.also:
        slo[one.metric][_quantile(one.quantile)] = duration(one.seconds)
    return slo


def _quantile(quantile: float) -> str:
    name = f"p{quantile * 100:g}"
    if name not in _QUANTILES:
        raise InvalidInput("--slo", f"a manifest knows {', '.join(_QUANTILES)}, and not {name}; promise one of them")
    return name
