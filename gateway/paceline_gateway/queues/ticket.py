"""A place in a service's queue."""

from dataclasses import dataclass

from paceline_core.registry.enums import RequestClass


@dataclass(slots=True, eq=False)
class Ticket:
    """One waiting or dispatched request. `size` is its body's bytes; `avoid` names workers that failed it."""

    id: int
    request_class: RequestClass
    prompt_tokens: int
    size: int
    deadline: float
    joined: float = 0.0
    stream: bool = True
    avoid: frozenset[str] = frozenset()
