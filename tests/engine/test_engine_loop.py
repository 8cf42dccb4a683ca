"""The loop over a real socketpair, with a backend and a time of its own."""

import socket
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.engine.manual import ManualTimer
from tests.engine.peer import Peer, submit
from tests.engine.reference_scheduler import next_token

from paceline_core.errors import PacelineError
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.engine.backends.base import Alive, BackendInfo, StepResult, unheard
from paceline_workers.engine.channel import Channel, PeerGone
from paceline_workers.engine.loop import ATTEMPTS, BEAT, EngineLoop
from paceline_workers.engine.sampling.grammar_queue import Compiler
from paceline_workers.engine.scheduling import SampledToken, SchedulerLimits, StepPlan
from paceline_workers.messages import Abort, Failed, FromEngine, Heartbeat, Sampling, Started, Submit, Tokens

Ends = tuple[socket.socket, Peer]
LIMITS = SchedulerLimits(max_model_len=200, vocab_size=50, page_tokens=4, max_seqs=8, step_tokens=32)


@dataclass
class Scripted:
    """Ten milliseconds a step, longer by BEAT for each of its `signs` of life; raises while `faults` says so."""

    timer: ManualTimer
    faults: int = 0
    signs: int = 0
    ahead: bool = False
    plans: list[StepPlan] = field(default_factory=list)
    flights: list[tuple[StepPlan, float]] = field(default_factory=list)
    host_pages: int = 0
    page_copy_s: float = 0.0
    grammars: Compiler | None = None

    @property
    def facts(self) -> BackendInfo:
        facts = BackendInfo(LIMITS, 50, 4096, (49,), StepTime(base=0.01, prefill=1e-5), {"load": 1.0})
        facts = replace(facts, host_pages=self.host_pages, page_copy_s=self.page_copy_s, ahead=self.ahead)
        return replace(facts, grammars=self.grammars)

    def launch(self, plan: StepPlan, since: float) -> None:
        assert len(self.flights) <= self.ahead
        self.plans.append(plan)
        begin = self.flights[-1][1] if self.flights else since
        self.flights.append((plan, begin + 0.01))

    def collect(self, alive: Alive = unheard) -> StepResult:
        plan, end = self.flights.pop(0)
        for _ in range(self.signs):
            self.timer.until(self.timer.now() + BEAT)
            alive()
        self.timer.until(end)
        if self.faults:
            self.faults -= 1
            self.flights.clear()
            raise RuntimeError("injected")
        samples = [SampledToken(next_token(chunk.request)) for chunk in plan.chunks if chunk.samples]
        return StepResult(samples, 0.001, 0.01 if self.ahead else None)


class Bench:
    """A loop, its backend, and the peer that talks to it; `turn` also reads what the loop wrote."""

    def __init__(self, ends: Ends, **backend: Any) -> None:
        self.timer = ManualTimer()
        self.peer = ends[1]
        self.backend = Scripted(self.timer, **backend)
        self.channel = Channel(ends[0], self.timer)
        self.loop = EngineLoop(self.channel, self.backend, self.timer)

    def turn(self) -> list[FromEngine]:
        self.loop.turn()
        return self.peer.read(wait=False)

    def serve(self, *submits: Submit) -> None:
        for entry in submits:
            self.peer.send(entry)
        while not all(self.peer.last(entry.id) for entry in submits):
            self.turn()


@pytest.fixture
def bench(ends: Ends) -> Bench:
    return Bench(ends)


def test_requests_are_served_and_their_ends_told(bench: Bench) -> None:
    bench.serve(submit("a", [1, 2, 3], 4), submit("b", [4], 2))
    assert len(bench.peer.tokens("a")) == 4
    last = bench.peer.last("b")
    assert last is not None
    assert (last.finish, len(bench.peer.tokens("b"))) == ("length", 2)
    assert last.timing is not None
    assert last.timing.decode == pytest.approx(0.01)


def test_an_embedding_is_refused_by_a_backend_that_makes_none(bench: Bench) -> None:
    bench.serve(submit("a", [1], 1, embed=True), submit("b", [1], 1))
    last = bench.peer.last("a")
    assert last is not None
    assert (last.finish, last.error) == ("refused", "this worker's backend makes no embeddings")


def test_a_grammar_is_refused_by_a_backend_that_cannot_follow_one(bench: Bench) -> None:
    bench.serve(submit("a", [1], 4, sampling=Sampling(grammar="json")), submit("b", [1], 1))
    last = bench.peer.last("a")
    assert last is not None
    assert (last.finish, last.error) == ("refused", "this worker's backend cannot follow a grammar")


def test_sixteen_requests_at_once_share_their_steps(ends: Ends) -> None:
    bench = Bench(ends)
    bench.serve(*[submit(f"r{number}", [number, 7], 10) for number in range(8)])
    assert len(bench.backend.plans) == 10


