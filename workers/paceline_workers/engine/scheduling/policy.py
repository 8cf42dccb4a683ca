"""Who goes first among the classes. One replaceable function; within a class the order is first come, first served."""

from collections.abc import Callable, Mapping

from paceline_core.registry.enums import RequestClass

PATIENCE = 30.0

Policy = Callable[[Mapping[RequestClass, float]], list[RequestClass]]
"""From how long each class has waited for its turn (seconds; absent if nothing of it waits) to the order of classes."""


def strict_priority(waits: Mapping[RequestClass, float]) -> list[RequestClass]:
    """Most urgent class first, but one passed over for longer than PATIENCE comes before all.

    A turn is an admission, so under endless urgent work a backlog of less urgent work still admits one per PATIENCE.
    """
    return sorted(RequestClass, key=lambda name: waits.get(name, 0.0) <= PATIENCE)
