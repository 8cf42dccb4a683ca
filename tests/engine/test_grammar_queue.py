"""Requests wait for their grammar beside the loop: others go on, and what cannot be compiled ends with the reason."""

import socket
from concurrent.futures import Future
from typing import Any

import pytest
from tests.engine.peer import Peer, submit
from tests.engine.test_engine_loop import Bench

from paceline_workers.engine.loop import BEAT, POLL
from paceline_workers.engine.sampling.grammar_queue import MAX_WAITING, GrammarCompileQueue
from paceline_workers.engine.scheduling import Rejection
from paceline_workers.engine.scheduling.beams import request_of
from paceline_workers.messages import Abort, Sampling, Submit

Ends = tuple[socket.socket, Peer]


class Press:
    """A compiler that is told when it is done."""

    def __init__(self) -> None:
        self.futures: dict[str, Future[Any]] = {}

    @property
    def asked(self) -> list[str]:
        return list(self.futures)

    def ready(self, text: str) -> bool:
        return text in self.futures and self.futures[text].done() and self.futures[text].exception() is None

    def prepare(self, text: str) -> Future[Any]:
        return self.futures.setdefault(text, Future())


def asking(name: str, grammar: str, **fields: Any) -> Submit:
    return submit(name, [1, 2, 3], 4, sampling=Sampling(temperature=0.0, grammar=grammar), **fields)


@pytest.fixture
def press() -> Press:
    return Press()


@pytest.fixture
def bench(ends: Ends, press: Press) -> Bench:
    return Bench(ends, grammars=press)


def enter(queue: GrammarCompileQueue, entry: Submit) -> bool:
    return queue.enter(request_of(entry, (), 0.0, 99), entry)


def left(queue: GrammarCompileQueue, now: float = 0.0) -> list[tuple[str, str]]:
    return [(pending.submit.id, pending.refusal.message if pending.refusal else "") for pending in queue.leave(now)]


def test_others_go_on_while_a_grammar_is_compiled(bench: Bench, press: Press) -> None:
    bench.peer.send(asking("slow", "regex:a"))
    bench.turn()
    bench.serve(submit("plain", [1, 2], 30))
    assert len(bench.peer.tokens("plain")) == 30
    assert bench.peer.tokens("slow") == []
    press.futures["regex:a"].set_result(None)
    bench.serve(asking("same", "regex:a"))
    bench.peer.until(lambda peer: bench.turn() is not None and peer.last("slow"))
    assert len(bench.peer.tokens("slow")) == len(bench.peer.tokens("same")) == 4


def test_the_loop_looks_often_while_a_grammar_is_compiled(
    bench: Bench, press: Press, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.turn()
    waits, receive = [], bench.channel.receive

    def noted(timeout: float) -> list[Submit | Abort]:
        waits.append(timeout)
        return receive(0.0)

    monkeypatch.setattr(bench.channel, "receive", noted)
    bench.turn()
    bench.peer.send(asking("slow", "regex:a"))
    bench.turn()
    bench.turn()
    press.futures["regex:a"].set_result(None)
    bench.turn()
    bench.turn()
    assert waits == pytest.approx([BEAT, BEAT, POLL, POLL, 0.0])


def test_a_grammar_that_cannot_be_compiled_ends_its_request_with_the_reason(bench: Bench, press: Press) -> None:
    bench.peer.send(asking("bad", "regex:("))
    bench.turn()
    press.futures["regex:("].set_exception(ValueError("unclosed group"))
    bench.turn()
    last = bench.peer.last("bad")
    assert last
    assert (last.finish, last.error) == ("refused", "The grammar cannot be followed: unclosed group.")
    bench.serve(submit("plain", [1, 2], 3))


def test_a_tokenizer_that_cannot_be_read_is_no_fault_of_the_request(bench: Bench, press: Press) -> None:
    bench.peer.send(asking("bad", "regex:a"))
    bench.turn()
    press.futures["regex:a"].set_exception(OSError("gone"))
    bench.turn()
    last = bench.peer.last("bad")
    assert last
    assert last.finish == "error"


def test_an_aborted_request_is_never_queued(bench: Bench, press: Press) -> None:
    bench.peer.send(asking("gone", "regex:a"))
    bench.turn()
    bench.peer.send(Abort("gone"))
    bench.turn()
    press.futures["regex:a"].set_result(None)
    bench.serve(submit("plain", [1, 2], 3))
    assert bench.peer.tokens("gone") == []


def test_a_request_whose_deadline_passes_meanwhile_ends_then(bench: Bench) -> None:
    bench.peer.send(asking("late", "regex:a", deadline_s=0.5))
    bench.turn()
    bench.timer.time += 0.6
    bench.turn()
    last = bench.peer.last("late")
    assert last
    assert last.finish == "abort"


def test_grammars_are_compiled_one_after_the_other_in_their_order(press: Press) -> None:
    queue = GrammarCompileQueue(press)
    assert [enter(queue, asking(name, f"regex:{name}")) for name in "abc"] == [True] * 3
    assert enter(queue, asking("again", "regex:a"))
    assert press.asked == ["regex:a"]
    assert left(queue) == []
    press.futures["regex:a"].set_result(None)
    assert left(queue) == [("a", "")]
    assert press.asked == ["regex:a", "regex:b"]
    assert not enter(queue, asking("third", "regex:a"))
    for text in ("regex:b", "regex:c"):
        press.prepare(text).set_result(None)
    assert left(queue) == [("b", ""), ("c", ""), ("again", "")]
    assert len(queue.waiting) == 0


def test_nobody_waits_who_needs_no_grammar(bench: Bench, press: Press) -> None:
    bench.serve(submit("plain", [1], 4))
    assert press.asked == []


def test_beyond_so_many_waiting_a_request_is_refused(press: Press) -> None:
    queue = GrammarCompileQueue(press)
    for number in range(MAX_WAITING + 1):
        assert enter(queue, asking(f"r{number}", f"regex:a{number}"))
    assert len(queue.waiting) == MAX_WAITING
    (pending,) = queue.leave(0.0)
    words = f"{MAX_WAITING} requests wait for grammars to be compiled; try again shortly"
    assert (pending.request.id, pending.refusal) == (f"r{MAX_WAITING}", Rejection(words, "queue_full"))
