"""Parts of every component's process: signals, a listening port, the admin HTTP server, ends of tasks.

Only component shells import this: it needs uvicorn, which comes with each component's extra.

The admin server (health, metrics, admin) ends at once on `should_exit`; uvicorn's own polls ten times a second, and
then waits a tenth of a second even without an open connection. Idle connections are closed at once; answers under way
have until `timeout_graceful_shutdown` and are then cancelled. Known hole: a connection accepted in the same turn of the
loop as the end is closed when the process ends.
"""

import asyncio
import contextlib
import errno
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import uvicorn

from paceline_core.admin.http_protocol import BoundedHttpProtocol
from paceline_core.admin.middleware import AllowedHostsMiddleware, BodyLimitMiddleware
from paceline_core.config import Listen
from paceline_core.errors import InvalidInput, PacelineError
from paceline_core.telemetry import get_logger

BACKLOG = 1024


def bind(listen: Listen, field: str = "listen") -> socket.socket:
    """A listening socket; early clients wait. Raises InvalidInput naming the field, the address and the fix."""
    place = f"[{listen.host}]:{listen.port}" if ":" in listen.host else f"{listen.host}:{listen.port}"
    try:
        family, _, _, _, address = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InvalidInput(field, f"{place} is no address: {error.strerror}") from None
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        why = f"cannot listen on {place}: {error.strerror}; choose an address of this machine"
        if error.errno == errno.EADDRINUSE:
            why = f"{place} is already in use; stop the other program or choose another port"
        elif error.errno == errno.EACCES:
            why = f"{place} may not be used by this user; choose a port above 1023"
        raise InvalidInput(field, why) from None
    return sock


CLOSE_S = 1
DATE_S = 1.0
POLL_S = 0.01
_log = get_logger(__name__)


class QuietServer(uvicorn.Server):
    """uvicorn without its signal handling. `should_exit` is set on the event loop that serves."""

    def __init__(self, config: uvicorn.Config) -> None:
        self._asked = asyncio.Event()
        super().__init__(config)

    @property
    def should_exit(self) -> bool:
        return self._asked.is_set()

    @should_exit.setter
    def should_exit(self, asked: bool) -> None:
        (self._asked.set if asked else self._asked.clear)()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        """uvicorn's call: update the header `date` every second until the server ends."""
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
        await asyncio.sleep(0)  # the next turn closes idle connections
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
    """A server for an ASGI application: `serve([socket])` until `should_exit`; open answers then have one second."""
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


SIGNALS = (signal.SIGTERM, signal.SIGINT)


def on_signals(handler: Callable[[], object]) -> None:
    """Call `handler` on every SIGTERM and SIGINT from now on; needs a running loop."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, handler)


def remove_signals() -> None:
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.remove_signal_handler(number)


def explain_failure(component: str, error: PacelineError) -> int:
    """Write the reason to standard error in one line; returns the exit status: 2 for wrong input, else 1."""
    sys.stderr.write(f"paceline {component}: {error}\n")
    return 2 if isinstance(error, InvalidInput) else 1


async def cancel(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel all tasks and return when they have ended; their exceptions are dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def ended(*tasks: "asyncio.Task[Any]") -> None:
    """Return when one task has ended, and raise its exception; cancelling this call cancels none of them."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when one of them does and cancel the others; raises its exception."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await ended(*tasks)
    finally:
        await cancel(*tasks)
