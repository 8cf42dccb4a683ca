"""The HTTP servers beside a process's own work (health, metrics, admin): uvicorn, told to keep out of everything else.

A server ends when it is asked to. uvicorn's own looks ten times a second whether it was, and then waits a tenth of a
second even where no connection is open. Idle connections are closed at once; answers under way have until
`timeout_graceful_shutdown` and are then cancelled. Known hole: a connection whose accept comes in the same turn of the
loop as the end is closed with the process.

Imported by the shells alone: it needs uvicorn, which comes with each component's extra.

Take a port, or say in one line why not and what to do.

SIGTERM from a process's first moment; imported for its effect, first of all, by every part's `main`.

The kernel drops a signal without a handler for the first process of a PID namespace, which is what a container's
program is. Until the real handlers are in place, seconds of imports later, an order to stop would be lost and the
container would be killed only after its whole grace. So here the process ends at once, with the status that a shell
shows for SIGTERM anywhere else: 143, for it served nothing and drained nothing. `add_signal_handler` replaces this.
Known hole: the interpreter's own start, some hundredths of a second, comes before any handler.

Idioms of asyncio, written once: end tasks and wait for their end; wait for whichever comes first.
"""

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import Coroutine, Iterator
from typing import Any, NoReturn

import uvicorn

from paceline_core.admin.http_protocol import BoundedHttpProtocol
from paceline_core.admin.middleware import AllowedHostsMiddleware, BodyLimitMiddleware
from paceline_core.config import Listen
from paceline_core.errors import InvalidInput
from paceline_core.telemetry import get_logger

BACKLOG = 1024


def bind(listen: Listen, field: str = "listen") -> socket.socket:
    """A listening socket; who connects early waits. Raises InvalidInput naming the field, the address and the fix."""
    try:
        family, _, _, _, address = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InvalidInput(field, f"{_place(listen)} is no address: {error.strerror}") from None
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise InvalidInput(field, _why(listen, error)) from None
    return sock


def _place(listen: Listen) -> str:
    return f"[{listen.host}]:{listen.port}" if ":" in listen.host else f"{listen.host}:{listen.port}"


def _why(listen: Listen, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{_place(listen)} is already in use; stop the other program or choose another port"
    if error.errno == errno.EACCES:
        return f"{_place(listen)} may not be used by this user; choose a port above 1023"
    return f"cannot listen on {_place(listen)}: {error.strerror}; choose an address of this machine"


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


STATUS = 128 + signal.SIGTERM


def _end(*_: object) -> NoReturn:
    """No cleaning up: nothing has begun, and half-imported modules must not run."""
    os._exit(STATUS)


if os.getpid() == 1:
    signal.signal(signal.SIGTERM, _end)


async def cancel(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel all and return when all have ended; what they raised is dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def ended(*tasks: "asyncio.Task[Any]") -> None:
    """Return when one of them has ended, and raise what it raised; who stops waiting stops none of them."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when one of them does, the others cancelled; raise what it raised."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await ended(*tasks)
    finally:
        await cancel(*tasks)
