"""The model of `engine.model.decoder` on a GPU: the same weights and formulas, with kernels between the products.

The residual sum is float32; products are torch's (cuBLAS) in the weights' type. Each kernel gets the memory that it
writes, the same for all layers; if a step is recorded into a graph, that memory is the graph's. Padding rows
(`step_inputs`) are computed like all others, but attend to nothing and write nothing.

The kernels of a step are one argument: tests pass reference implementations, which need no interpreter.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline_kernels.add_rmsnorm.launch import add_rmsnorm
from paceline_kernels.paged_decode.launch import launch_for, paged_decode
from paceline_kernels.paged_prefill import Tiles, paged_prefill
from paceline_kernels.paging import AttentionMask, Pages, Sequences
from paceline_kernels.rope_append.launch import rope_append
from paceline_kernels.sample.launch import sample
from paceline_kernels.sample.state import SampleOutput
from paceline_kernels.silu_mul.launch import silu_mul
from paceline_kernels.work_list.launch import Work, plan_work
from paceline_workers.engine.backends.gpu.device import Device
from paceline_workers.engine.kv_cache.attention_window import AttentionWindow
from paceline_workers.engine.model.decoder import Decoder
from paceline_workers.engine.model.weights import TORCH_TYPES


@dataclass(frozen=True, slots=True)
class Kernels:
    """Each field is called with the arguments of its default."""

    add_rmsnorm: Callable[..., Tensor] = add_rmsnorm
    rope_append: Callable[..., Tensor] = rope_append
    silu_mul: Callable[..., Tensor] = silu_mul
    plan_work: Callable[..., None] = plan_work
    paged_decode: Callable[..., Tensor] = paged_decode
    paged_prefill: Callable[..., Tensor] = paged_prefill
    sample: Callable[..., SampleOutput] = sample


LAUNCHES = Kernels()

SIGN_LAYERS = 4
"""After this many layers, a step that may last long reports progress."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Chunks of several tokens: rows `starts[i]` to `starts[i + 1]` after the singles are the last of sequence i."""

    starts: Tensor
    sequences: Sequences
    tiles: Tiles


