"""The cold start of a replica by stages, and whether a service's `engine.emulate` is possible. Pure.

Emulated workers and the autoscaler use the stages. Only loading follows from the model; the other stages are
assumptions about an ordinary cluster whose nodes have most of the image's layers. The autoscaler replaces them with
learned times when it has any. Emulation needs names that the catalogue has, and a model that fits.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paceline_core.errors import InvalidInput
from paceline_core.objects.field_errors import FieldError
from paceline_core.objects.resolved import ResolvedEmulation, ResolvedService
from paceline_planner import accelerators, memory, shapes
from paceline_planner.hardware import Accelerator
from paceline_planner.shapes import ModelShape
from paceline_planner.steptime import Caps

SCHEDULE = 1.0
"""Seconds for scheduler and kubelet to place and create a pod on an existing node."""
PULL = 10.0
"""Seconds to fetch the image's changed layers: 5 GB at 500 MB/s."""
WARM = 10.0
"""Seconds to compile kernels, capture graphs and run one step of each size."""


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    seconds: float


def stages(
    shape: ModelShape, accelerator: Accelerator, total_override: float | None = None, *, devices: int = 1
) -> tuple[Stage, ...]:
    """The stages in order. With `total_override` they keep their proportions and add up to that many seconds.

    Raises InvalidInput if it is negative.
    """
    if total_override is not None and total_override < 0:
        raise InvalidInput("coldStart", f"{total_override} seconds is negative; use 0s or more")
    load = shape.weight_bytes / (accelerator.efficiency.load * devices)
    planned = {"schedule": SCHEDULE, "pull": PULL, "load": load, "warm": WARM}
    scale = 1.0 if total_override is None else total_override / sum(planned.values())
    return tuple(Stage(name, seconds * scale) for name, seconds in planned.items())


def refusals(service: ResolvedService) -> Iterator[FieldError]:
    """Faults: names that the planner does not know, or a model that does not fit; none without emulation."""
    if (emulation := service.engine.emulation) is None:
        return
    if unknown := [*unknown_names(emulation)]:
        yield from unknown
    elif (length := service.engine.max_model_len or 1) > (most := shapes.shape(emulation.model).max_context):
        yield FieldError("spec.engine.maxModelLen", f"{length} is over the model's context of {most}; lower it")
    elif not (fit := emulated_fit(service, emulation)).fits:
        yield FieldError("spec.engine.emulate", fit.reason)


def unknown_names(emulation: ResolvedEmulation) -> Iterator[FieldError]:
    """Faults: an accelerator or a model that the planner does not know."""
    asked: Mapping[str, tuple[str, Mapping[str, Any]]] = {
        "accelerator": (emulation.accelerator, accelerators.CATALOGUE),
        "model": (emulation.model, shapes.CATALOGUE),
    }
    for field, (name, catalogue) in asked.items():
        if name not in catalogue:
            message = f"{name!r} cannot be emulated; use one of {', '.join(catalogue)}"
            yield FieldError(f"spec.engine.emulate.{field}", message)


def emulated_fit(service: ResolvedService, emulation: ResolvedEmulation) -> memory.Fit:
    """The numbers of one emulated replica, for at least one sequence of maxModelLen. Raises InvalidInput."""
    engine = service.engine
    return memory.fits(
        shapes.shape(emulation.model),
        accelerators.accelerator(emulation.accelerator),
        context=engine.max_model_len or 1,
        caps=Caps(engine.step_tokens, engine.max_seqs),
    )
