"""How a server beside a process's own work ends: waits are counted as the timers that its loop was asked for."""

import asyncio
from typing import Any

import pytest

from paceline_core.config import Listen
from paceline_core.process import POLL_S, admin_server, bind

REQUEST = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


class Timers(asyncio.SelectorEventLoop):
    """Knows the delays of all calls that were asked for later."""

    def __init__(self) -> None:
        super().__init__()
        self.delays: list[float] = []

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        self.delays.append(delay)
        return super().call_later(delay, callback, *args, context=context)


class Application:
    """Answers whole, or begins to answer and goes on until it is cancelled."""

    def __init__(self, *, ends: bool) -> None:
        self.ends = ends
        self.cancelled = False

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"o", "more_body": True})
        try:
            if not self.ends:
                await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        await send({"type": "http.response.body", "body": b"k"})


async def end(app: Application, asked_within: int) -> list[float]:
    """Delays asked for since the server was asked to end, with a connection open that has so much of its answer."""
    loop, sock = asyncio.get_running_loop(), bind(Listen(host="127.0.0.1", port=0))
    assert isinstance(loop, Timers)
    server = admin_server(app)
    server.config.timeout_graceful_shutdown = 0
    serving = asyncio.create_task(server.serve([sock]))
    reader, writer = await asyncio.open_connection(*sock.getsockname()[:2])
    writer.write(REQUEST)
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(asked_within)
    loop.delays.clear()
    server.should_exit = True
    await serving
    delays = list(loop.delays)
    writer.close()
    return delays


@pytest.mark.real
def test_a_server_with_idle_connections_alone_ends_without_a_wait() -> None:
    with asyncio.Runner(loop_factory=Timers) as runner:
        assert runner.run(end(Application(ends=True), 2)) == []


@pytest.mark.real
def test_an_answer_under_way_has_its_time_and_is_then_cancelled() -> None:
    app = Application(ends=False)
    with asyncio.Runner(loop_factory=Timers) as runner:
        delays = runner.run(end(app, 1))
    assert set(delays) <= {POLL_S}
    assert app.cancelled
