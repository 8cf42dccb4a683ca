"""The strict checker of chat streams."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.every import cases

from paceline_cli.bench.openloop import Ending, TokenCounts
from paceline_cli.bench.sse import EVENT_LIMIT, ChatStream

Event = dict[str, Any] | str


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> Event:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def usage(prompt: Any = 3, output: Any = 2, total: Any = 5) -> Event:
    counts = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": total}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": counts}


ROLE, FINISH, DONE = chunk({"role": "assistant", "content": ""}), chunk({}, "stop"), "[DONE]"


def answer(texts: Sequence[str]) -> list[Event]:
    return [ROLE, *(chunk({"content": text}, usage=None) for text in texts), FINISH, usage(), DONE]


def wire(events: Sequence[Event], newline: str = "\n") -> bytes:
    lines = (event if isinstance(event, str) else json.dumps(event, ensure_ascii=False) for event in events)
    return "".join(f"data: {line}{newline}{newline}" for line in lines).encode()


def checked(*pieces: bytes, expect_usage: bool = True) -> tuple[Ending, ChatStream, int]:
    stream = ChatStream(expect_usage=expect_usage)
    count = sum(stream.feed(piece) for piece in pieces)
    return stream.close(), stream, count


def cut(data: bytes, borders: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(border % (len(data) + 1) for border in borders), len(data)]
    return [data[low:high] for low, high in pairwise(edges)]


texts = st.lists(st.text(min_size=1), max_size=6)
borders = st.lists(st.integers(0, 10_000), max_size=12)


@given(texts, borders, st.sampled_from(["\n", "\r\n"]))
def test_a_right_stream_is_ok_however_it_is_cut(words: list[str], edges: list[int], newline: str) -> None:
    ending, stream, count = checked(*cut(wire(answer(words), newline), edges))
    assert (ending, stream.faults) == (Ending.OK, [])
    assert count == len(words)
    assert (stream.usage, stream.finish) == (TokenCounts(3, 2), "stop")


@given(st.binary(max_size=300), borders)
def test_the_ending_depends_on_the_bytes_and_not_on_their_borders(junk: bytes, edges: list[int]) -> None:
    data = wire(answer(["a"]))[:-20] + junk
    whole, _, whole_count = checked(data)
    parts, _, parts_count = checked(*cut(data, edges))
    assert (parts, parts_count) == (whole, whole_count)


@given(texts, st.integers(1, 10_000))
def test_a_truncated_stream_is_never_ok(words: list[str], missing: int) -> None:
    data = wire(answer(words))
    ending, _, _ = checked(data[: -(missing % len(data) or 1)])
    assert ending is Ending.CUT


@given(texts, st.sampled_from(["role", "finish", "usage", "done"]))
def test_a_stream_without_one_of_its_marks_is_not_ok(words: list[str], mark: str) -> None:
    gone = {"role": ROLE, "finish": FINISH, "usage": usage(), "done": DONE}[mark]
    ending, _, _ = checked(wire([event for event in answer(["x", *words]) if event != gone]))
    assert ending is (Ending.CUT if mark == "done" else Ending.VIOLATION)


@given(texts, st.integers(0, 100), st.booleans())
def test_an_error_event_fails_the_stream_wherever_it_comes(words: list[str], place: int, with_done: bool) -> None:
    events = answer(words)[:-1]
    events.insert(place % (len(events) + 1), {"error": {"message": "lost", "code": "stream_lost"}})
    ending, stream, _ = checked(wire([*events, DONE] if with_done else events))
    assert (ending, stream.error) == (Ending.FAILED, "stream_lost: lost")


WRONG = {
    "content after [DONE]": [*answer(["a"]), chunk({"content": "b"})],
    "a second [DONE]": [*answer(["a"]), DONE],
    "two finish reasons": [ROLE, FINISH, FINISH, usage(), DONE],
    "text after the finish": [ROLE, FINISH, chunk({"content": "b"}), usage(), DONE],
    "an unknown finish": [ROLE, chunk({}, "tired"), usage(), DONE],
    "text before the role": [chunk({"content": "a"}), ROLE, FINISH, usage(), DONE],
    "a changed role": [ROLE, chunk({"role": "user"}), FINISH, usage(), DONE],
    "usage before the finish": [ROLE, usage(), FINISH, DONE],
    "usage twice": [ROLE, FINISH, usage(), usage(), DONE],
    "usage that does not add up": [ROLE, FINISH, usage(total=9), DONE],
    "usage that is no number": [ROLE, FINISH, usage(prompt="3"), DONE],
    "usage below zero": [ROLE, FINISH, usage(-1, 2, 1), DONE],
    "a changed id": [ROLE, {**answer(["a"])[1], "id": "c2"}, FINISH, usage(), DONE],  # type: ignore[dict-item]
    "another object": [{"object": "text_completion", "choices": []}, DONE],
    "index 1": [ROLE, {**FINISH, "choices": [{"index": 1, "delta": {}}]}, DONE],  # type: ignore[dict-item]
    "content that is no string": [ROLE, chunk({"content": 7}), FINISH, usage(), DONE],
    "no choices": [{"id": "c1", "object": "chat.completion.chunk", "model": "m"}, DONE],
    "JSON that is no object": ["[1]", DONE],
    "broken JSON": ['{"id": ', DONE],
}


@cases("events", WRONG.values())
def test_a_violation_is_named(events: list[Event]) -> None:
    ending, stream, _ = checked(wire(events))
    assert ending is Ending.VIOLATION
    assert stream.faults


@pytest.mark.parametrize(
    "data",
    [b"event: x\n\n", b"data\n\n", b"data: \xff\xfe\n\n", b"HTTP/1.1 200 OK\r\n", b"data: " + b"x" * EVENT_LIMIT],
)
def test_bytes_that_are_no_event_stream_are_a_violation(data: bytes) -> None:
    assert checked(data)[0] is Ending.VIOLATION


def test_usage_that_nobody_asked_for_is_a_violation() -> None:
    assert checked(wire(answer(["a"])), expect_usage=False)[0] is Ending.VIOLATION


def test_comments_are_counted_and_ignored() -> None:
    ending, stream, _ = checked(b": hello\n\n" + wire(answer(["a"])).replace(b"data", b": p 1 2\ndata", 1))
    assert (ending, stream.reader.comments) == (Ending.OK, 2)


def test_one_event_may_have_several_data_lines() -> None:
    whole = wire(answer(["a"])).replace(b'"id": "c1", ', b'"id": "c1",\ndata: ', 1)
    assert checked(whole)[0] is Ending.OK


def test_the_list_of_faults_is_bounded() -> None:
    _, stream, _ = checked(wire([ROLE, FINISH, *[chunk({"content": "b"})] * 100]))
    assert len(stream.faults) == 8
