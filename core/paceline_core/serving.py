"""The HTTP servers beside a process's own work (health, metrics, admin): uvicorn, told to keep out of everything else.

A server ends when it is asked to. uvicorn's own looks ten times a second whether it was, and then waits a tenth of a
second even where no connection is open. Idle connections are closed at once; answers under way have until
`timeout_graceful_shutdown` and are then cancelled. Known hole: a connection whose accept comes in the same turn of the
loop as the end is closed with the process.

Imported by the shells alone: it needs uvicorn, which comes with each component's extra.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from paceline_core.admin_bodies import BodyLimitMiddleware
from paceline_core.admin_hosts import AllowedHostsMiddleware
from paceline_core.http_protocol import BoundedHttpProtocol
from paceline_core.telemetry import get_logger

CLOSE_S = 1
DATE_S = 1.0
POLL_S = 0.01
_log = get_logger(__name__)


class QuietServer(uvicorn.Server):
    """uvicorn without its own idea of signals. `should_exit` is set on the loop that serves."""

    def __init__(self, config: uvicorn.Config) -> None:
        self._asked = asyncio.Event()
        super().__init__(config)

    @property
    def should_exit(self) -> bool:
        """Whether it was asked to end."""
        return self._asked.is_set()

    @should_exit.setter
    def should_exit(self, asked: bool) -> None:
        (self._asked.set if asked else self._asked.clear)()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them to the process."""
        yield

    async def main_loop(self) -> None:
        """uvicorn's call: the header `date` is set every second until the server is asked to end."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), DATE_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's call: returns when all connections are closed or their time is over."""
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        await asyncio.sleep(0)  # then those that were idle are closed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn's state sets no Event
                    await asyncio.sleep(POLL_S)
        if state.tasks:
            _log.warning("answers cut", extra={"open": len(state.tasks)})
        for task in state.tasks:
            task.cancel()
        await self.lifespan.shutdown()


def admin_server(app: Any) -> QuietServer:
    """A server of an ASGI application: `serve([socket])` until `should_exit`, open answers then have a second left."""
    return QuietServer(
        uvicorn.Config(
            AllowedHostsMiddleware(BodyLimitMiddleware(app)),
            http=BoundedHttpProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=CLOSE_S,
        )
    )
