"""What the loop needs of whatever computes: facts once, then the execution of plan after plan."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from paceline_core.wire import StepTime
from paceline_workers.engine.scheduling import Limits, Plan, Sample

Pause = Callable[[float], None]
"""Wait that many seconds (0: only look) while loading; raises PeerGone as soon as the API process is gone."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A loaded backend. `prior` is the step-time model to begin with, `stages` the seconds that loading took.

    `host_pages`: how many pages it can keep outside the device; `page_copy_s`: seconds to bring one back.
    `grammars`: whether requests may ask for structured output. `defaults`: see `Started`.
    """

    limits: Limits
    pages: int
    page_bytes: int
    eos_ids: tuple[int, ...]
    prior: StepTime
    stages: dict[str, float]
    emulated: bool = False
    grammars: bool = False
    host_pages: int = 0
    page_copy_s: float = 0.0
    defaults: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Executed:
    """One sample per chunk that samples, in the plan's order; `lateness` in seconds, of emulated steps alone."""

    samples: list[Sample]
    lateness: float = 0.0


class Backend(Protocol):
    """A loaded model and its KV pages. The content of pages is its own; which page holds what is the scheduler's."""

    @property
    def facts(self) -> Facts:
        """What it is and what it can bear."""
        ...

    def execute(self, plan: Plan, since: float) -> Executed:
        """Make the plan's copies in order, then compute the step, which began at `since` (the loop's clock).

        Any exception fails the plan's requests, and what the copies should have brought.
        """
        ...
