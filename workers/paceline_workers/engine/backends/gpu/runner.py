"""Runs steps on a device: the host lays one out while the one before computes; results come one step late.

A step's tokens that are still being drawn come from device memory where the step before leaves them, so a step is
launched without waiting; requests that have ended see nothing in it. Only if the host must draw such a token
(`sampler`) does the step wait until the one before is collected: its copies are made, and it begins when that token is
known.

Each step in flight has its own staging buffer and memory for results: there are two of both.
The host sleeps while it waits for a step. A step with long chunks reports progress by its layers, so that a kernel that
hangs is noticed as fast as any other hang (`server.watchdog`).
Known holes: more launches behind a kernel that hangs than the driver's queue holds spin, and count as work. A wait in
`launch` for a slot whose file is read or written reports no progress. A step with chunks of several tokens is launched
kernel by kernel, so while requests come and go a small model's steps take as long as the host needs for that.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import normalize

from paceline_kernels.sample.state import SampleOutput
from paceline_workers.engine.backends.base import Alive, StepResult, unheard
from paceline_workers.engine.backends.gpu.cache import GpuCache
from paceline_workers.engine.backends.gpu.decoder import GpuDecoder
from paceline_workers.engine.backends.gpu.device import DeviceEvent
from paceline_workers.engine.backends.gpu.sampler import PromptScorer, SampleReader
from paceline_workers.engine.backends.gpu.step_inputs import NO_ROW, Staged
from paceline_workers.engine.backends.gpu.steps import Rows, Steps
from paceline_workers.engine.kv_cache.offload import Copy, CopyKind
from paceline_workers.engine.sampling import Sampler
from paceline_workers.engine.scheduling import NO_TOKEN, Request, SampledToken, SchedulerLimits, StepPlan


@dataclass(slots=True)
class _Flight:
    """A step. Its requests that sample, by row of what is drawn: those `seated` on the device, and the `others`.

    It begins at `begin`, makes `signs` of progress if it may last long, and is over at `end`. `fault`: why it could not
    begin when the step before it was collected; that step must not fail because of it.
    """

    rows: Rows
    staged: Staged
    seated: dict[Request, int]
    others: dict[Request, int]
    read: SampleOutput
    begin: DeviceEvent | None = None
    signs: list[DeviceEvent] = field(default_factory=list)
    end: DeviceEvent | None = None
    copied: dict[Request, Tensor] = field(default_factory=dict)
    scores: PromptScorer | None = None
    fault: Exception | None = None


class GpuRunner:
    """At most two steps in flight."""

    def __init__(self, decoder: GpuDecoder, cache: GpuCache, sampler: Sampler, limits: SchedulerLimits) -> None:
        self._steps = Steps(decoder, cache, limits)
        self._cache = cache
        self._sampler = sampler
        self._device = decoder.device
        drawn = self._steps.drawing.drawn
        reads = (self._device.pinned(drawn.packed.shape, torch.uint8) for _ in range(2))
        self._reads = [SampleOutput.of(packed, len(drawn.tokens)) for packed in reads]
        self._flights: deque[_Flight] = deque()

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> None:
        """Lay a step out and begin it, unless it needs a token that only the host can draw."""
        flight = self._laid_out(plan)
        self._cache.copy(plan.copies)
        self._cache.hold([chunk.request.pages for chunk in plan.chunks])
        if self._sources_known(flight):
            self._begin(flight)
        self._flights.append(flight)

    @torch.inference_mode()
    def collect(self, alive: Alive = unheard) -> StepResult:
        """Samples of the oldest step. After an exception, nothing is in flight any more."""
        flight, waiting = self._flights.popleft(), list(self._flights)
        self._flights.clear()
        if flight.fault is not None:
            raise flight.fault
        assert flight.begin is not None
        assert flight.end is not None
        for sign in flight.signs:
            sign.wait()
            alive()
        flight.end.wait()
        samples = self._samples(flight)
        for following in waiting:
            if following.begin is None:
                self._go_on(following, samples)
            self._flights.append(following)
        scores = [] if flight.scores is None else flight.scores.read(flight.rows.scored)
        return StepResult(list(samples.values()), seconds=flight.begin.seconds_to(flight.end), scores=scores)

    @torch.inference_mode()
    def warm(self, progress: Callable[[], None]) -> None:
        """Run each kind of step once, so that all kernels are compiled, and record the steps of single tokens.

        Writes pages 0 and 1. Calls `progress` in between, which may raise.
        """
        self._cache.copy([Copy(CopyKind.DEVICE, 0, 1)])
        for plan in self._steps.rehearsals():
            self.launch(plan)
            rows = self._flights[0].rows
            self.collect()
            if rows.tiles is None:
                self._steps.record(rows)
            progress()

    @property
    def _turn(self) -> int:
        """The index of the staging buffer and result memory that no step in flight uses."""
        return self._flights[-1].staged.turn ^ 1 if self._flights else 0

    def _laid_out(self, plan: StepPlan) -> _Flight:
        rows, staged = self._steps.stage(plan, self._turn)
        sample_slots: list[int] = staged.fields.sample_slots.tolist()
        seated: dict[Request, int] = {}
        others: dict[Request, int] = {}
        for request, row in rows.samples.items():
            (others if sample_slots[row] == NO_ROW else seated)[request] = row
        return _Flight(rows, staged, seated, others, self._reads[staged.turn])

    def _sources_known(self, flight: _Flight) -> bool:
        """Set where on the device the tokens that are still being drawn will be; False if some will not be there."""
        before = self._flights[-1].seated if self._flights else {}
        lacking = flight.rows.lacking
        sources = [before.get(request, NO_ROW) for request in lacking]
        if NO_ROW in sources:
            return False
        flight.staged.fields.sources[list(lacking.values())] = sources
        return True

    def _begin(self, flight: _Flight) -> None:
        steps = self._steps
        flight.begin = self._device.mark()
        flight.signs = steps.run(flight.rows, flight.staged)
        if flight.seated:
            flight.read.packed.copy_(steps.drawing.drawn.packed, non_blocking=True)
        for request, row in flight.others.items():
            found = (steps.states if request.embed else steps.logits)[row]
            flight.copied[request] = self._device.pinned(found.shape, found.dtype).copy_(found, non_blocking=True)
        flight.scores = None if steps.scores is None else steps.scores.copied(self._device)
        flight.end = self._device.mark()

    def _go_on(self, flight: _Flight, samples: dict[Request, SampledToken]) -> None:
        """Begin a step with the tokens that it has waited for."""
        for request, row in flight.rows.lacking.items():
            flight.staged.fields.tokens[row] = samples[request].token
        try:
            self._begin(flight)
        except Exception as fault:  # noqa: BLE001 - raised when this step is collected
            flight.fault = fault

    def _samples(self, flight: _Flight) -> dict[Request, SampledToken]:
        """By request, in the plan's order."""
        read = SampleReader(flight.read)
        drawn = {request: read.sample(row, request) for request, row in flight.seated.items()}
        drawn |= self._by_host(flight)
        return {request: drawn[request] for request in flight.rows.samples}

    def _by_host(self, flight: _Flight) -> dict[Request, SampledToken]:
        found: dict[Request, SampledToken] = {}
        asked = [request for request in flight.others if not request.embed]
        if asked or self._sampler.retained:  # any call drops the state of requests that no longer run
            logits = torch.empty((len(asked), self._steps.logits.shape[1]))
            for row, request in zip(logits, asked, strict=True):
                row.copy_(flight.copied[request])
            found = dict(zip(asked, self._sampler(logits.numpy(), asked), strict=True))
        for request in flight.others:
            if request.embed:
                vector = normalize(flight.copied[request].float(), dim=-1)
                found[request] = SampledToken(NO_TOKEN, vector=vector.numpy().tobytes())
        return found
