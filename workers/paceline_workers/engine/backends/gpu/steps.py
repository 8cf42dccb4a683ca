"""One step on a device: from what the host lays out to states, logits and tokens there.

Everything that a step reads or writes lies where the step before had it, so that the same work can be recorded once for
each size of a batch of single tokens; what has longer chunks runs as it comes.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from paceline_kernels.paged_prefill import Tiles
from paceline_kernels.paging import Sequences
from paceline_workers.engine.backends.gpu.cache import GpuCache
from paceline_workers.engine.backends.gpu.decoder import GpuDecoder, Spans, Step
from paceline_workers.engine.backends.gpu.device import DeviceEvent
from paceline_workers.engine.backends.gpu.layout import Rows, fill
from paceline_workers.engine.backends.gpu.prompt_logprobs import PromptScorer
from paceline_workers.engine.backends.gpu.prompt_logprobs import ScoreRows as ScoredRows
from paceline_workers.engine.backends.gpu.sampler import DeviceSampler
from paceline_workers.engine.backends.gpu.step_inputs import Buffers, Graphs, Staged, StepInputs, StepShape
from paceline_workers.engine.scheduling import Chunk, Request, SchedulerLimits, StepPlan
from paceline_workers.messages import Sampling

SPANS = (2, 4, 8, 16, 32, 64, 128)
"""Lengths of chunks that a warm-up tries: with however many heads in a group, tiles of all sizes are compiled by it."""


class Steps:
    """`drawing`, `states` [rows, hidden], `logits` [rows, vocabulary] and `scores` hold what the last step has left."""

    def __init__(self, decoder: GpuDecoder, cache: GpuCache, limits: SchedulerLimits) -> None:
        shape, device = decoder.config.shape, decoder.device
        most, pages = limits.slots, limits.pages(limits.max_model_len)
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
        """Send it to the device and begin; marks within it, by which to see that one with long chunks gets on."""
        self._buffers.send(staged)
        signs: list[DeviceEvent] = []
        passed = None if rows.tiles is None else lambda: signs.append(self._decoder.device.mark())
        scored = ScoredRows.of(rows.scored, self._decoder.device) if rows.scored else None
        beside = None if scored is None or rows.tiles is None else self._room(scored)
        self._graphs.run(rows.form, partial(self._compute, rows.form, rows.tiles, passed, beside))
        self.scores = None if scored is None else PromptScorer.of(scored, partial(self._logits, scored, beside))
        return signs

    def _room(self, scored: ScoredRows) -> tuple[Tensor, Tensor]:
        """The rows of a step with long chunks whose states are wanted besides, and where they go."""
        return scored.rows, self.states.new_empty(len(scored.rows), self.states.shape[1])

    def _logits(self, scored: ScoredRows, beside: tuple[Tensor, Tensor] | None, part: slice) -> Tensor:
        """Of some scored rows; a step of single tokens has them all."""
        if beside is None:
            return self.logits.index_select(0, scored.rows[part])
        states = beside[1][part]
        return self._decoder.logits(states, out=self.logits.new_empty(len(states), self.logits.shape[1]))

    def record(self, rows: Rows) -> None:
        """Of single tokens alone, and it has been run."""
        self._graphs.record(rows.form, partial(self._compute, rows.form, None, None))

    def rehearsals(self) -> Iterator[StepPlan]:
        """One step of each kind, the largest first: after these no step needs a kernel that is not compiled.

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
        """What is on the device becomes states, logits and tokens there; nothing else is read."""
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
