"""Requests whose pages lie on disk wait for them before they are queued, never long, and never for what is no use."""

import socket
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.engine import reference
from tests.engine.driver import load
from tests.engine.manual import ManualTimer
from tests.engine.peer import Peer, submit
from tests.engine.reference_scheduler import PAGE, VOCAB, request

from paceline_core.errors import InvalidInput
from paceline_workers.config import EngineConfig
from paceline_workers.engine import sizing
from paceline_workers.engine.channel import Channel
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.kv_cache.offload import CopyKind, DiskIndex
from paceline_workers.engine.kv_cache.prefetch import MAX_WAITING, DiskPrefetchQueue
from paceline_workers.engine.loop import EngineLoop
from paceline_workers.engine.page_files import PageFiles, file_bytes
from paceline_workers.engine.scheduling import SchedulerLimits

LIMITS = SchedulerLimits(max_model_len=200, vocab_size=VOCAB, page_tokens=PAGE, max_seqs=8, step_tokens=32)
LONG = [number % 50 for number in range(5 * PAGE)]


@dataclass
class Shelf:
    """Files whose reading ends when a test says so."""

    known: list[bytes] = field(default_factory=list)
    limit: int = 100
    read_seconds: float = 0.0
    asked: list[bytes] = field(default_factory=list)
    done: list[tuple[bytes, bool]] = field(default_factory=list)
    discarded: list[bytes] = field(default_factory=list)

    def fetch(self, digests: Iterable[bytes]) -> set[bytes]:
        wanted = list(digests)
        self.asked += wanted
        return set(wanted)

    def arrived(self) -> list[tuple[bytes, bool]]:
        done, self.done = self.done, []
        return done

    def discard(self, digest: bytes) -> None:
        self.discarded.append(digest)


class Prefetch:
    """A prefetch queue before a memory that knows the first pages of LONG on disk."""

    def __init__(self, pages: int = 4, host: int = 8) -> None:
        owner = request("probe", LONG)
        probe = KVCacheManager(8, PAGE)
        probe.uncached(owner)
        self.digests = owner.digests[:pages]
        self.memory = KVCacheManager(8, PAGE, host_pages=host, disk=DiskIndex(100, self.digests))
        self.memory.offload.prefill_seconds = 1.0
        self.shelf = Shelf()
        self.prefetch = DiskPrefetchQueue(self.memory, self.shelf, LIMITS)


def test_a_request_waits_until_all_its_pages_are_read_and_then_finds_them() -> None:
    queue, pending = Prefetch(), request("a", LONG)
    assert queue.prefetch.enter(pending, 0.0)
    assert queue.shelf.asked == queue.digests
    queue.shelf.done = [(digest, True) for digest in queue.digests[:3]]
    assert queue.prefetch.leave(0.0) == []
    assert len(queue.prefetch.waiting) == 1
    queue.shelf.done = [(queue.digests[3], True)]
    assert queue.prefetch.leave(0.0) == [pending]
    assert len(queue.prefetch.waiting) == 0
    assert queue.memory.uncached(pending) == PAGE
    queue.memory.place(pending)
    assert [copy.kind for copy in queue.memory.copies()] == [CopyKind.LOAD] * 4 + [CopyKind.IN] * 4
    assert queue.memory.offload.disk_in == 4


def test_it_waits_no_longer_than_computing_would_have_taken() -> None:
    queue, pending = Prefetch(), request("a", LONG)
    queue.prefetch.enter(pending, 10.0)
    assert queue.prefetch.leave(10.0 + 4 * PAGE - 0.1) == []
    assert queue.prefetch.leave(10.0 + 4 * PAGE) == [pending]
    assert queue.memory.uncached(pending) == len(LONG)


def test_a_file_that_was_no_good_is_forgotten_and_its_page_computed() -> None:
    queue, pending = Prefetch(), request("a", LONG)
    queue.prefetch.enter(pending, 0.0)
    queue.shelf.done = [(digest, place != 1) for place, digest in enumerate(queue.digests)]
    assert queue.prefetch.leave(0.0) == [pending]
    assert queue.memory.uncached(pending) == 4 * PAGE
    assert queue.memory.offload.disk_used == 3
    assert not queue.prefetch.enter(request("b", LONG), 0.0)


def test_nobody_waits_for_what_is_cheaper_to_compute_or_is_not_there() -> None:
    queue = Prefetch()
    assert not queue.prefetch.enter(request("other", [7] * 20), 0.0)
    queue.shelf.read_seconds = PAGE * 1.0
    assert not queue.prefetch.enter(request("a", LONG), 0.0)
    assert not DiskPrefetchQueue(queue.memory, None, LIMITS).enter(request("a", LONG), 0.0)


