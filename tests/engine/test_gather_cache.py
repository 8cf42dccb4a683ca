"""Decodes gather once and keep it: the same bits as gathered anew, whatever becomes of their pages in between."""

from collections.abc import Callable, Sequence
from random import Random

import pytest
import torch
from hypothesis import settings
from tests.engine.reference_scheduler import request
from tests.every import cases
from torch import Tensor

from paceline_planner.hardware import Dtype
from paceline_planner.shapes import ModelShape
from paceline_workers.engine.kv_cache.attention_window import ALL, AttentionWindow
from paceline_workers.engine.kv_cache.offload import Copy, CopyKind
from paceline_workers.engine.model.attention import GatherCache, Gathered, PagedCache
from paceline_workers.engine.model.batch import Batch, Singles
from paceline_workers.engine.scheduling import Chunk, Request, StepPlan

PAGE, PAGES, HEADS, DIM = 4, 80, 2, 8
SHAPE = ModelShape(
    name="tiny", layers=1, hidden=32, heads=2 * HEADS, kv_heads=HEADS, head_dim=DIM, ffn=8, vocab=8, max_context=64,
    weight_dtype=Dtype.FP32, kv_dtype=Dtype.FP32,
)  # fmt: skip
LAST = PAGES - 1
ONTO_ITSELF = Copy(CopyKind.DEVICE, LAST, LAST)
ATTENTION_WINDOWS = [ALL, AttentionWindow(9), AttentionWindow(9, 3)]
Change = Callable[["Twins", list[Request]], list[Request]]


class Twins:
    """Two caches of the same pages; the second has a copy in each step, and so nothing kept."""

    def __init__(self, attention_window: AttentionWindow = ALL) -> None:
        self.attention_window = attention_window
        self.chance = torch.Generator().manual_seed(1)
        self.caches = [PagedCache(SHAPE, PAGES, PAGE, 1) for _ in range(2)]

    def step(self, *chunks: Chunk, copies: Sequence[Copy] = ()) -> tuple[Tensor, Tensor]:
        """What is attended to by each."""
        batch, found = Batch.of(StepPlan(chunks), PAGE, HEADS, {self.attention_window}), []
        queries, keys, values = (self.random(len(batch.tokens), heads) for heads in (2 * HEADS, HEADS, HEADS))
        for cache, more in zip(self.caches, ((), (ONTO_ITSELF,)), strict=True):
            cache.copy([*copies, *more])
            cache.write(0, batch.slots, keys, values)
            found.append(cache.attend(0, queries, batch.layouts[self.attention_window]))
        return found[0], found[1]

    def same(self, *chunks: Chunk, copies: Sequence[Copy] = ()) -> None:
        first, second = self.step(*chunks, copies=copies)
        assert torch.equal(first, second)

    def spoil(self, entries: Sequence[Request]) -> None:
        """Overwrite an early token in each one's pages: who gathers anew sees it."""
        for entry in entries:
            slots = Batch.of(StepPlan((Chunk(entry, 1, 1, False),)), PAGE, HEADS).slots
            for cache in self.caches:
                cache.write(0, slots, torch.ones(1, HEADS, DIM), torch.ones(1, HEADS, DIM))

    def random(self, rows: int, heads: int) -> Tensor:
        return torch.randn(rows, heads, DIM, generator=self.chance)


def decodes(entries: Sequence[Request]) -> list[Chunk]:
    return [Chunk(entry, len(entry.tokens) - 1, 1, True) for entry in entries]


def entered(twins: Twins, name: str, length: int, first_page: int) -> Request:
    """A request whose tokens are all computed but the last."""
    entry = request(name, [0] * length)
    entry.pages = list(range(first_page, first_page + 10))
    twins.same(Chunk(entry, 0, length - 1, False))
    return entry


def running(twins: Twins, *lengths: int) -> list[Request]:
    """Requests that have decoded twice since, and know their next token."""
    entries = [entered(twins, f"r{place}", length, 10 * place) for place, length in enumerate(lengths)]
    for _ in range(2):
        decode(twins, entries)
    return entries


def decode(twins: Twins, entries: Sequence[Request], *others: Chunk, copies: Sequence[Copy] = ()) -> None:
    twins.same(*others, *decodes(entries), copies=copies)
    for entry in entries:
        entry.tokens.append(0)


@pytest.mark.parametrize("lengths", [(9,), (9, 10, 6), (2, 17, 2, 18)], ids=["one", "one group", "two groups"])
def test_decodes_that_go_on_read_nothing_from_their_pages_but_their_own_tokens(lengths: tuple[int, ...]) -> None:
    twins = Twins()
    entries = running(twins, *lengths)
    twins.spoil(entries)
    kept, anew = twins.step(*decodes(entries))
    assert not torch.isclose(kept, anew).all(-1).any()


def test_neither_a_prefill_nor_a_new_page_of_a_shorter_one_nor_a_copy_out_ends_that() -> None:
    twins = Twins()
    entries = running(twins, 6, 5, 9)
    decode(twins, entries)
    assert len(entries[0].tokens) % PAGE == 1
    twins.spoil(entries)
    out = Copy(CopyKind.OUT, entries[0].pages[0], 0)
    kept, anew = twins.step(Chunk(request_beside(), 0, 5, False), *decodes(entries), copies=[out])
    assert not torch.isclose(kept, anew)[5:].all(-1).any()


