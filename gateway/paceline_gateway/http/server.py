"""The listening side: connections, their limits, and a clean end."""

import asyncio
import socket
from email.utils import format_datetime

from paceline_core.clock import Clock
from paceline_gateway.config import Limits
from paceline_gateway.http.connection import Application, Connection
from paceline_gateway.http.reader import Memory, RequestReader


class Server:
    """All connections of one port. `closing` makes every answer the last of its connection."""

    def __init__(self, application: Application, limits: Limits, clock: Clock) -> None:
        self.application = application
        self.limits = limits
        self.closing = False
        self.memory = Memory(limits.memory_bytes)
        self.now = clock.monotonic
        self._clock = clock
        self._connections: set[Connection] = set()
        self._listener: asyncio.Server | None = None
        self.date = self._date()

    async def start(self, sock: socket.socket) -> None:
        """Accept on a socket that is already bound."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Connection(self), sock=sock)

    def reader(self) -> RequestReader:
        """A reader for a new connection."""
        return RequestReader(self.limits, self.memory, self.application.gate, self.now)

    def opened(self, connection: Connection) -> bool:
        """Count it in; False when there are too many."""
        if len(self._connections) >= self.limits.connections:
            return False
        self._connections.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        """Count it out."""
        self._connections.discard(connection)

    def sweep(self) -> None:
        """Enforce every connection's limits; call it a few times a second."""
        self.date = self._date()
        now = self.now()
        for connection in [c for c in self._connections if c.deadline <= now]:
            connection.expire()

    def drain(self) -> None:
        """Go on accepting, so that latecomers hear `draining`, but end each connection with its answer."""
        self.closing = True
        for connection in list(self._connections):
            connection.hang_up_if_idle()

    @property
    def busy(self) -> int:
        """Connections with an answer under way."""
        return sum(connection.busy for connection in self._connections)

    async def close(self) -> None:
        """Stop accepting and cut what is left."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.abort()
        if self._listener is not None:
            await self._listener.wait_closed()

    def _date(self) -> bytes:
        return f"date: {format_datetime(self._clock.utc(), usegmt=True)}\r\n".encode()
