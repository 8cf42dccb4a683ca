"""What a client has of a stream, from comment lines: read when it must go on elsewhere, refused when in doubt."""

import pytest

from paceline_core.registry.enums import AbortReason
from paceline_core.wire import Resume, ResumedChoice
from paceline_gateway.request.sse_scanner import StreamJournal

FIRST = b'data: {"id":"chatcmpl-5f0c","object":"chat.completion.chunk","created":1767225600,"model":"chat"}\n\n'


def told(*lines: bytes, first: bytes = FIRST, limit: int = 1000) -> StreamJournal:
    stream = StreamJournal(limit)
    stream.begin(first)
    for line in lines:
        stream.add(line)
    return stream


def test_ids_are_put_together_by_choice() -> None:
    stream = told(b": c 0 0 1,2 2\n", b": c 2 0 7\n", b": c 0 2 3 2 end\n", b": c 2 1 8,9\n", b": c 0 3 - 0\n")
    assert stream.resume() == Resume(
        id="chatcmpl-5f0c",
        created=1767225600,
        choices=[ResumedChoice(ids=[1, 2, 3], ended=True), ResumedChoice(ids=[]), ResumedChoice(ids=[7, 8, 9])],
    )


@pytest.mark.parametrize(
    ("lines", "choices"),
    [
        ([b": p 0 -\n"], [ResumedChoice(ids=[], delivered=0)]),
        ([b": p 0 - 2\n", b": p 0 1,2 0\n"], [ResumedChoice(ids=[1, 2], delivered=0)]),
        ([b": p 0 1\n", b": p 1 2,3 0\n", b": p 3 4 0\n"], [ResumedChoice(ids=[1, 2, 3, 4], delivered=1)]),
        ([b": p 0 1\n", b": p 1 2,3 0\n", b": p 1 4 1\n"], [ResumedChoice(ids=[1, 4])]),
        ([b": p 0 1\n", b": p 1 2,3 0\n", b": p 0 4 1\n"], []),
    ],
    ids=["an opening", "nothing behind it", "held ids", "held ids that came anew", "delivered ids that came anew"],
)
def test_ids_that_brought_no_event_are_counted_apart_and_may_repeat(
    lines: list[bytes], choices: list[ResumedChoice]
) -> None:
    resume = told(*lines).resume()
    assert (resume.choices if resume else []) == choices


def test_the_first_events_name_the_stream_and_no_later_ones() -> None:
    stream = told(b": p 0 1\n")
    stream.begin(b'data: {"id":"other","created":2}\n\n')
    resume = stream.resume()
    assert resume is not None
    assert resume.id == "chatcmpl-5f0c"


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [b": p 1 5\n"],
        [b": p 0 5\n", b": p 2 6\n"],
        [b": p 0 5,x\n"],
        [b": p 0\n"],
        [b": c 99999 0 1\n"],
        [b": c x 0 1\n"],
    ],
)
def test_what_has_a_gap_or_makes_no_sense_is_not_resumed(lines: list[bytes]) -> None:
    stream = told(*lines)
    assert stream.resume() is None
    assert stream.abort_reason is AbortReason.INCONSISTENT


@pytest.mark.parametrize("first", [b"", b'data: {"created":1}\n\n', b'data: {"id":"x","created":"soon"}\n\n'])
def test_a_stream_without_a_name_is_not_resumed(first: bytes) -> None:
    assert told(b": p 0 1\n", first=first).resume() is None


def test_above_its_limit_nothing_is_stored() -> None:
    stream = told(b": p 0 1\n", b": p 1 2\n", limit=16)
    assert stream.resume() is not None
    stream.add(b": p 2 3\n")
    assert stream.resume() is None
    assert stream.abort_reason is AbortReason.JOURNAL_OVERFLOW
    stream.add(b": p 3 4\n")
    assert stream.abort_reason is AbortReason.JOURNAL_OVERFLOW
