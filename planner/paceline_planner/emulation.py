"""Whether a service's `engine.emulate` can be carried out: names the catalogue has, a model that fits. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from paceline_core.objects.problems import FieldError
from paceline_core.objects.resolved import ResolvedEmulation, ResolvedService
from paceline_planner import hardware, memory, shapes
from paceline_planner.caps import Caps


def refusals(service: ResolvedService) -> Iterator[FieldError]:
    """Names that the planner does not know, or a model that does not fit; nothing where nothing is emulated."""
    if (emulation := service.engine.emulation) is None:
        return
    if unknown := list(_unknown(emulation)):
        yield from unknown
    elif (length := service.engine.max_model_len or 1) > (most := shapes.shape(emulation.model).max_context):
        yield FieldError("spec.engine.maxModelLen", f"{length} is over the model's context of {most}; lower it")
    elif not (fit := emulated_fit(service, emulation)).fits:
        yield FieldError("spec.engine.emulate", fit.reason)


def emulated_fit(service: ResolvedService, emulation: ResolvedEmulation) -> memory.Fit:
    """The numbers of one emulated replica, for at least one sequence of maxModelLen. Raises InvalidInput."""
    engine = service.engine
    return memory.fits(
        shapes.shape(emulation.model),
        hardware.accelerator(emulation.accelerator),
        context=engine.max_model_len or 1,
        caps=Caps(engine.step_tokens, engine.max_seqs),
    )


def _unknown(emulation: ResolvedEmulation) -> Iterator[FieldError]:
    asked: Mapping[str, tuple[str, Mapping[str, Any]]] = {
        "accelerator": (emulation.accelerator, hardware.CATALOGUE),
        "model": (emulation.model, shapes.CATALOGUE),
    }
    for field, (name, catalogue) in asked.items():
        if name not in catalogue:
            message = f"{name!r} cannot be emulated; use one of {', '.join(catalogue)}"
            yield FieldError(f"spec.engine.emulate.{field}", message)
