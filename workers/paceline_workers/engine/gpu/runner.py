"""Steps on a device: laid out by the host while the one before computes, drawn there, results one step late.

A step's tokens that are still being drawn come from where the step before leaves them on the device, so it is launched
without waiting for anything. Only where the host must draw such a token (`drawing`) does a step wait until the one
before is collected: its copies are made, and it begins when that token is known.

Each step in flight has a staging buffer and a place for its results of its own: there are two of both.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import normalize

from paceline_kernels.paging import Sequences
from paceline_kernels.sample.state import Drawn
from paceline_workers.engine.backend import Executed
from paceline_workers.engine.gpu.buffers import NOBODY, Buffers, Fields, Form, Staged
from paceline_workers.engine.gpu.cache import GpuCache
from paceline_workers.engine.gpu.decoder import GpuDecoder, Spans, Step
from paceline_workers.engine.gpu.device import Mark
from paceline_workers.engine.gpu.drawing import Drawing, Read
from paceline_workers.engine.gpu.graphs import Graphs
from paceline_workers.engine.gpu.layout import Rows, fill
from paceline_workers.engine.memory.copies import Copy, CopyKind
from paceline_workers.engine.sampling import Sampler
from paceline_workers.engine.scheduling import NO_TOKEN, Chunk, Limits, Plan, Request, Sample
from paceline_workers.messages import Sampling

_SPANS = (2, 8, 16, 32, 64, 128)
"""Lengths of chunks that the warm-up tries, since kernels for prefill are compiled by it."""


@dataclass(slots=True)
class _Flight:
    """A step. Of the requests that sample, by row of what is drawn: those `seated` on the device, and the `others`."""

    rows: Rows
    staged: Staged
    seated: dict[Request, int]
    others: dict[Request, int]
    read: Drawn
    begin: Mark | None = None
    end: Mark | None = None
    copied: dict[Request, Tensor] = field(default_factory=dict)


class GpuRunner:
    """At most two steps in flight."""

    def __init__(self, decoder: GpuDecoder, cache: GpuCache, sampler: Sampler, limits: Limits) -> None:
        shape, device = decoder.config.shape, decoder.device
        most, pages = limits.slots, limits.pages(limits.max_model_len)
        self._decoder = decoder
        self._cache = cache
        self._sampler = sampler
        self._device = device
        self._limits = limits
        self._group = shape.heads // shape.kv_heads
        self._graphs = Graphs(device, most, pages)
        self._buffers = Buffers(
            device, Form.of(limits.step_tokens, most, most, most, limits.step_tokens * self._group, pages)
        )
        self._drawing = Drawing(most, shape.vocab, device, decoder.kernels)
        self._works = decoder.works(most)
        self._states, self._logits = decoder.room(most)
        size = self._drawing.drawn.packed.shape
        self._reads = [Drawn.of(device.pinned(size, torch.uint8), most) for _ in range(2)]
        self._flights: deque[_Flight] = deque()

    @torch.inference_mode()
    def launch(self, plan: Plan) -> None:
        """Lay a step out and begin it, unless it needs a token that only the host can draw."""
        flight = self._laid_out(plan)
        self._cache.copy(plan.copies)
        self._cache.hold([chunk.request.pages for chunk in plan.chunks])
        if self._told(flight):
            self._begin(flight)
        self._flights.append(flight)

    @torch.inference_mode()
    def collect(self) -> Executed:
        """Samples of the oldest step. If it raises, nothing is in flight any more."""
        flight, waiting = self._flights.popleft(), list(self._flights)
        self._flights.clear()
        assert flight.begin is not None
        assert flight.end is not None
        flight.end.wait()
        samples = self._samples(flight)
        for following in waiting:
            if following.begin is None:
                for request, row in following.rows.lacking.items():
                    following.staged.fields.tokens[row] = samples[request].token
                self._begin(following)
            self._flights.append(following)
        return Executed(list(samples.values()), seconds=flight.begin.seconds_to(flight.end))

    def warm(self, progress: Callable[[], None]) -> None:
        """Run each kind of step once, so that all kernels are compiled, and record those of single tokens.

        Pages 0 and 1 are written. `progress` is called in between and may raise.
        """
        self._cache.copy([Copy(CopyKind.DEVICE, 0, 1)])
        longest = min(self._limits.step_tokens, self._limits.max_model_len)
        for count in sorted({min(count, longest) for count in (*_SPANS, longest)}, reverse=True):
            self._try(1, count)
            progress()
        for form in reversed(self._graphs.forms):
            self._try(form.singles, 1)
            with torch.inference_mode():
                self._graphs.record(form, partial(self._compute, form))
            progress()

    def _try(self, chunks: int, count: int) -> None:
        pages = [0] * self._limits.pages(count)
        sampling = Sampling(temperature=0.0)
        requests = [Request(f"warm{place}", count, [0] * count, 1, sampling, 0.0) for place in range(chunks)]
        for request in requests:
            request.pages = pages
        self.launch(Plan(tuple(Chunk(request, 0, count, True) for request in requests)))
        self.collect()

    def _laid_out(self, plan: Plan) -> _Flight:
        rows = Rows.of(plan, self._graphs, self._group)
        staged = self._buffers.stage(rows.form)
        self._drawing.renew()
        fill(staged, rows, self._cache.page_tokens, self._drawing.seat)
        seats = staged.fields.seats
        seated = {request: row for request, row in rows.samples.items() if seats[row] != NOBODY}
        others = {request: row for request, row in rows.samples.items() if seats[row] == NOBODY}
        return _Flight(rows, staged, seated, others, self._reads[staged.turn])

    def _told(self, flight: _Flight) -> bool:
        """Say where on the device the tokens will be that are still being drawn; False if some will not."""
        before = self._flights[-1].seated if self._flights else {}
        lacking = flight.rows.lacking
        if not lacking.keys() <= before.keys():
            return False
        for request, row in lacking.items():
            flight.staged.fields.sources[row] = before[request]
        return True

    def _begin(self, flight: _Flight) -> None:
        flight.begin = self._device.mark()
        self._buffers.send(flight.staged)
        form = flight.rows.form
        self._graphs.run(form, partial(self._compute, form, flight.rows))
        if flight.seated:
            flight.read.packed.copy_(self._drawing.drawn.packed, non_blocking=True)
        for request, row in flight.others.items():
            found = (self._states if request.embed else self._logits)[row]
            flight.copied[request] = self._device.pinned(found.shape, found.dtype).copy_(found, non_blocking=True)
        flight.end = self._device.mark()

    def _compute(self, form: Form, rows: Rows | None = None) -> None:
        """What is on the device becomes states, logits and tokens there; nothing else is read."""
        fields = self._buffers.inputs(form)
        drawn = self._drawing.drawn.tokens[fields.sources.clamp(min=0)]
        tokens = torch.where(fields.sources < 0, fields.tokens, drawn)
        singles, tiles = form.singles, None if rows is None else rows.tiles
        spans = None
        if tiles is not None:
            spans = Spans(fields.starts, _sequences(fields, slice(form.first, None)), replace(tiles, list=fields.tiles))
        first = _sequences(fields, slice(singles))
        step = Step(tokens, fields.positions, fields.slots, fields.drawn, first, spans, self._works)
        states, logits = self._states[: form.drawn], self._logits[: form.drawn]
        self._decoder.states(step, self._cache.layers, out=states)
        if form.drawn:
            self._decoder.logits(states, out=logits)
            self._drawing.draw(logits, fields.seats, fields.counts)

    def _samples(self, flight: _Flight) -> dict[Request, Sample]:
        """By request, in the plan's order."""
        read = Read(flight.read)
        drawn = {request: read.sample(row, request) for request, row in flight.seated.items()}
        drawn |= self._by_host(flight)
        return {request: drawn[request] for request in flight.rows.samples}

    def _by_host(self, flight: _Flight) -> dict[Request, Sample]:
        found = {}
        asked = [request for request in flight.others if not request.embed]
        if asked:
            logits = torch.stack([flight.copied[request].float() for request in asked])
            found = dict(zip(asked, self._sampler(logits.numpy(), asked), strict=True))
        for request in flight.others:
            if request.embed:
                vector = normalize(flight.copied[request].float(), dim=-1)
                found[request] = Sample(NO_TOKEN, vector=vector.numpy().tobytes())
        return found


def _sequences(fields: Fields[Tensor], places: slice) -> Sequences:
    return Sequences(fields.table[places], fields.lengths[places], fields.dropped[places])
