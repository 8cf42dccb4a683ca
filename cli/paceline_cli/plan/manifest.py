"""A plan as an InferenceService, to apply or to edit: from the options, or from the file's own service."""

from collections.abc import Iterator
from copy import deepcopy
from math import inf
from pathlib import Path
from typing import Any

from paceline_cli.plan.inputs import Subject, promise_of
from paceline_core.errors import InvalidInput
from paceline_core.objects import API_VERSION, FieldError, InferenceService, ResolvedService, read, resolve
from paceline_core.registry import RequestClass
from paceline_core.units import duration
from paceline_local.preflight import unsupported_here
from paceline_planner.accelerators import CATALOGUE
from paceline_planner.candidates import PlannedPool
from paceline_planner.goodput import LatencyPromise
from paceline_planner.service_devices import unmanaged_accelerators
from paceline_planner.shapes import ModelShape
from paceline_planner.splits import DeviceSplit

_QUANTILES = ("p50", "p90", "p95", "p99")
_SPARE = 2
"""The pool may grow to so many times the planned replicas."""


def manifest(chosen: PlannedPool, subject: Subject, model: str, request_class: RequestClass) -> dict[str, Any]:
    """One pool of the planned replicas; a service of a file keeps all that was not planned. Raises InvalidInput."""
    if subject.service is not None:
        return _replanned(chosen, subject, subject.service, request_class)
    replica, split = chosen.replica, chosen.replica.split
    source = _source(model)
    quantization = replica.shape.quantization
    engine: dict[str, Any] = {"maxSeqs": replica.caps.sequences, "stepTokens": replica.caps.step_tokens}
    if split.devices > 1:
        engine["parallel"] = _parallel(split)
    if replica.shape.kv_dtype.size == 1:
        engine["kvCache"] = {"dtype": replica.shape.kv_dtype.value}
    name = subject.name.lower().replace(".", "-").replace("_", "-")
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": "default"},
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


def _replanned(
    chosen: PlannedPool, subject: Subject, service: ResolvedService, request_class: RequestClass
) -> dict[str, Any]:
    """The file's own document; only what was planned differs."""
    _check_covered(service, request_class)
    made = deepcopy(dict(subject.document))
    spec, replica, split = made["spec"], chosen.replica, chosen.replica.split
    engine = {name: value for name, value in (spec.get("engine") or {}).items() if name != "parallel"}
    if split.devices > 1:
        engine["parallel"] = _parallel(split)
    if replica.caps.sequences != service.engine.max_seqs:
        engine["maxSeqs"] = replica.caps.sequences
    if replica.caps.step_tokens != service.engine.step_tokens:
        engine["stepTokens"] = replica.caps.step_tokens
    if replica.shape.kv_dtype.size == 1:
        engine["kvCache"] = {**(engine.get("kvCache") or {}), "dtype": replica.shape.kv_dtype.value}
    if engine:
        spec["engine"] = engine
    if replica.shape.quantization is not None and replica.shape.quantization.name != service.model.quantization:
        spec["model"]["quantization"] = replica.shape.quantization.name
    if chosen.load.promise != promise_of(service.classes[request_class].targets):
        spec.setdefault("classes", {}).setdefault(request_class.value, {})["slo"] = _slo(chosen.load.promise)
    (pool,) = spec["pools"]
    pool["accelerator"] = replica.accelerator.name
    pool["replicas"] = {**(pool.get("replicas") or {}), "min": 1, "max": _SPARE * chosen.replicas}
    if split.devices > 1 or service.pools[0].gpus > 1:
        pool["gpusPerReplica"] = split.devices
    return made


def _check_covered(service: ResolvedService, request_class: RequestClass) -> None:
    """Raises InvalidInput if the plan is not of the whole service."""
    others = [name for name, one in service.classes.items() if one.targets and name != request_class]
    problem = ""
    if service.engine.emulation is not None:
        problem = "emulates its engine, and the plan is of what it emulates"
    elif len(service.pools) > 1:
        problem = "has several pools, and the plan is of one"
    elif others:
        problem = f"also promises something to {', '.join(others)}, and the plan is of {request_class} alone"
    if problem:
        raise InvalidInput("--format", f"{service.key} {problem}; use -o table, and edit the file")


def _parallel(split: DeviceSplit) -> dict[str, int]:
    degrees = {"tensor": split.tensor, "pipeline": split.pipeline, "expert": split.expert}
    return {name: degree for name, degree in degrees.items() if degree > 1}


def unserved(made: dict[str, Any], shape: ModelShape) -> Iterator[FieldError]:
    """Fields of a made manifest that workers of this version refuse."""
    if shape.experts is not None:
        yield FieldError(
            "spec.model.source", "workers compute no mixture of experts in this version; use a dense model"
        )
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