@dataclass(frozen=True, slots=True)
class Step:
    """The device inputs of one pass: one row for each token, chunks of one token (`singles`) before all others.

    tokens, positions, slots [rows] int64: where a row's keys and values go, page * page_tokens + place; -1: nowhere.
    drawn [drawn rows] int64: the rows whose next token is needed. `works`: by attention window, for the singles.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    drawn: Tensor
    singles: Sequences
    spans: Spans | None
    works: Mapping[AttentionWindow, Work]


class GpuDecoder:
    """`model`: with its tensors on the device; `longest`: tokens of the longest text."""

    def __init__(self, model: Decoder, device: Device, longest: int, kernels: Kernels = LAUNCHES) -> None:
        self.config = model.config
        self.device = device
        self._model = model
        self.kernels = kernels
        half = model.config.shape.head_dim // 2
        cos, sin = model.config.rope.angles(torch.arange(longest))
        self._cos, self._sin = (part[:, 0, half:].contiguous().to(device.where) for part in (cos, sin))
        scale = model.config.shape.head_dim**-0.5
        self._rules = {
            attention_window: AttentionMask(scale, attention_window.window, attention_window.sinks)
            for attention_window in set(model.config.attention_windows)
        }

    def works(self, places: int) -> Mapping[AttentionWindow, Work]:
        """Memory for the work lists of steps with at most this many singles."""
        shape, device = self.config.shape, self.device
        rows, dim = shape.heads // shape.kv_heads, shape.head_dim
        launch = launch_for(self._model.embedding.dtype, TORCH_TYPES[shape.kv_dtype], dim, rows)
        grid = launch.programs * device.processors
        return {
            attention_window: Work.empty(places, shape.kv_heads, rows, dim, grid, device.where, tile=launch.tile)
            for attention_window in self._rules
        }

    def room(self, rows: int) -> tuple[Tensor, Tensor]:
        """Memory for the hidden states and logits of this many rows."""
        shape, weight = self.config.shape, self._model.embedding
        return weight.new_zeros(rows, shape.hidden), weight.new_zeros(rows, shape.vocab)

    def states(
        self,
        step: Step,
        pages: tuple[Pages, ...],
        *,
        out: Tensor,
        passed: Callable[[], None] | None = None,
        scored: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Compute a step, write its keys and values; hidden states after the final norm [drawn rows, hidden].

        Calls `passed` after launching every few layers. `scored`: additional rows, and the memory for their states.
        """
        kernels, model, room = self.kernels, self._model, self._passing(step)
        if room.single is not None:
            for attention_window, rule in self._rules.items():
                kernels.plan_work(step.singles, pages[0].page_tokens, rule, step.works[attention_window])
        angles = self._cos[step.positions], self._sin[step.positions]
        residual, x = model.embedding[step.tokens].float(), None
        for index, layer in enumerate(model.layers):
            self._norm(x, residual, layer.attention_norm.weight, room.rows)
            x = self._attention(index, step, angles, pages[index], room)
            self._norm(x, residual, layer.mlp_norm.weight, room.rows)
            x = layer.down(kernels.silu_mul(layer.gate_up(room.rows), out=room.gated))
            if passed is not None and index % SIGN_LAYERS == 0:
                passed()
        for rows, place in [(step.drawn, out), *([scored] if scored else [])]:
            last = None if x is None else x.index_select(0, rows)
            self._norm(last, residual.index_select(0, rows), model.norm.weight, place)
        return out

    def logits(self, states: Tensor, *, out: Tensor) -> Tensor:
        """The logits of hidden states: [rows, vocabulary] in the weights' type."""
        weight = self._model.head.weight
        assert weight is not None
        return torch.mm(states, weight.t(), out=out)

    def _passing(self, step: Step) -> "_Passing":
        shape, rows, weight = self.config.shape, len(step.tokens), self._model.embedding
        singles, heads = len(step.singles), (rows, shape.heads, shape.head_dim)
        queries, attended = weight.new_empty(heads), weight.new_empty(heads)
        single = (queries[:singles, None], attended[:singles, None]) if singles else None
        several = (queries[singles:], attended[singles:])
        normed, gated = weight.new_empty(rows, shape.hidden), weight.new_empty(rows, shape.ffn)
        return _Passing(normed, queries, single, several, attended.flatten(1), gated)

    def _norm(self, x: Tensor | None, residual: Tensor, weight: Tensor, out: Tensor) -> Tensor:
        return self.kernels.add_rmsnorm(x, residual, weight, self.config.norm_eps, out=out)

    def _attention(
        self, index: int, step: Step, angles: tuple[Tensor, Tensor], pages: Pages, room: "_Passing"
    ) -> Tensor:
        layer = self._model.layers[index]
        self.kernels.rope_append(
            layer.qkv(room.rows),
            *angles,
            step.slots,
            pages,
            query_norm=None if layer.query_norm is None else layer.query_norm.weight,
            key_norm=None if layer.key_norm is None else layer.key_norm.weight,
            eps=self.config.norm_eps,
            out=room.queries,
        )
        self._attend(self.config.attention_windows[index], step, pages, room)
        return layer.out(room.attended)

    def _attend(self, attention_window: AttentionWindow, step: Step, pages: Pages, room: "_Passing") -> None:
        rule, spans = self._rules[attention_window], step.spans
        if room.single is not None:
            queries, out = room.single
            self.kernels.paged_decode(queries, pages, step.singles, rule, step.works[attention_window], out=out)
        if spans is not None:
            queries, out = room.several
            self.kernels.paged_prefill(queries, spans.starts, pages, spans.sequences, rule, spans.tiles, out=out)


@dataclass(frozen=True, slots=True)
class _Passing:
    """The values between kernels and products of one layer, in memory that the next layer reuses.

    rows [rows, hidden] after a norm, gated [rows, ffn]; queries [rows, heads, head_dim] and their results, `attended`
    [rows, heads * head_dim], of both also the part of the singles, None if there are none, and of the others.
    """

    rows: Tensor
    queries: Tensor
    single: tuple[Tensor, Tensor] | None
    several: tuple[Tensor, Tensor]
    attended: Tensor
    gated: Tensor