def test_a_refused_request_is_answered_with_the_reason(bench: Bench) -> None:
    bench.serve(submit("a", [1] * 500))
    last = bench.peer.last("a")
    assert last is not None
    assert (last.finish, last.ids) == ("refused", [])
    assert "takes fewer than 200" in last.error


def test_an_aborted_request_is_computed_no_further(bench: Bench) -> None:
    bench.peer.send(submit("a", [1], 100))
    for _ in range(3):
        bench.turn()
    bench.peer.send(Abort("a"))
    before = len(bench.backend.plans)
    for _ in range(3):
        bench.timer.pause(BEAT)
        bench.turn()
    assert len(bench.backend.plans) == before
    assert bench.peer.beats[-1].running == 0


def test_a_deadline_passes_even_while_nothing_is_computed(bench: Bench) -> None:
    bench.peer.send(submit("a", [1] * 150, 4))
    bench.turn()
    bench.peer.send(submit("b", [2] * 60, 4, deadline_s=0.015))
    while bench.peer.last("b") is None:
        bench.turn()
    last = bench.peer.last("b")
    assert last is not None
    assert "deadline" in last.error


def test_an_idle_loop_gives_signs_of_life(bench: Bench) -> None:
    bench.turn()
    for _ in range(4):
        bench.timer.pause(BEAT)
        bench.turn()
    assert len(bench.peer.beats) == 5
    assert BEAT <= 0.25


def test_a_heartbeat_carries_the_steps_since_the_last_one_and_the_fit(bench: Bench) -> None:
    bench.serve(submit("a", [1, 2, 3], 3))
    bench.timer.pause(BEAT)
    bench.turn()
    beats = bench.peer.beats
    steps = [stats for beat in beats for stats in beat.recent]
    assert [(stats.prefill_tokens, stats.decode_tokens, stats.kv_tokens) for stats in steps] == [
        (3, 0, 0), (0, 1, 4), (0, 1, 5),
    ]  # fmt: skip
    assert all(stats.seconds == pytest.approx(0.01) and stats.lateness == 0.001 for stats in steps)
    assert beats[-1].steps == 3
    assert beats[-1].step_time[5] == 3.0
    assert (beats[-1].pages_free + beats[-1].pages_cached, beats[-1].lookup_tokens) == (50, 3)


def test_heartbeats_go_out_while_a_step_lasts_that_gets_on(bench: Bench) -> None:
    bench.backend.signs = 5
    bench.peer.send(submit("a", [1, 2, 3], 1))
    bench.turn()
    assert len(bench.peer.beats) >= 5


def test_a_peer_that_goes_while_a_step_lasts_ends_the_loop_and_is_no_failed_step(bench: Bench) -> None:
    bench.backend.signs = 1
    bench.peer.send(submit("a", [1, 2, 3], 1))
    bench.peer.socket.shutdown(socket.SHUT_RD)
    with pytest.raises(PeerGone):
        bench.turn()
    assert not bench.backend.flights


def test_a_heartbeat_tells_what_held_pages_could_still_take(bench: Bench) -> None:
    bench.peer.send(submit("a", [1, 2, 3, 4, 5], 9))
    bench.turn()
    assert bench.peer.beats[-1].running == 1
    assert bench.peer.beats[-1].slack_tokens == 2 * 4 - (5 + 1)


@pytest.mark.parametrize(("page_copy_s", "restored"), [(0.9 * 4e-5, 36), (1.1 * 4e-5, 0)])
def test_a_prefix_comes_back_from_host_memory_where_that_is_cheaper_and_is_told(
    ends: Ends, page_copy_s: float, restored: int
) -> None:
    """Four tokens of a page take 40 us to compute by the model that the backend begins with."""
    bench = Bench(ends, host_pages=80, page_copy_s=page_copy_s)
    prompt = list(range(40))
    bench.serve(submit("first", prompt, 1))
    bench.serve(submit("other", [1] * 190, 1))
    bench.serve(submit("again", prompt, 1))
    bench.timer.pause(BEAT)
    bench.turn()
    last = bench.peer.beats[-1]
    assert last.restored_tokens <= restored
    assert (last.pages_in * 4, last.host_pages == last.pages_out) == (last.restored_tokens, True)
    assert bool(last.pages_in) == bool(restored)


def test_waiting_requests_are_counted_by_class(bench: Bench) -> None:
    for number in range(9):
        bench.peer.send(submit(f"r{number}", [number] * 32, 50, request_class=RequestClass.BATCH))
    bench.turn()
    assert isinstance(bench.peer.seen[-1], Heartbeat)
    assert bench.peer.beats[-1].waiting[RequestClass.BATCH] == 8
    assert bench.peer.beats[-1].queued_tokens[RequestClass.BATCH] == 8 * 32


