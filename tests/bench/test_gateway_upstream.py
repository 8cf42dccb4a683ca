"""The toy upstream as a worker of ours: which prefixes it says are cached."""

from benchmarks.gateway.script import Script
from benchmarks.gateway.upstream import KEYS_KEPT, Upstream


def key(number: int) -> str:
    return f"{number:016x}"


def test_a_reader_is_told_each_key_once() -> None:
    upstream, told = Upstream("w0"), set[str]()
    upstream.remember(f"2048;{key(1)},{key(2)}".encode())
    assert set(upstream.report(told).prefix.added) == {key(1), key(2)}
    upstream.remember(f"2048;{key(1)},{key(3)}".encode())
    assert upstream.report(told).prefix.added == (key(3),)
    assert upstream.report(told) == upstream.report(told)


def test_the_keys_longest_unused_are_gone_and_the_reader_is_told() -> None:
    upstream, told = Upstream("w0"), set[str]()
    upstream.remember(f"1024;{key(0)}".encode())
    upstream.report(told)
    upstream.remember(b"9;" + ",".join(map(key, range(1, KEYS_KEPT + 1))).encode())
    assert upstream.report(told).prefix.evicted == (key(0),)
    assert len(told) == KEYS_KEPT


def test_a_script_holds_from_the_next_request_on() -> None:
    upstream = Upstream("w0")
    upstream.play(Script(tokens=3))
    assert len(upstream.writes[True]) == len(upstream.writes[False]) == 4
    assert upstream.counts() == {"requests": 0, "tokens": 0, "running": 0}
