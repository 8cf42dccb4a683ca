"""One step on a device: from a plan to its rows, and from those to states, logits and tokens.

Chunks of one token come first, in the plan's order, because another kernel computes their attention. A step of only
single tokens is padded to a bucket and all its rows draw; in any other step only chunks that sample draw. Everything
that a step reads or writes stays at a fixed address, so that the same work can be recorded once for each size of a
batch of single tokens; steps with longer chunks run unrecorded.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from paceline_kernels.paged_prefill import Tiles
from paceline_kernels.paging import Sequences
from paceline_workers.engine.backends.gpu.cache import GpuCache
from paceline_workers.engine.backends.gpu.decoder import GpuDecoder, Spans, Step
from paceline_workers.engine.backends.gpu.device import DeviceEvent
from paceline_workers.engine.backends.gpu.sampler import DeviceSampler, PromptScorer, ScoredPrompt, ScoreRows
from paceline_workers.engine.backends.gpu.step_inputs import NO_ROW, Buffers, Graphs, Staged, StepInputs, StepShape
from paceline_workers.engine.scheduling import Chunk, Request, SchedulerLimits, StepPlan
from paceline_workers.messages import Sampling


@dataclass(frozen=True, slots=True)
class Rows:
    """A plan by rows: `samples` are the rows of `StepInputs.drawn` of the plan's sampling chunks, in its order.

    `lacking`: rows whose token is still being drawn, and by which request. `scored`: chunks that score a prompt's
    tokens, in the plan's order. `tiles`: those of the chunks of several tokens, whose kernel gets the list and the rest
    of `Tiles`.
    """

    form: StepShape
    chunks: tuple[Chunk, ...]
    samples: Mapping[Request, int]
    lacking: Mapping[Request, int]
    tiles: Tiles | None
    scored: tuple[ScoredPrompt, ...] = ()

    @classmethod
    def of(cls, plan: StepPlan, graphs: Graphs, group: int) -> "Rows":
        """`plan.chunks` must not be empty; `group` query heads share a kv head."""
        singles = [chunk for chunk in plan.chunks if chunk.count == 1]
        spans = [chunk for chunk in plan.chunks if chunk.count > 1]
        chunks = (*singles, *spans)
        starts = np.cumsum([chunk.count for chunk in chunks]).tolist()
        lacking = {
            chunk.request: end - 1
            for chunk, end in zip(chunks, starts, strict=True)
            if chunk.start + chunk.count > len(chunk.request.tokens)
        }
        scored = _scored(plan, chunks, starts)
        if not spans:
            samples = {chunk.request: row for row, chunk in enumerate(chunks) if chunk.samples}
            return cls(graphs.form(len(chunks)), chunks, samples, lacking, None, scored)
        drawn = {chunk.request: row for row, chunk in enumerate(chunk for chunk in chunks if chunk.samples)}
        tiles = Tiles.of([chunk.count for chunk in spans], [chunk.start + chunk.count for chunk in spans], "cpu", group)
        pages = max(len(chunk.request.pages) for chunk in chunks)
        form = StepShape.of(starts[-1], len(singles), len(spans), len(drawn), len(tiles.list), pages)
        samples = {chunk.request: drawn[chunk.request] for chunk in plan.chunks if chunk.samples}
        return cls(form, chunks, samples, lacking, tiles, scored)


def _scored(plan: StepPlan, chunks: Sequence[Chunk], ends: Sequence[int]) -> tuple[ScoredPrompt, ...]:
    if not any(chunk.scored for chunk in plan.chunks):
        return ()
    first = {chunk.request: end - chunk.count for chunk, end in zip(chunks, ends, strict=True)}
    return tuple(
        ScoredPrompt(
            first[chunk.request],
            chunk.request.tokens[chunk.start + 1 : chunk.start + 1 + chunk.scored],
            chunk.request.prompt_logprobs,
        )
        for chunk in plan.chunks
        if chunk.scored
    )


def fill(staged: Staged, rows: Rows, page_tokens: int, sample_slot: Callable[[Request], int]) -> None:
    """Fill in what the host knows of the step; `sample_slot` gives a request's slot in the sampler's state."""
    fields, chunks, singles = staged.fields, rows.chunks, rows.form.singles
    if not rows.form.spans:
        staged.pad(len(chunks))
        _singles(staged, chunks, page_tokens)
        drawing = chunks
    else:
        _singles(staged, chunks[:singles], page_tokens)
        _spans(staged, rows, page_tokens)
        drawing = tuple(chunk for chunk in chunks if chunk.samples)
    fields.sample_slots[: len(drawing)] = [sample_slot(chunk.request) if chunk.samples else NO_ROW for chunk in drawing]
    fields.counts[: len(drawing)] = [chunk.start + chunk.count for chunk in drawing]


def _fill_sequences(staged: Staged, chunks: Sequence[Chunk], first: int) -> None:
    fields, places = staged.fields, slice(first, first + len(chunks))
    fields.lengths[places] = [chunk.start + chunk.count for chunk in chunks]
    fields.dropped[places] = [chunk.request.dropped for chunk in chunks]
    staged.table([chunk.request.pages for chunk in chunks], first)


def _singles(staged: Staged, chunks: Sequence[Chunk], page_tokens: int) -> None:
    """One row each; zero replaces a token that is still being drawn."""
    fields, count = staged.fields, len(chunks)
    _fill_sequences(staged, chunks, 0)
    starts = [chunk.start for chunk in chunks]
    texts = [chunk.request.tokens for chunk in chunks]
    places = zip(chunks, starts, strict=True)
    pages = [chunk.request.pages[start // page_tokens - chunk.request.dropped] for chunk, start in places]
    fields.tokens[:count] = [
        tokens[start] if start < len(tokens) else 0 for tokens, start in zip(texts, starts, strict=True)
    ]
    positions = fields.positions[:count]
    positions[:] = starts
    fields.slots[:count] = np.array(pages) * page_tokens + positions % page_tokens
    fields.sources[:count] = NO_ROW


def _spans(staged: Staged, rows: Rows, page_tokens: int) -> None:
    fields, begin = staged.fields, rows.form.singles
    _fill_sequences(staged, rows.chunks[begin:], rows.form.first)
    fields.starts[0] = 0
    for number, chunk in enumerate(rows.chunks[begin:], 1):
        end = begin + chunk.count
        positions = np.arange(chunk.start, chunk.start + chunk.count)
        tokens = chunk.request.tokens[chunk.start : chunk.start + chunk.count]
        fields.tokens[begin:end] = tokens if len(tokens) == chunk.count else [*tokens, 0]
        fields.positions[begin:end] = positions
        pages = np.array(chunk.request.pages)[positions // page_tokens - chunk.request.dropped]
        fields.slots[begin:end] = pages * page_tokens + positions % page_tokens
        fields.starts[number] = end - rows.form.singles
        begin = end
    fields.sources[rows.form.singles :] = NO_ROW
    ends = np.cumsum([chunk.count for chunk in rows.chunks]) - 1
    fields.drawn[:] = [end for chunk, end in zip(rows.chunks, ends, strict=True) if chunk.samples]
    assert rows.tiles is not None
    fields.tiles[:] = _array(rows.tiles.list)


def _array(tensor: Tensor) -> "np.ndarray[tuple[int, ...], np.dtype[np.int32]]":
    array: np.ndarray[tuple[int, ...], np.dtype[np.int32]] = tensor.numpy()
    return array


SPANS = (2, 4, 8, 16, 32, 64, 128)
"""Chunk lengths of a warm-up: for any number of heads in a group, they compile tiles of all sizes."""


class Steps:
    """`drawing`, `states` [rows, hidden], `logits` [rows, vocabulary] and `scores` hold the last step's results."""

    def __init__(self, decoder: GpuDecoder, cache: GpuCache, limits: SchedulerLimits) -> None:
        shape, device = decoder.config.shape, decoder.device
        most, pages = limits.max_seqs, limits.pages(limits.max_model_len)
        self.drawing = DeviceSampler(most, shape.vocab, device, decoder.kernels)
        self.states, self.logits = decoder.room(most)
        self._decoder = decoder
        self._cache = cache
        self._limits = limits
        self._group = shape.heads // shape.kv_heads
        tiles = limits.step_tokens * self._group
        self._buffers = Buffers(device, StepShape.of(limits.step_tokens, most, most, most, tiles, pages))
        self._graphs = Graphs(device, most, pages)
        self._works = decoder.works(most)
        self.scores: PromptScorer | None = None

    def stage(self, plan: StepPlan, turn: int) -> tuple[Rows, Staged]:
        """Lay a plan out on the host, in one of the two staging buffers."""
        rows = Rows.of(plan, self._graphs, self._group)
        staged = self._buffers.stage(rows.form, turn)
        self.drawing.renew()
        fill(staged, rows, self._cache.page_tokens, self.drawing.sample_slot)
        return rows, staged

    def run(self, rows: Rows, staged: Staged) -> list[DeviceEvent]:
        """Send it to the device and begin; returns marks within it, which show the progress of long chunks."""
        self._buffers.send(staged)
        signs: list[DeviceEvent] = []
        passed = None if rows.tiles is None else lambda: signs.append(self._decoder.device.mark())
        scored = ScoreRows.of(rows.scored, self._decoder.device) if rows.scored else None
        beside = None if scored is None or rows.tiles is None else self._room(scored)
        self._graphs.run(rows.form, partial(self._compute, rows.form, rows.tiles, passed, beside))
        self.scores = None if scored is None else PromptScorer.of(scored, partial(self._logits, scored, beside))
        return signs

    def _room(self, scored: ScoreRows) -> tuple[Tensor, Tensor]:
        """The rows of a step with long chunks whose states are also needed, and the memory for these."""
        return scored.rows, self.states.new_empty(len(scored.rows), self.states.shape[1])

    def _logits(self, scored: ScoreRows, beside: tuple[Tensor, Tensor] | None, part: slice) -> Tensor:
        """The logits of some scored rows; a step of single tokens has them all."""
        if beside is None:
            return self.logits.index_select(0, scored.rows[part])
        states = beside[1][part]
        return self._decoder.logits(states, out=self.logits.new_empty(len(states), self.logits.shape[1]))

    def record(self, rows: Rows) -> None:
        """Record a step of only single tokens, which must have run before."""
        self._graphs.record(rows.form, partial(self._compute, rows.form, None, None))

    def rehearsals(self) -> Iterator[StepPlan]:
        """One step of each kind, the largest first: after these, no step needs a kernel that is not compiled.

        They write into page 0.
        """
        longest = min(self._limits.step_tokens, self._limits.max_model_len)
        for count in sorted({min(count, longest) for count in (*SPANS, longest)}, reverse=True):
            yield self._rehearsal(1, count)
        for form in reversed(self._graphs.forms):
            yield self._rehearsal(form.singles, 1)

    def _rehearsal(self, chunks: int, count: int) -> StepPlan:
        pages = [0] * self._limits.pages(count)
        sampling = Sampling(temperature=0.0)
        requests = [Request(f"warm{place}", count, [0] * count, 1, sampling, 0.0) for place in range(chunks)]
        for request in requests:
            request.pages = pages
        return StepPlan(tuple(Chunk(request, 0, count, True) for request in requests))

    def _compute(
        self,
        form: StepShape,
        tiles: Tiles | None,
        passed: Callable[[], None] | None,
        scored: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """Compute states, logits and tokens from what is on the device; reads nothing else."""
        fields = self._buffers.inputs(form)
        drawn, sources = self.drawing.drawn, fields.sources
        tokens = torch.where(sources < 0, fields.tokens, drawn.tokens[sources])
        # a request that has just ended is still in this step: its row sees nothing, instead of its whole context
        fields.lengths[: form.singles].masked_fill_(drawn.stopped[sources[: form.singles]], 0)
        spans = None
        if tiles is not None:
            spans = Spans(fields.starts, _sequences(fields, slice(form.first, None)), replace(tiles, list=fields.tiles))
        singles = _sequences(fields, slice(form.singles))
        step = Step(tokens, fields.positions, fields.slots, fields.drawn, singles, spans, self._works)
        states, logits = self.states[: form.drawn], self.logits[: form.drawn]
        self._decoder.states(step, self._cache.layers, out=states, passed=passed, scored=scored)
        if form.drawn:
            self._decoder.logits(states, out=logits)
            self.drawing.draw(logits, fields.sample_slots, fields.counts)


def _sequences(fields: StepInputs[Tensor], places: slice) -> Sequences:
    return Sequences(fields.table[places], fields.lengths[places], fields.dropped[places])