def test_steps_that_follow_each_other_count_the_host_work_between_them(bench: Bench) -> None:
    bench.peer.send(submit("a", [1, 2, 3], 3))
    bench.turn()
    bench.timer.pause(0.004)
    bench.turn()
    bench.timer.pause(BEAT)
    bench.turn()
    steps = [stats for beat in bench.peer.beats for stats in beat.recent]
    assert [stats.seconds for stats in steps[:2]] == pytest.approx([0.01, 0.01])


def test_a_step_that_raises_costs_its_requests_and_not_the_engine(bench: Bench) -> None:
    bench.backend.faults = 1
    bench.serve(submit("a", [1], 4))
    last = bench.peer.last("a")
    assert last is not None
    assert (last.finish, last.error) == ("error", "The engine failed while computing this request.")
    bench.serve(submit("b", [1], 4))
    assert len(bench.peer.tokens("b")) == 4


def test_a_backend_that_computes_beside_the_host_gets_the_next_step_before_it_is_asked_for_the_last(ends: Ends) -> None:
    bench = Bench(ends, ahead=True)
    for number in range(4):
        bench.peer.send(submit(f"r{number}", [number, 7], 10))
    while bench.peer.last("r3") is None:
        bench.timer.pause(0.001)
        bench.turn()
    for number in range(4):
        assert len(bench.peer.tokens(f"r{number}")) == 10
    assert len(bench.backend.plans) == 10
    assert bench.timer.time - 100.0 == pytest.approx(0.1, abs=0.002)


def test_the_next_step_waits_for_who_may_come_while_one_computes(ends: Ends) -> None:
    bench = Bench(ends, ahead=True)
    bench.peer.send(submit("a", [1], 20))
    bench.turn()
    bench.peer.send(submit("b", [2], 20))
    bench.turn()
    assert len(bench.backend.plans) == 1
    bench.timer.pause(0.0095)
    bench.turn()
    assert {chunk.request.id for chunk in bench.backend.plans[1].chunks} == {"a", "b"}


def test_a_step_that_raises_spares_the_requests_of_the_step_launched_after_it(ends: Ends) -> None:
    bench = Bench(ends, ahead=True)
    bench.peer.send(submit("a", [1], 20))
    bench.turn()
    bench.peer.send(submit("b", [2] * 31, 3))
    bench.backend.faults = 1
    while bench.peer.last("a") is None or bench.peer.last("b") is None:
        bench.timer.pause(0.001)
        bench.turn()
    last = bench.peer.last("a")
    assert last is not None
    assert (last.finish, len(bench.peer.tokens("b"))) == ("error", 3)


def test_an_engine_whose_every_step_raises_ends(bench: Bench) -> None:
    bench.backend.faults = ATTEMPTS
    for number in range(ATTEMPTS - 1):
        bench.serve(submit(f"r{number}", [1], 4))
    with pytest.raises(PacelineError, match=f"{ATTEMPTS} steps in a row failed"):
        bench.serve(submit("last", [1], 4))


def test_nothing_is_computed_for_a_peer_that_does_not_read(bench: Bench) -> None:
    bench.peer.send(submit("a", [1], 150))
    while not bench.channel.full:
        bench.channel.send(Failed("x" * 100_000))
        bench.channel.flush()
    bench.loop.turn()
    assert bench.backend.plans == []
    while bench.channel.full:
        bench.peer.read()
        bench.channel.flush()
    bench.loop.turn()
    assert len(bench.backend.plans) == 1


def test_run_announces_itself_and_ends_with_its_peer(bench: Bench) -> None:
    bench.peer.socket.shutdown(socket.SHUT_WR)
    with pytest.raises(PeerGone):
        bench.loop.run()
    bench.channel.flush()
    assert isinstance(bench.peer.read()[0], Started)


def test_a_resumed_sequence_goes_on_at_its_position_and_ends_where_it_would_have(bench: Bench) -> None:
    bench.serve(submit("a", [1, 2, 3], 12))
    whole = bench.peer.tokens("a")
    for cut in range(1, 12):
        bench.serve(submit(f"r{cut}", [1, 2, 3], 12, produced=whole[:cut]))
        frames = [m for m in bench.peer.seen if isinstance(m, Tokens) and m.id == f"r{cut}"]
        assert [token for frame in frames for token in frame.ids] == whole[cut:]
        assert [frame.position for frame in frames] == list(range(cut, 12))
        assert frames[-1].finish == "length"


def test_min_tokens_counts_what_a_resumed_sequence_had_produced(bench: Bench) -> None:
    bench.serve(submit("free", [1, 2, 3], 12))
    stop = bench.peer.tokens("free")[6]
    bench.serve(submit("resumed", [1, 2, 3], 12, produced=bench.peer.tokens("free")[:6], min_tokens=6, stop_ids=[stop]))
    last = bench.peer.last("resumed")
    assert last is not None
    assert (last.finish, last.ids, last.position) == ("stop", [stop], 6)