def request_beside() -> Request:
    entry = request("beside", [0] * 9)
    entry.pages = [60, 61, 62]
    return entry


def other_pages(_: Twins, entries: list[Request]) -> list[Request]:
    entries[0].pages[0] = LAST
    return entries


def another_in_the_same_pages(_: Twins, entries: list[Request]) -> list[Request]:
    other = request("other", list(entries[0].tokens))
    other.pages = entries[0].pages
    return [other, *entries[1:]]


def the_same_token_again(_: Twins, entries: list[Request]) -> list[Request]:
    entries[0].tokens.pop()
    return entries


def a_token_left_out(_: Twins, entries: list[Request]) -> list[Request]:
    entries[0].tokens.append(0)
    return entries


def one_goes(_: Twins, entries: list[Request]) -> list[Request]:
    return entries[:-1]


def one_comes(twins: Twins, entries: list[Request]) -> list[Request]:
    decode(twins, entries[:-1])
    return entries


def another_order(_: Twins, entries: list[Request]) -> list[Request]:
    return entries[::-1]


def a_step_without_them(twins: Twins, entries: list[Request]) -> list[Request]:
    twins.same(Chunk(request_beside(), 0, 5, False))
    return entries


def a_page_more_than_any_had(twins: Twins, entries: list[Request]) -> list[Request]:
    while len(entries[1].tokens) % PAGE != 1:
        decode(twins, entries)
    twins.spoil(entries)
    return entries


CHANGES: list[Change] = [
    other_pages,
    another_in_the_same_pages,
    the_same_token_again,
    a_token_left_out,
    one_goes,
    one_comes,
    another_order,
    a_step_without_them,
    a_page_more_than_any_had,
]


@cases("change", CHANGES)
def test_all_is_gathered_anew_after(change: Change) -> None:
    twins = Twins()
    entries = running(twins, 9, 10)
    after = change(twins, entries)
    twins.spoil(after)
    twins.same(*decodes(after))


@pytest.mark.parametrize("kind", [CopyKind.DEVICE, CopyKind.IN])
def test_a_copy_into_a_page_that_stays_in_its_table_is_seen(kind: CopyKind) -> None:
    twins = Twins()
    entries = running(twins, 9, 10)
    decode(twins, entries, copies=[Copy(kind, 0, entries[1].pages[0])])


@pytest.mark.parametrize("attention_window", ATTENTION_WINDOWS, ids=["all", "window", "window and sinks"])
def test_the_bits_are_the_same_while_contexts_grow_and_windows_move_on(attention_window: AttentionWindow) -> None:
    twins = Twins(attention_window)
    entries = running(twins, 2, 5, 9, 20)
    for _ in range(15):
        decode(twins, entries)


@pytest.mark.parametrize("seed", range(max(1, settings().max_examples // 10)))
def test_the_bits_are_the_same_while_requests_come_go_move_and_fork(seed: int) -> None:
    chance = Random(seed)
    twins = Twins(chance.choice(ATTENTION_WINDOWS[:2]))
    tables = {start: list(range(start, start + 10)) for start in range(0, LAST - 10, 10)}
    entries: list[Request] = []
    for turn in range(60):
        copies: list[Copy] = []
        event, free = chance.random(), [start for start in tables if all(start != at(entry) for entry in entries)]
        if free and (not entries or event < 0.15):
            entries.append(entered(twins, f"r{turn}", chance.randint(2, 12), chance.choice(free)))
        elif event < 0.25:
            entries.remove(chance.choice(entries))
        elif free and event < 0.35:
            moved, target = chance.choice(entries), tables[chance.choice(free)]
            copies = [Copy(CopyKind.DEVICE, *pair) for pair in zip(moved.pages, target, strict=True)]
            moved.pages = list(target)
        entries = [entry for entry in entries if len(entry.tokens) < 10 * PAGE]
        if entries:
            decode(twins, entries, copies=copies)


def at(entry: Request) -> int:
    return entry.pages[0]


def test_what_has_no_room_is_not_kept() -> None:
    (small, large), kept = (gathered(length) for length in (3, 30)), GatherCache(room=4095)
    kept.keep([large, small])
    assert kept.before(next_of(large)) is None
    assert kept.before(next_of(small)) is small
    kept.keep([])
    assert kept.before(next_of(small)) is None


def gathered(length: int) -> Gathered:
    entry = request("a", [0] * length)
    entry.pages = list(range(10))
    (singles,) = Batch.of(StepPlan((Chunk(entry, length - 1, 1, True),)), PAGE, HEADS).layouts[ALL].singles
    keys = torch.zeros(HEADS, -(-length // PAGE) * PAGE, DIM)
    return Gathered(singles, keys, keys.clone())


def next_of(before: Gathered) -> Singles:
    chunk = before.singles.views[0].chunk
    following = Chunk(chunk.request, chunk.start + 1, 1, True)
    (singles,) = Batch.of(StepPlan((following,)), PAGE, HEADS).layouts[ALL].singles
    return singles
