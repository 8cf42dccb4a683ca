"""One sequence's frames on the way to their reader."""

import asyncio

import pytest

from paceline_core.errors import Code, RequestError
from paceline_workers.messages import Tokens
from paceline_workers.server.engine.client import EngineStream

LOST = RequestError(Code.ENGINE_FAILED, "gone")


def frame(position: int, finish: str = "") -> Tokens:
    return Tokens("s", position, [7], finish)


async def test_a_reader_gets_all_that_came_meanwhile() -> None:
    stream = EngineStream("s")
    stream.put(frame(0))
    stream.put(frame(1))
    assert await stream.read() == [frame(0), frame(1)]


async def test_a_reader_waits_for_the_next_frame() -> None:
    stream = EngineStream("s")
    reader = asyncio.create_task(stream.read())
    await asyncio.sleep(0)
    stream.put(frame(0, "stop"))
    assert await reader == [frame(0, "stop")]
    assert not stream.running


async def test_frames_come_before_the_error_that_ended_them() -> None:
    stream = EngineStream("s")
    stream.put(frame(0))
    stream.fail(LOST)
    stream.fail(RequestError(Code.CLIENT_CLOSED, "later"))
    assert await stream.read() == [frame(0)]
    with pytest.raises(RequestError, match="gone"):
        await stream.read()


async def test_an_error_wakes_a_waiting_reader() -> None:
    stream = EngineStream("s")
    reader = asyncio.create_task(stream.read())
    await asyncio.sleep(0)
    stream.fail(LOST)
    with pytest.raises(RequestError, match="gone"):
        await reader


async def test_whole_answers_are_taken_however_long_they_are() -> None:
    stream = EngineStream("s", "t", unread_limit=2)
    frames = [Tokens("s", 0, [7] * 5, "length"), Tokens("t", 0, [7] * 5, "length")]
    for one in frames:
        stream.put(one)
    assert await stream.read() == frames


async def test_a_reader_too_far_behind_is_given_up_without_a_gap() -> None:
    stream = EngineStream("s", unread_limit=2)
    for position in range(4):
        stream.put(frame(position))
    assert await stream.read() == [frame(0), frame(1)]
    stream.put(frame(4))
    with pytest.raises(RequestError, match="3 tokens and candidates were not read") as caught:
        await stream.read()
    assert caught.value.code is Code.CLIENT_CLOSED


async def test_candidates_of_tokens_count_like_tokens() -> None:
    stream = EngineStream("s", unread_limit=4)
    stream.put(Tokens("s", 0, [7], logprobs=[(-0.5, [(7, -0.5), (8, -1.0)])]))
    stream.put(Tokens("s", 1, [7], logprobs=[(-0.5, [(7, -0.5), (8, -1.0)])]))
    assert len(await stream.read()) == 1
    with pytest.raises(RequestError, match="6 tokens and candidates were not read"):
        await stream.read()
