"""Whose trace a request is part of, and what its workers hear of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.every import cases

from paceline_gateway.telemetry.trace import NoTracing, Parent, Trace, begin, read

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = Parent(int(TRACE, 16), int(SPAN, 16), sampled=True)
TEXT = f"00-{TRACE}-{SPAN}-01".encode()


def test_a_traceparent_is_read() -> None:
    assert read(TEXT) == SAMPLED
    assert read(TEXT[:-2] + b"00") == Parent(SAMPLED.trace_id, SAMPLED.span_id, sampled=False)
    assert read(TEXT[:-2] + b"03") == SAMPLED
    assert read(b"cc" + TEXT[2:] + b"-what-comes-later") == SAMPLED


@cases(
    "text",
    [
        b"",
        b"rubbish",
        b"ff" + TEXT[2:],
        TEXT + b"-more",
        TEXT + b" ",
        TEXT.upper(),
        TEXT.replace(TRACE.encode(), b"0" * 32),
        TEXT.replace(SPAN.encode(), b"0" * 16),
        TEXT[:-1],
        b"cc" + TEXT[2:] + b"x",
        b"cc" + TEXT[2:] + b"-a\r\nx: y",
    ],
)
def test_one_that_is_not_valid_counts_as_none(text: bytes) -> None:
    assert read(text) is None
    assert NoTracing().begin(text, 1.0) == (None, b"")


@given(st.binary(max_size=80))
def test_nothing_that_a_client_sends_fails_or_reaches_the_worker_unread(text: bytes) -> None:
    _, line = NoTracing().begin(text, 1.0)
    assert line == b"" or read(line.removeprefix(b"traceparent: ").removesuffix(b"\r\n")) == read(text) is not None


@pytest.mark.parametrize("draw", [0.0, 0.99])
def test_the_callers_sampling_flag_overrides_the_ratio(draw: float) -> None:
    trace, line = begin(TEXT, 0.0, draw)
    assert trace is not None
    assert (trace.trace_id, trace.parent_id, line) == (SAMPLED.trace_id, SAMPLED.span_id, b"")
    assert begin(TEXT[:-2] + b"00", 1.0, draw) == (None, b"traceparent: " + TEXT[:-2] + b"00\r\n")


def test_without_a_sampling_flag_the_ratio_decides_once_for_the_worker_too() -> None:
    trace, line = begin(b"", 0.5, 0.4)
    assert trace is not None
    assert (trace.parent_id, line) == (None, b"")
    trace, line = begin(b"", 0.5, 0.5)
    told = read(line.removeprefix(b"traceparent: ").removesuffix(b"\r\n"))
    assert trace is None
    assert told is not None
    assert not told.sampled
    assert begin(b"", 0.0, 0.0) == (None, b"")


def test_each_attempt_is_a_parent_of_its_own() -> None:
    trace = Trace(SAMPLED)
    trace.waiting(1.0)
    first = trace.sent("w0", 2.0, resumed=False)
    trace.freed(3.0)
    trace.waiting(3.0)
    second = trace.sent("w1", 4.0, resumed=True)
    parents = [read(line.removeprefix(b"traceparent: ").removesuffix(b"\r\n")) for line in (first, second)]
    assert [parent and (parent.trace_id, parent.sampled) for parent in parents] == [(SAMPLED.trace_id, True)] * 2
    assert [parent and parent.span_id for parent in parents] == [attempt.span_id for attempt in trace.attempts]
    assert trace.waits == [(1.0, 2.0), (3.0, 4.0)]
    assert [(a.worker, a.start, a.end, a.resumed) for a in trace.attempts] == [
        ("w0", 2.0, 3.0, False),
        ("w1", 4.0, None, True),
    ]


def test_waits_at_two_services_follow_one_another() -> None:
    trace = Trace(SAMPLED)
    trace.waiting(1.0)
    trace.waiting(4.0)
    trace.sent("s0", 6.0, resumed=False)
    assert trace.waits == [(1.0, 4.0), (4.0, 6.0)]
