"""From a plan to the fields of a step: which chunk stands in which row.

Chunks of one token come first, in the plan's order, since they attend by another kernel than longer ones. A step of
single tokens alone is padded to a bucket and all its rows draw; in any other one only those whose chunk samples do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from paceline_kernels.paged_prefill import Tiles
from paceline_workers.engine.backends.gpu.prompt_logprobs import ScoredPrompt
from paceline_workers.engine.backends.gpu.step_inputs import NO_ROW, Graphs, Staged, StepShape
from paceline_workers.engine.scheduling import Chunk, Request, StepPlan


@dataclass(frozen=True, slots=True)
class Rows:
    """A plan by rows: `samples` are the rows of `StepInputs.drawn` in which the plan's sampling chunks stand, in its
    order.

    `lacking`: rows whose token is still being drawn, and of which request. `scored`: chunks that report how likely a
    prompt's tokens were, in the plan's order. `tiles` of the chunks of several tokens, which are
    given what `Tiles` says beside its list.
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
    """All that the host knows of the step; `sample_slot` gives the place of a request in the sampler's state."""
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


def _sequences(staged: Staged, chunks: Sequence[Chunk], first: int) -> None:
    fields, places = staged.fields, slice(first, first + len(chunks))
    fields.lengths[places] = [chunk.start + chunk.count for chunk in chunks]
    fields.dropped[places] = [chunk.request.dropped for chunk in chunks]
    staged.table([chunk.request.pages for chunk in chunks], first)


def _singles(staged: Staged, chunks: Sequence[Chunk], page_tokens: int) -> None:
    """One row each; a zero stands for a token that is still being drawn."""
    fields, count = staged.fields, len(chunks)
    _sequences(staged, chunks, 0)
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
    _sequences(staged, rows.chunks[begin:], rows.form.first)
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
