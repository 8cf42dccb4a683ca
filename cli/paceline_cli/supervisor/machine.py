"""What a valid service asks for that `paceline up` cannot give on this machine: refused by field, before any start."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paceline_core.launch import unsupported
from paceline_core.objects import Problem, ResolvedService
from paceline_planner import hardware, memory, shapes
from paceline_planner.caps import Caps

FILE = "file://"


def refusals(service: ResolvedService) -> Iterator[Problem]:
    """Every reason, in the order of causes: the version, the cluster that is missing, the catalogue, the disk."""
    yield from unsupported(service)
    yield from _clusterbound(service)
    yield from _unknown(service)
    yield from _missing(service)


def _clusterbound(service: ResolvedService) -> Iterator[Problem]:
    for index, variable in enumerate(service.runtime.env):
        if variable.value_from is not None:
            field = f"spec.runtime.env[{index}].valueFrom"
            yield Problem(field, "local mode has no Secrets or ConfigMaps; write the value itself as `value`")


def _unknown(service: ResolvedService) -> Iterator[Problem]:
    """What the planner cannot emulate: names it does not have, a model that does not fit."""
    if (emulation := service.engine.emulation) is None:
        return
    asked: Mapping[str, tuple[str, Mapping[str, Any]]] = {
        "accelerator": (emulation.accelerator, hardware.CATALOGUE),
        "model": (emulation.model, shapes.CATALOGUE),
    }
    unknown = {field: pair for field, pair in asked.items() if pair[0] not in pair[1]}
    for field, (name, catalogue) in unknown.items():
        message = f"{name!r} cannot be emulated; use one of {', '.join(catalogue)}"
        yield Problem(f"spec.engine.emulate.{field}", message)
    if not unknown:
        yield from _too_large(service, shapes.shape(emulation.model), hardware.accelerator(emulation.accelerator))


def _too_large(service: ResolvedService, shape: shapes.ModelShape, device: hardware.Accelerator) -> Iterator[Problem]:
    engine = service.engine
    length, caps = engine.max_model_len or 1, Caps(engine.step_tokens, engine.max_seqs)
    if length > shape.max_context:
        yield Problem(
            "spec.engine.maxModelLen", f"{length} is over the model's context of {shape.max_context}; lower it"
        )
    elif not (fit := memory.fits(shape, device, context=length, caps=caps)).fits:
        yield Problem("spec.engine.emulate", fit.reason)


def _missing(service: ResolvedService) -> Iterator[Problem]:
    source = service.model.source
    folder = Path(source.removeprefix(FILE))
    if source.startswith(FILE) and not service.emulated and not folder.is_dir():
        yield Problem("spec.model.source", f"{folder} is not a folder on this machine; put the model's files there")
