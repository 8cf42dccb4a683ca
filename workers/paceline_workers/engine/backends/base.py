"""What the loop needs of whatever computes: facts once, then step after step, begun and collected in order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from paceline_core.wire import StepTime
from paceline_workers.engine.kv_cache.attention_window import ALL, AttentionWindow
from paceline_workers.engine.kv_cache.prefetch import Files
from paceline_workers.engine.sampling.grammar_queue import Compiler
from paceline_workers.engine.scheduling import SampledToken, SchedulerLimits, StepPlan
from paceline_workers.messages import PromptLogprob

Pause = Callable[[float], None]
"""Wait that many seconds (0: only look) while loading; raises PeerGone as soon as the API process is gone."""
Alive = Callable[[], None]
"""Report to the API process that a step makes progress; raises PeerGone."""


def unheard() -> None:
    """Without a watchdog."""


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """A loaded backend. `prior` is the step-time model to begin with, `stages` the seconds that loading took.

    `host_pages`: how many pages it can keep outside the device; `page_copy_s`: seconds to bring one back.
    `attention_window`: what all layers need together. `disk`: pages that may be read and written behind those.
    `embedding`: numbers in a vector, 0 if it makes none.
    `grammars`: compiles those of structured output, None where it cannot be had. `defaults`: see `Started`.
    `ahead`: a step computes beside the host's work, so the next one should be planned before it is collected.
    """

    limits: SchedulerLimits
    pages: int
    page_bytes: int
    eos_ids: tuple[int, ...]
    prior: StepTime
    stages: dict[str, float]
    emulated: bool = False
    ahead: bool = False
    grammars: Compiler | None = None
    embedding: int = 0
    host_pages: int = 0
    page_copy_s: float = 0.0
    attention_window: AttentionWindow = ALL
    disk: Files | None = None
    defaults: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepResult:
    """One sample per chunk that samples, in the plan's order; `lateness` in seconds, of emulated steps alone.

    `seconds` that the step took by itself; None where it began with its launch and was over when collected.
    `scores`: for each chunk that has `scored` tokens, how likely the prompt's tokens behind these were.
    """

    samples: list[SampledToken]
    lateness: float = 0.0
    seconds: float | None = None
    scores: list[list[PromptLogprob]] = field(default_factory=list)


class Backend(Protocol):
    """A loaded model and its KV pages. The content of pages is its own; which page holds what is the scheduler's."""

    @property
    def facts(self) -> BackendInfo:
        """What it is and what it can bear."""
        ...

    def launch(self, plan: StepPlan, since: float) -> None:
        """Begin a step at `since` (the loop's clock), or after the one in flight, of which there is at most one.

        Its copies are made in their order, before any chunk is computed. All that is needed of the requests is read
        before this returns; the token of a chunk that is still being drawn comes from the step in flight. What this
        raises costs the plan's requests, and what its copies should have brought.
        """
        ...

    def collect(self, alive: Alive = unheard) -> StepResult:
        """Wait for the oldest step in flight, whose requests know all tokens before the ones to draw now.

        A backend that waits without using the CPU calls `alive` whenever it sees that the step gets on. What this
        raises costs the same, and the step launched after it is dropped.
        """
        ...
