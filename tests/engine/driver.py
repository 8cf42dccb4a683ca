"""Requests through scheduler and a backend in one process, without sockets."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.engine.manual import ManualTimer
from tests.engine.reference_scheduler import Hopeful, request

from paceline_workers.config import EngineConfig
from paceline_workers.engine.backends.base import Backend
from paceline_workers.engine.backends.cpu.backend import CpuBackend
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling import Request, Scheduler, StepPlan
from paceline_workers.messages import Sampling, Tokens


def load(folder: Path, **engine: Any) -> CpuBackend:
    """The backend over a model folder."""
    timer = ManualTimer()
    config = EngineConfig.model_validate({"page_tokens": 16, "batch_window_s": {}, **engine})
    return CpuBackend.load(config, f"file://{folder}", timer, timer.pause)


class Driver:
    """One engine's life, admitting by hope alone, so that few pages mean preemptions.

    Limits can be narrowed without loading the model again; pages keep what they held. `ahead`: each step is planned
    before the last one's results are in.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        pages: int | None = None,
        cache: bool = True,
        ahead: bool = False,
        **limits: Any,
    ) -> None:
        self.backend = backend
        self.ahead = ahead
        self.flights: deque[StepPlan] = deque()
        bounds = replace(backend.facts.limits, **limits)
        memory = KVCacheManager(
            pages or backend.facts.pages,
            bounds.page_tokens,
            prefix_cache=cache,
            host_pages=backend.facts.host_pages,
            attention_window=backend.facts.attention_window,
            ahead=bounds.step_tokens,
        )
        self.core = Scheduler(memory, bounds, forecast=Hopeful(0))
        self.events: list[Tokens] = []

    def submit(
        self, name: str, prompt: Sequence[int], max_tokens: int, sampling: Sampling | None = None, group: str = ""
    ) -> Request:
        entry = request(name, list(prompt), max_tokens, group=group)
        entry.sampling = sampling or Sampling(temperature=0.0)
        assert self.core.submit(entry) is None
        return entry

    def step(self) -> None:
        plan = self.core.step(0.0)
        if plan.chunks:
            self.backend.launch(plan, 0.0)
            self.flights.append(plan)
        if len(self.flights) > (self.ahead and bool(plan.chunks)):
            self.collect()

    def collect(self) -> None:
        executed = self.backend.collect()
        self.events += self.core.commit(self.flights.popleft(), executed.samples, 0.0, executed.scores)

    def drain(self) -> int:
        while self.core.running or len(self.core.waiting):
            self.step()
        while self.flights:
            self.collect()
        return self.core.counters.steps

    def text(self, name: str) -> list[int]:
        return [token for event in self.events if event.id == name for token in event.ids]
