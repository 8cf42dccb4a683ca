"""What WebSocket frames cost is bounded by their number: a turn of the loop, a message, a second."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.worker.harness import LIMIT_S, eventually, listening, running
from tests.worker.scripted_engine import Script

from paceline_workers.server.http.websocket_protocol import CONTROLS, FRAGMENTS, FrameCounter

EMPTY, MORE, LAST, PING = b"\x01", b"\x00", b"\x80", b"\x89"
MASK = b"\x80\x00\x00\x00\x00"
"""Of an empty payload: masked, no length, the key."""


def frame(first: bytes, payload: bytes = b"") -> bytes:
    """A client's frame under the mask 0, which changes nothing."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2) if size < 1 << 16 else b""
    return first + (length or b"\xff" + size.to_bytes(8)) + b"\x00" * 4 + payload


def taken(data: bytes, most: int = 8, piece: int = 1 << 20) -> tuple[list[int], FrameCounter]:
    """What each call takes of `data`, which comes in pieces, until nothing goes on."""
    frames, pending, ends = FrameCounter(lambda: 0.0), b"", []
    for start in range(0, len(data), piece):
        pending += data[start : start + piece]
        while pending and (end := frames.take(pending, most)):
            ends.append(end)
            pending = pending[end:]
    return ends, frames


@pytest.mark.parametrize("piece", [1, 3, 7, 1000, 1 << 20])
def test_every_byte_is_taken_once_however_it_comes(piece: int) -> None:
    data = frame(b"\x81", b"a" * 10) + frame(b"\x81", b"b" * 300) + frame(b"\x82", b"c" * 70_000) + frame(PING, b"d")
    ends, frames = taken(data, piece=piece)
    assert (sum(ends), frames.fault) == (len(data), "")


def test_so_many_frames_are_taken_at_a_time() -> None:
    data = frame(EMPTY) + frame(MORE) * 500
    ends, frames = taken(data, most=64)
    assert max(ends) == 64 * len(frame(MORE))
    assert (sum(ends), frames.fault) == (len(data), "")


def test_a_message_of_too_many_fragments_and_pings_beyond_measure_are_faults() -> None:
    _, frames = taken(frame(EMPTY) + frame(MORE) * FRAGMENTS)
    assert f"at most {FRAGMENTS} fragments" in frames.fault
    _, frames = taken(frame(b"\x81") * 3 * FRAGMENTS)
    assert frames.fault == ""
    _, frames = taken(frame(PING) * (CONTROLS + 1))
    assert f"at most {CONTROLS} pings" in frames.fault


def test_pings_are_counted_by_the_second() -> None:
    seconds = iter(range(10_000))
    frames = FrameCounter(lambda: float(next(seconds)))
    assert frames.take(frame(PING) * 500, 500) == 500 * len(frame(PING))
    assert frames.fault == ""


@pytest.fixture
async def address(folder: Path, reply: list[int]) -> AsyncIterator[str]:
    async with running(Script(reply=reply), folder=folder) as rig, listening(rig) as address:
        yield address


async def answered(address: str, *data: bytes) -> bytes:
    """Everything a connection answers to these frames until it ends, or has sent a message's answer."""
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    key = base64.b64encode(bytes(16)).decode()
    head = f"GET /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    writer.write(f"{head}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
    async with asyncio.timeout(LIMIT_S):
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        for part in data:
            writer.write(part)
        found = b""
        while (more := await reader.read(1 << 16)) and b"chat.completion" not in found + more:
            found += more
        writer.close()
        return found + more


async def test_floods_of_fragments_and_of_pings_end_their_connection(address: str) -> None:
    ends = [await answered(address, frame(EMPTY), frame(MORE) * 40_000), await answered(address, frame(PING) * 40_000)]
    for end, words in zip(ends, (b"fragments", b"pings"), strict=True):
        assert end.index(b"\x03\xf0")
        assert words in end


async def test_messages_that_come_count_with_the_bodies_of_the_worker(folder: Path, reply: list[int]) -> None:
    async with running(Script(reply=reply), folder=folder, body_limit=2048) as rig, listening(rig) as address:
        bodies = rig.worker.parts.bodies
        bodies.hold(bodies.limit - 1500)
        end = await answered(address, frame(EMPTY, b"x" * 1000), frame(MORE, b"x" * 1000))
        assert b"\x03\xf5" in end
        assert b"bytes of requests at a time" in end
        await eventually(lambda: bodies.held == bodies.limit - 1500)


async def test_a_connection_that_ends_within_a_frame_leaves_nothing_counted(folder: Path, reply: list[int]) -> None:
    body = json.dumps({"model": "chat", "messages": [{"role": "user", "content": "hello"}]}).encode()
    async with running(Script(reply=reply), folder=folder) as rig, listening(rig) as address:
        bodies, gate = rig.worker.parts.bodies, rig.worker.gate
        assert b"chat.completion" in await answered(address, frame(b"\x81", body) + b"\x81")
        await eventually(lambda: not (bodies.held or gate.open))


async def test_a_message_in_many_fragments_is_answered(address: str) -> None:
    body = json.dumps({"model": "chat", "messages": [{"role": "user", "content": "hello"}]}).encode()
    frames = [frame(EMPTY, body[:1]), *(frame(MORE, body[at : at + 1]) for at in range(1, len(body))), frame(LAST)]
    assert b"chat.completion" in await answered(address, b"".join(frames[:50]), b"".join(frames[50:]))
