"""The loop's interface to a backend: facts once, then steps, launched and collected in order."""

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
"""Waits a number of seconds (0: only checks) while loading; raises PeerGone as soon as the API process is gone."""
Alive = Callable[[], None]
"""Report to the API process that a step makes progress; raises PeerGone."""


def unheard() -> None:
    """Reports to no one: there is no watchdog."""


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """A loaded backend. `prior` is the initial step-time model, `stages` the seconds that loading took.

    `host_pages`: how many pages it can keep outside the device; `page_copy_s`: seconds to bring one back.
    `attention_window`: the window that covers all layers. `disk`: pages on disk, in addition to those.
    `embedding`: the dimension of an embedding, 0 if it makes none.
    `grammars`: compiles grammars of structured output, None if that is not possible. `defaults`: see `Started`.
    `ahead`: a step computes concurrently with the host, so the next one should be planned before it is collected.
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
    """One sample for each chunk that samples, in the plan's order; `lateness` in seconds, only of emulated steps.

    `seconds` that the step itself took; None: the time from its launch until it was collected.
    `scores`: for each chunk that has `scored` tokens, the likelihood of the prompt's tokens after these.
    """

    samples: list[SampledToken]
    lateness: float = 0.0
    seconds: float | None = None
    scores: list[list[PromptLogprob]] = field(default_factory=list)


class Backend(Protocol):
    """A loaded model and its KV pages. The backend owns the pages' content; the scheduler decides what a page holds."""

    @property
    def facts(self) -> BackendInfo:
        """Its properties and limits."""
        ...

    def launch(self, plan: StepPlan, since: float) -> None:
        """Begin a step at `since` (the loop's clock), or after the one in flight, of which there is at most one.

        Its copies are made in order, before any chunk is computed. It reads all that it needs of the requests before it
        returns; a chunk's token that is still being drawn comes from the step in flight. An exception ends the plan's
        requests, and loses what its copies should have brought.
        """
        ...

    def collect(self, alive: Alive = unheard) -> StepResult:
        """Wait for the oldest step in flight, whose requests know all tokens before the ones to draw now.

        A backend that waits without using the CPU calls `alive` whenever the step progresses. An exception has the same
        effect as in `launch`, and drops the step launched after it.
        """
        ...