def test_nobody_waits_for_more_than_host_memory_holds() -> None:
    queue = Prefetch(host=2)
    assert queue.prefetch.enter(request("a", LONG), 0.0)
    assert queue.shelf.asked == queue.digests[:2]


def test_a_malformed_request_and_one_too_many_do_not_wait() -> None:
    queue = Prefetch()
    assert not queue.prefetch.enter(request("a", [*LONG, 2**40]), 0.0)
    for number in range(MAX_WAITING):
        assert queue.prefetch.enter(request(f"r{number}", LONG), 0.0)
    assert not queue.prefetch.enter(request("late", LONG), 0.0)


def test_an_aborted_pending_is_not_queued_any_more() -> None:
    queue = Prefetch()
    for name in "ab":
        queue.prefetch.enter(request(name, LONG), 0.0)
    queue.prefetch.abort("a")
    assert [pending.id for pending in queue.prefetch.leave(1000.0)] == ["b"]


def test_what_a_failed_step_should_have_taken_is_given_up() -> None:
    queue = Prefetch()
    queue.prefetch.enter(request("a", LONG), 0.0)
    queue.shelf.done = [(digest, True) for digest in queue.digests]
    queue.prefetch.leave(0.0)
    copies = queue.memory.copies()
    queue.prefetch.lost(copies)
    queue.memory.invalidate(copies)
    assert queue.shelf.discarded == queue.digests
    assert queue.memory.uncached(request("b", LONG)) == len(LONG)
    assert queue.memory.offload.host_used == 0


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"disk_path": "/x", "host_bytes": 1 << 20}, "engine.disk_bytes: 0 bytes in /x"),
        ({"disk_bytes": 1 << 20, "host_bytes": 1 << 20}, "engine.disk_bytes: .* give a folder"),
        ({"disk_path": "/x", "disk_bytes": 1 << 20}, "engine.disk_path: .* set host_bytes"),
    ],
)
def test_a_disk_that_cannot_serve_is_refused(engine: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        sizing.disk_pages(EngineConfig.model_validate(engine), 4096, file_bytes(4096))


def test_a_page_counts_with_all_that_its_file_takes_of_the_disk() -> None:
    engine = EngineConfig(disk_path=Path("/x"), disk_bytes=1 << 20, host_bytes=1 << 20)
    assert sizing.disk_pages(engine, 4096, file_bytes(4096)) == (1 << 20) // 8192


# --- a whole engine, twice


class Life:
    """One engine over a model folder and a disk, from its start to its end."""

    def __init__(self, folder: Path, disk: Path) -> None:
        self.backend = load(
            folder, kv_pages=8, max_model_len=120, host_bytes=6 * 8192, disk_path=disk, disk_bytes=1 << 20
        )
        theirs, ours = socket.socketpair()
        timer = ManualTimer()
        facts = replace(self.backend.facts, prior=self.backend.facts.prior.model_copy(update={"prefill": 1.0}))
        self.peer = Peer(ours)
        self.socket = theirs
        self.loop = EngineLoop(Channel(theirs, timer), replace(self.backend, facts=facts), timer)

    def ask(self, name: str, prompt: list[int]) -> list[int]:
        self.peer.send(submit(name, prompt, 6))
        while not self.peer.last(name):
            self.loop.turn()
            self.peer.read(wait=False)
        return self.peer.tokens(name)

    @property
    def memory(self) -> KVCacheManager:
        return self.loop._memory

    def end(self) -> None:
        self.peer.close()
        self.socket.close()
        files = self.backend.facts.disk
        assert isinstance(files, PageFiles)
        files.close()


def test_pages_outlive_their_engine_and_a_broken_file_changes_no_token(tmp_path: Path) -> None:
    model, disk = tmp_path / "model", tmp_path / "disk"
    reference.write(model, "llama")
    prompts = {f"p{salt}": [(place * 7 + salt) % 200 for place in range(90)] for salt in range(4)}
    first = Life(model, disk)
    texts = {name: first.ask(name, prompt) for name, prompt in prompts.items()}
    assert first.memory.offload.disk_out >= 5
    first.end()
    second = Life(model, disk)
    assert second.memory.offload.disk_used >= 5
    assert second.ask("p0", prompts["p0"]) == texts["p0"]
    assert second.memory.offload.disk_in >= 5
    assert second.loop._scheduler.counters.hit_tokens >= 5 * 16
    second.end()
    for path in disk.glob("*.kv/*"):
        if path.name != "lock":
            path.write_bytes(path.read_bytes()[:-1] + b"!")
    third = Life(model, disk)
    assert {name: third.ask(name, prompt) for name, prompt in prompts.items()} == texts
    third.end()
