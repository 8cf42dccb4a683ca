"""A watch over the supervisor's socket in a process whose loop has more than 1,024 sockets to read at once."""

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import uvloop

from paceline_core.kube import Listed
from paceline_core.kube.connect import ClusterConfig, connect

READY = 1100
LINES = 5


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, READY + 1000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.real
@pytest.mark.usefixtures("many_files")
def test_what_anyio_says_of_a_second_wake_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with TemporaryDirectory(prefix="pl-") as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(watched(Path(folder) / "api.sock"), 60))
    assert caplog.records == []


async def watched(path: Path) -> None:
    """Hear some lines of a watch while the loop is busy with readers that are always ready."""
    loop, (there, here) = asyncio.get_running_loop(), socket.socketpair()
    there.send(b"x")
    busy = [os.dup(here.fileno()) for _ in range(READY)]
    for file in busy:
        loop.add_reader(file, lambda: None)
    try:
        async with await asyncio.start_unix_server(speak, path):
            cluster = await connect(ClusterConfig(socket=path), "paceline-system")
            watch = cluster.watch("Tenant")
            assert [await anext(watch) for _ in range(LINES)] == [Listed(())] * LINES
            await cluster.close()
    finally:
        for file in busy:
            loop.remove_reader(file)
            os.close(file)
        there.close()
        here.close()


async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Each line when the reader has been waiting for it for long."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
    for _ in range(LINES):
        await asyncio.sleep(0.1)
        writer.write(b'{"type": "LISTED", "items": []}\n')
        await writer.drain()
    writer.close()


async def test_other_faults_of_callbacks_are_logged_as_ever(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    cluster = await connect(ClusterConfig(socket=tmp_path / "api.sock"), "paceline-system")
    try:
        done: asyncio.Future[None] = loop.create_future()
        done.set_result(None)
        with caplog.at_level(logging.ERROR):
            loop.call_soon(done.set_result, None)
            loop.call_soon(done.set_exception, ValueError())
            loop.call_soon(int, "x")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert [record.getMessage().split("\n")[0].partition(" in ")[0] for record in caplog.records] == [
            "Exception"
        ] * 2
    finally:
        loop.set_exception_handler(None)
        await cluster.close()
