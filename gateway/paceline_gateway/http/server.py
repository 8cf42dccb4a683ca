"""The listening side: connections, their limits, and a clean end.

The end loses no request: a client learns in the head of an answer that its connection closes; no connection is closed
while its client may be sending. So a connection without that notice may send one more request, however late, and is
served; only connections made after the end of new work are refused.
When all places are taken, connections without a request under way make room, from the holder that has most of them.
"""

import asyncio
import socket
from collections import defaultdict
from collections.abc import Callable
from email.utils import format_datetime
from typing import ClassVar, Protocol

from paceline_core.clock import Clock
from paceline_core.errors import RequestError
from paceline_core.process import BACKLOG
from paceline_core.registry.enums import ClientLimit
from paceline_gateway.config import HttpLimits
from paceline_gateway.http.cors import NO_CORS, CorsPolicy
from paceline_gateway.http.limits import LoopBudget, SharedLimit
from paceline_gateway.http.message import Head, HttpRequest
from paceline_gateway.http.request_reader import RejectedRequest
from paceline_gateway.http.response import ResponseWriter

PAUSE_S = 0.1


class Application(Protocol):
    """The application behind a server. Every call returns at once; answers come through the reply, now or later."""

    def gate(self, head: Head) -> RequestError | None:
        """Check a request by its head."""
        ...

    def turn_away(self, head: Head) -> RequestError | None:
        """Check a request on a connection that was made after the end of all new work."""
        ...

    def standing(self, head: Head) -> bytes:
        """Header lines for a WebSocket's handshake: its tenant's limits."""
        ...

    def handle(self, request: HttpRequest, reply: ResponseWriter) -> None: ...

    def refuse(self, refusal: RejectedRequest, reply: ResponseWriter) -> None:
        """Answer a request that was refused while it was read."""
        ...


class ClientConnection(Protocol):
    """A connection, as the server uses it. `deadline` is when `expire` is due; `holder` is the tenant or address."""

    websocket: ClassVar[bool]

    @property
    def evictable(self) -> bool: ...

    @property
    def holder(self) -> str: ...

    @property
    def deadline(self) -> float: ...

    @property
    def busy(self) -> bool: ...

    def settle(self) -> None:
        """End with the answer under way; `Server.closing` is set."""
        ...

    def expire(self) -> None: ...

    def abort(self) -> None: ...


class Server:
    """All connections of one port. `closing` makes every answer the last of its connection.

    `date` is the Date header's line. `gate` checks the heads on connections made from now on.
    """

    def __init__(
        self,
        application: Application,
        limits: HttpLimits,
        clock: Clock,
        budget: LoopBudget | None = None,
        cors: CorsPolicy = NO_CORS,
    ) -> None:
        self.application = application
        self.cors = cors
        self.limits = limits
        self.closing = False
        self.memory = SharedLimit(limits.memory_bytes, limits.body_bytes)
        self.answering = SharedLimit(limits.connections, 1)
        self.budget = budget or LoopBudget(lambda step: asyncio.get_running_loop().call_soon(step))
        self.evicted = self.refused = 0
        self._next_look = 0.0
        self.gate = application.gate
        self.now = clock.monotonic
        self._clock = clock
        self.connections: set[ClientConnection] = set()
        self._listener: asyncio.Server | None = None
        self.date = b""
        self._tick()

    async def start(self, sock: socket.socket, connection: Callable[["Server"], asyncio.Protocol]) -> None:
        """Accept on a socket that is already bound; `connection` makes the protocol of each client."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: connection(self), sock=sock, backlog=BACKLOG)

    def make_room(self) -> bool:
        """Close some connections that have no request under way; False where there are none.

        It closes several at once, since the search visits all; if it found none, the next search is PAUSE_S later.
        """
        if self.now() < self._next_look:
            return False
        groups: defaultdict[str, list[ClientConnection]] = defaultdict(list)
        for connection in self.connections:
            if connection.evictable:
                groups[connection.holder].append(connection)
        victims: list[ClientConnection] = []
        for group in sorted(groups.values(), key=len, reverse=True):
            group.sort(key=lambda one: one.deadline)
            victims += group[: (len(group) + 1) // 2]
        for victim in victims[: max(1, self.limits.connections // 100)]:
            self.connections.discard(victim)
            victim.abort()
            self.evicted += 1
        if not victims:
            self._next_look = self.now() + PAUSE_S
        return bool(victims)

    def sweep(self) -> None:
        """Enforce every connection's limits; call this a few times a second."""
        self._tick()
        now = self.now()
        for connection in [c for c in self.connections if c.deadline <= now]:
            connection.expire()

    def settle(self) -> None:
        """Keep serving, but make each answer the last of its connection: clients move to another gateway."""
        self.closing = True
        for connection in list(self.connections):
            connection.settle()

    def drain(self) -> None:
        """Refuse new connections; earlier ones may finish what they have begun or begin now."""
        self.settle()
        self.gate = self.application.turn_away

    def count(self, *, websocket: bool) -> int:
        return sum(connection.websocket is websocket for connection in self.connections)

    def limited(self) -> dict[ClientLimit, int]:
        """How often each limit was enforced since the start."""
        return {
            ClientLimit.BODY_MEMORY: self.memory.refused,
            ClientLimit.TENANT_CONNECTIONS: self.answering.refused,
            ClientLimit.CONNECTIONS: self.refused,
            ClientLimit.EVICTED: self.evicted,
            ClientLimit.LOOP_BUDGET: self.budget.turns,
        }

    @property
    def busy(self) -> int:
        return sum(connection.busy for connection in self.connections)

    async def close(self) -> None:
        """Stop accepting and close what is left."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.abort()
        if self._listener is not None:
            await self._listener.wait_closed()

    def _tick(self) -> None:
        self.date = f"date: {format_datetime(self._clock.utc(), usegmt=True)}\r\n".encode()
