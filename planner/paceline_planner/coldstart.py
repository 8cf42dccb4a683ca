"""The cold start of a replica by stages, as an emulated worker passes them and the autoscaler expects them.

Only loading follows from the model; the other stages are assumptions about an ordinary cluster whose nodes have most
of the image's layers. Learned times replace them in the autoscaler as soon as there are any.
"""

from dataclasses import dataclass

from paceline_core.errors import InvalidInput
from paceline_planner.hardware import Accelerator
from paceline_planner.shapes import ModelShape

SCHEDULE = 1.0
"""Seconds for scheduler and kubelet to place and create a pod on a node that is there."""
PULL = 10.0
"""Seconds to fetch the image's changed layers: 5 GB at 500 MB/s."""
WARM = 10.0
"""Seconds to compile kernels, capture graphs and run one step of each size."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a start: schedule, pull, load or warm."""

    name: str
    seconds: float


def stages(
    shape: ModelShape, accelerator: Accelerator, total_override: float | None = None, *, tensor: int = 1
) -> tuple[Stage, ...]:
    """The stages in order. With `total_override` they keep their proportions and add up to that many seconds.

    Raises InvalidInput if it is negative.
    """
    if total_override is not None and total_override < 0:
        raise InvalidInput("coldStart", f"{total_override} seconds is negative; use 0s or more")
    load = shape.weight_bytes / (accelerator.efficiency.load * tensor)
    planned = {"schedule": SCHEDULE, "pull": PULL, "load": load, "warm": WARM}
    scale = 1.0 if total_override is None else total_override / sum(planned.values())
    return tuple(Stage(name, seconds * scale) for name, seconds in planned.items())
