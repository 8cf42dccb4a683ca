"""KV memory without a scheduler: costs, hits, the host store behind the device, forks, and the copies they ask for."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_workers.engine.kv_cache.attention_window import ALL, AttentionWindow
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.kv_cache.offload import CopyKind, DiskIndex, HostStore, number_of

SIZE = 4
ATTENTION_WINDOWS = st.sampled_from([ALL, ALL, AttentionWindow(4), AttentionWindow(6, 1), AttentionWindow(5, 4)])


@dataclass
class Table:
    """What a request is to the memory."""

    tokens: list[int]
    salt: str = ""
    unsalted: int = 0
    computed: int = 0
    pages: list[int] = field(default_factory=list)
    dropped: int = 0
    forked: bool = False
    room: int = 0
    digests: list[bytes] = field(default_factory=list)
    scores: bool = False


def tokens(text: str) -> list[int]:
    """One page of each letter; a digit is that many tokens more."""
    return [ord(letter) for letter in text for _ in range(int(letter) if letter.isdigit() else SIZE)]


class Device:
    """A memory and its bytes: every page and slot holds all tokens from position 0 to its own end."""

    def __init__(self, pages: int, host: int = 0, attention_window: AttentionWindow = ALL, disk: int = 0) -> None:
        index = DiskIndex(disk) if disk else None
        self.memory = KVCacheManager(
            pages, SIZE, host_pages=host, attention_window=attention_window, ahead=SIZE, disk=index
        )
        self.attention_window = attention_window
        self.files: dict[int, list[int]] = {}
        self.read: dict[int, list[int]] = {}
        self.pages: dict[int, list[int]] = {}
        self.slots: dict[int, list[int]] = {}
        self.copied: list[CopyKind] = []

    def settle(self) -> None:
        pages, slots, files = self.pages, self.slots, self.files
        ways: dict[CopyKind, tuple[dict[int, list[int]], dict[int, list[int]]]] = {
            CopyKind.DEVICE: (pages, pages),
            CopyKind.OUT: (pages, slots),
            CopyKind.IN: (slots, pages),
            CopyKind.SAVE: (slots, files),
            CopyKind.LOAD: (self.read, slots),
        }
        for copy in self.memory.copies():
            self.copied.append(copy.kind)
            if copy.kind is CopyKind.ERASE:
                files.pop(copy.source, None)
            else:
                source, target = ways[copy.kind]
                target[copy.target] = source[copy.source]

    def fetch(self, table: Table) -> None:
        """Read what lies on disk, as far as it is still there."""
        for digest in self.memory.lacking(table):
            number = number_of(digest)
            if self.memory.offload.arrived(digest, good=number in self.files):
                self.read[number] = self.files[number]

    def compute(self, table: Table) -> bool:
        """Close the gap, in steps as long as the pages allow; False if there are none to go on with."""
        while table.computed < len(table.tokens):
            if not self.memory.grow(table):
                return False
            self.settle()
            start, end = table.computed, min(len(table.tokens), table.room)
            pages = self.pages_of(table)
            for number in range(start // SIZE, -(-end // SIZE)):
                assert self.memory.pool.writable(pages[number])
                self.pages[pages[number]] = table.tokens[: min((number + 1) * SIZE, end)]
            for number in self.in_sight(start, end):
                assert self.pages[pages[number]] == table.tokens[: min((number + 1) * SIZE, end)]
            table.computed = end
            self.memory.publish(table, start, end)
        return True

    def pages_of(self, table: Table) -> dict[int, int]:
        """Pages by number, as the compact table means them."""
        head = self.attention_window.head(SIZE)
        numbers = [*range(head), *range(head + table.dropped, head + table.dropped + len(table.pages))]
        return dict(zip(numbers, table.pages, strict=False))

    def in_sight(self, start: int, end: int) -> list[int]:
        """Pages that the tokens from `start` to `end` look at."""
        first = 0 if self.attention_window.window is None else max(start + 1 - self.attention_window.window, 0)
        return sorted({place // SIZE for place in [*range(min(self.attention_window.sinks, end)), *range(first, end)]})

    def start(self, text: str) -> Table:
        table = Table(tokens(text))
        self.memory.place(table)
        self.compute(table)
        return table

    def serve(self, text: str) -> int:
        """A sequence from its beginning to its end; how many tokens were computed for it."""
        table = Table(tokens(text))
        self.fetch(table)
        uncached = self.memory.uncached(table)
        self.memory.place(table)
        assert len(table.tokens) - table.computed == uncached
        assert self.compute(table)
        assert table.computed == len(table.tokens)
        self.memory.release(table)
        return uncached

    def fail(self, text: str) -> None:
        """A sequence whose first step fails before anything is copied."""
        table = Table(tokens(text))
        self.memory.place(table)
        self.memory.release(table)
        self.memory.invalidate(self.memory.copies())

    def say(self, table: Table, token: int) -> bool:
        """One decode; False if there is no page for it."""
        table.tokens.append(token)
        if not self.compute(table):
            table.tokens.pop()
            return False
        return True


def test_a_sequence_that_was_computed_before_costs_its_pages_but_few_tokens() -> None:
    device = Device(8)
    device.serve("abc")
    again = Table(tokens("abcd"))
    assert (device.memory.cost(again), device.memory.uncached(again)) == (4, SIZE)
    device.memory.place(again)
    assert (again.computed, device.memory.pool.held) == (3 * SIZE, 4)


def test_pages_that_others_hold_cost_nothing() -> None:
    device = Device(8)
    device.start("abc")
    assert device.memory.cost(Table(tokens("abcd"))) == 1


def test_one_token_is_always_left_to_compute() -> None:
    device = Device(8)
    device.serve("ab")
    assert device.memory.uncached(Table(tokens("ab"))) == SIZE


def test_without_a_prefix_cache_nothing_is_found_and_all_is_lost() -> None:
    memory = KVCacheManager(8, SIZE, prefix_cache=False, host_pages=4)
    table = Table(tokens("ab"))
    memory.place(table)
    memory.publish(table, 0, 8)
    table.computed = 8
    assert (memory.lost(table), memory.uncached(Table(tokens("abc")))) == (8, 12)
    assert not memory.offload.restores


def test_a_preemption_loses_the_partial_page_alone() -> None:
    device = Device(8)
    assert device.memory.lost(device.start("ab3")) == 3


def test_fits_alone_counts_the_whole_device() -> None:
    memory = KVCacheManager(3, SIZE)
    assert memory.fits_alone(12)
    assert not memory.fits_alone(13)


def test_growing_takes_all_that_is_missing_or_nothing() -> None:
    device = Device(3)
    table, other = device.start("a"), device.start("b")
    table.tokens += [1] * (SIZE + 1)
    assert not device.memory.grow(table)
    assert (len(table.pages), device.memory.pool.available) == (1, 1)
    device.memory.release(other)
    assert device.memory.grow(table)
    assert len(table.pages) == 3


def test_idle_time_is_counted_from_the_last_release_to_the_eviction() -> None:
    device = Device(2)
    device.memory.pool.now = 10.0
    device.serve("ab")
    device.memory.pool.now = 14.0
    device.serve("x")
    assert (device.memory.pool.evicted, device.memory.pool.idle_seconds) == (1, 4.0)


# --- the host store


def test_an_evicted_prefix_comes_back_from_host_memory() -> None:
    device = Device(4, host=8)
    assert device.serve("abcd") == 4 * SIZE
    device.serve("wxyz")
    assert device.copied == [CopyKind.OUT] * 4
    assert device.serve("abcd") == SIZE
    assert device.memory.offload.restored_tokens == 3 * SIZE
    assert (device.memory.offload.pages_in, device.copied.count(CopyKind.IN)) == (3, 3)


def test_what_came_back_leaves_again_without_a_copy() -> None:
    device = Device(4, host=8)
    for text in ("abcd", "wxyz", "abcd"):
        device.serve(text)
    before = device.memory.offload.pages_out
    device.serve("wxyz")
    assert device.memory.offload.pages_out == before
    device.memory.check([])


def test_a_chain_may_lie_on_both_sides() -> None:
    device = Device(4, host=4)
    device.serve("abc")
    device.serve("xy")
    assert device.serve("abcd") == SIZE
    assert 0 < device.memory.offload.pages_in < 3


def test_nothing_is_copied_where_computing_is_cheaper() -> None:
    memory = KVCacheManager(2, SIZE, host_pages=4, copy_seconds=1.0)
    memory.offload.prefill_seconds = 1.0 / SIZE
    assert not memory.offload.restores
    memory.offload.prefill_seconds = 1.001 / SIZE
    assert memory.offload.restores


def test_a_price_that_falls_stops_the_copies_at_once() -> None:
    device = Device(2, host=4)
    device.memory.offload.prefill_seconds = 0.0
    device.serve("ab")
    device.serve("xy")
    assert device.copied == []
    assert device.memory.offload.host_used == 0


@given(
    pages=st.integers(4, 6),
    host=st.integers(0, 5),
    attention_window=ATTENTION_WINDOWS,
    disk=st.integers(0, 5),
    steps=st.lists(
        st.tuples(st.text("ab", min_size=1, max_size=4), st.sampled_from(["works", "works", "fails", "loses"])),
        max_size=30,
    ),
)
def test_whatever_is_found_holds_what_it_should_though_steps_fail(
    pages: int, host: int, attention_window: AttentionWindow, disk: int, steps: list[tuple[str, str]]
) -> None:
    device = Device(pages, host, attention_window, disk)
    for text, outcome in steps:
        if outcome == "fails":
            device.fail(text)
        else:
            device.serve(text)
        if outcome == "loses" and device.files:
            device.files.popitem()
        assert len(device.files) <= disk
    device.memory.check([])
    assert device.memory.offload.host_used <= host
    assert device.memory.pool.held == 0


def test_what_host_memory_gave_up_comes_back_from_disk() -> None:
    device = Device(4, host=4, disk=20)
    assert device.serve("abcd") == 4 * SIZE
    for text in ("wxyz", "mnop"):
        device.serve(text)
    assert device.copied.count(CopyKind.SAVE) == 4
    assert device.serve("abcd") == SIZE
    assert device.copied.count(CopyKind.LOAD) == 3
    assert (device.memory.offload.disk_in, device.memory.offload.restored_tokens) == (3, 3 * SIZE)


def test_what_came_from_disk_leaves_host_memory_again_without_being_written() -> None:
    device = Device(4, host=4, disk=20)
    for text in ("abcd", "wxyz", "mnop", "abcd", "wxyz", "mnop"):
        device.serve(text)
    assert CopyKind.LOAD in device.copied
    assert len(device.files) == device.memory.offload.disk_out == device.copied.count(CopyKind.SAVE)


def test_nothing_is_written_where_reading_it_would_take_longer_than_computing() -> None:
    device = Device(4, host=4, disk=20)
    device.memory.offload.prefill_seconds, device.memory.offload.read_seconds = 1.0, float(SIZE)
    for text in ("abcd", "wxyz", "mnop"):
        device.serve(text)
    assert CopyKind.SAVE not in device.copied
    assert device.copied.count(CopyKind.OUT) == 8


def test_more_host_memory_never_computes_more() -> None:
    texts = ["abc", "xyz", "abd", "xy", "abc", "zz", "abd"] * 5
    work = [sum(map(Device(4, host).serve, texts)) for host in (0, 4, 16)]
    assert work[0] > work[1] > work[2]


def test_copies_that_may_have_failed_are_forgotten_on_both_sides() -> None:
    device = Device(4, host=8)
    device.serve("abcd")
    device.serve("wxyz")
    again = Table(tokens("abcd"))
    device.memory.place(again)
    copies = device.memory.copies()
    assert device.memory.invalidate(copies) == {copy.target for copy in copies if copy.kind is CopyKind.IN}
    device.memory.check([again.pages])
    device.memory.release(again)
    device.memory.check([])
    assert device.serve("abcd") == SIZE
    assert device.serve("wxyz") == 4 * SIZE


def test_a_store_gives_a_slot_only_to_new_content_and_takes_the_oldest() -> None:
    store = HostStore(2)
    assert {store.put(b"a"), store.put(b"b")} == {0, 1}
    assert store.put(b"a") is None
    (slot,) = store.pin([b"b"])
    store.unpin()
    assert store.put(b"c") != slot
    assert b"a" not in store
    store.check()


def test_a_pinned_slot_is_not_overwritten() -> None:
    store = HostStore(1)
    store.put(b"a")
    store.pin([b"a"])
    assert store.put(b"b") is None
    store.unpin()
    assert store.put(b"b") == 0


def test_a_store_without_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one slot"):
        HostStore(0)


# --- forks


def test_a_fork_takes_no_page_until_somebody_writes() -> None:
    device = Device(8)
    parent = device.start("ab2")
    child = Table([*parent.tokens, 7])
    device.memory.fork(parent, child)
    assert (device.memory.pool.held, child.pages, child.computed) == (3, parent.pages, 10)
    device.memory.check([parent.pages, child.pages])


def test_the_first_writer_gets_a_copy_and_the_last_one_writes_in_place() -> None:
    device = Device(8)
    parent = device.start("ab2")
    child = Table(list(parent.tokens))
    child.tokens.append(7)
    device.memory.fork(parent, child)
    last = parent.pages[-1]
    assert device.memory.grow(child)
    device.compute(child)
    assert device.say(parent, 8)
    assert device.copied == [CopyKind.DEVICE]
    assert (parent.pages[-1], child.pages[:2]) == (last, parent.pages[:2])
    assert child.pages[-1] != last


def test_a_fork_that_begins_again_within_a_named_page_copies_it() -> None:
    """A second choice of the same prompt needs the logits of its last token, which lies in a full page."""
    device = Device(8)
    parent = device.start("ab")
    child = Table(list(parent.tokens))
    device.memory.fork(parent, child)
    assert child.computed == 2 * SIZE - 1
    assert device.memory.grow(child)
    device.compute(child)
    assert child.pages == parent.pages
    device.memory.check([parent.pages, child.pages])


def test_a_fork_of_something_else_is_refused() -> None:
    device = Device(8)
    parent = device.start("ab")
    with pytest.raises(ValueError, match="begin as its parent"):
        device.memory.fork(parent, Table(tokens("ax")))
    with pytest.raises(ValueError, match="same salt"):
        device.memory.fork(parent, Table(tokens("abc"), salt="other"))


def test_no_page_for_the_copy_means_no_growth_and_nothing_taken() -> None:
    device = Device(2)
    parent = device.start("a1")
    child = Table([*parent.tokens, 7])
    device.memory.fork(parent, child)
    assert not device.memory.grow(child)
    device.memory.release(parent)
    assert device.memory.grow(child)
    assert device.memory.copies() == ()


@given(st.data())
def test_any_family_of_forks_reads_what_it_said(data: st.DataObject) -> None:
    device = Device(data.draw(st.integers(4, 12)), data.draw(st.integers(0, 3)), data.draw(ATTENTION_WINDOWS))
    family = [device.start("a" + data.draw(st.sampled_from(["1", "2", "3", "b"])))]
    for _ in range(data.draw(st.integers(0, 30))):
        who = data.draw(st.sampled_from(family))
        match data.draw(st.sampled_from(["say", "say", "fork", "end"])):
            case "say":
                device.say(who, data.draw(st.integers(0, 2)))
            case "fork":
                child = Table([*who.tokens, data.draw(st.integers(0, 2))])
                if device.memory.fork(who, child) and device.compute(child):
                    family.append(child)
                else:
                    device.memory.release(child)
            case "end" if len(family) > 1:
                family = [table for table in family if table is not who]
                device.memory.release(who)
        device.memory.check([table.pages for table in family])


# --- a window with sinks


def test_a_request_of_any_length_holds_a_window_and_its_sinks() -> None:
    device = Device(8, attention_window=AttentionWindow(2 * SIZE, 1))
    table = device.start("a")
    for token in range(100):
        assert device.say(table, token)
        assert device.memory.pool.held <= 4
    assert (table.dropped, len(table.pages)) == (23, 3)
    device.memory.check([table.pages])


def test_a_prompt_longer_than_the_pool_is_computed_by_and_by() -> None:
    device = Device(5, attention_window=AttentionWindow(SIZE, 1))
    assert device.serve("abcdefghij") == 10 * SIZE
    assert device.memory.pool.held == 0


def test_a_prefix_counts_as_known_if_its_end_and_its_sinks_are() -> None:
    device = Device(7, attention_window=AttentionWindow(SIZE, 1))
    device.serve("abcdef")
    device.serve("xy")
    assert device.memory.pool.evicted > 0
    again = Table(tokens("abcdefg"))
    assert device.memory.uncached(again) == SIZE
    device.memory.place(again)
    assert (again.dropped, again.computed, len(again.pages)) == (4, 6 * SIZE, 3)
    assert device.compute(again)


def test_a_prefix_whose_sinks_are_gone_is_computed_from_its_first_token_on() -> None:
    attention_window = AttentionWindow(SIZE, SIZE)
    assert attention_window.hit([False, True, True, True], SIZE) == 0
    assert attention_window.hit([True, False, False, True], SIZE) == 4
    assert attention_window.hit([True, False, True, False], SIZE) == 3
    assert AttentionWindow(SIZE + 1, SIZE).hit([True, False, False, True], SIZE) == 4
    assert AttentionWindow(SIZE + 2, SIZE).hit([True, False, False, True], SIZE) == 1


def test_a_lack_of_pages_shortens_what_is_computed_next_before_it_stops_anything() -> None:
    memory = KVCacheManager(8, SIZE, attention_window=AttentionWindow(SIZE), ahead=4 * SIZE)
    long, other = Table(tokens("abcdefghij")), Table(tokens("uvwxyz"))
    memory.place(long)
    assert memory.covered(long) == 7 * SIZE
    long.computed = 7 * SIZE
    memory.publish(long, 0, long.computed)
    memory.place(other)
    assert (memory.pool.held, memory.pool.available) == (7, 1)
    assert memory.grow(long)
    assert memory.covered(long) == 8 * SIZE
    long.computed = 8 * SIZE
    assert not memory.grow(long)
    memory.publish(long, 7 * SIZE, long.computed)
    assert memory.grow(long)
