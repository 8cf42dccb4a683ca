"""Connections to workers: the one used last is used next, idle ones are closed before the worker would do it."""

import asyncio
from collections.abc import Callable
from functools import partial

from paceline_core.process import cancel
from paceline_gateway.config import HttpLimits
from paceline_gateway.http.upstream_connection import DisconnectReason, Receiver, UpstreamConnection

Address = tuple[str, int]
IDLE_LIMIT = 64


class UpstreamExchange:
    """One request under way. Its methods work at any moment: before the connection stands, and after the end."""

    __slots__ = ("_paused", "_receiver", "_task", "_upstream", "aborted")

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._upstream: UpstreamConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._paused = False
        self.aborted = False

    @property
    def complete(self) -> bool:
        """All of the response has come, though its last piece may still be on the way to the receiver."""
        return self._upstream is not None and self._upstream.complete

    def abort(self) -> None:
        """Give up: the worker sees a closed connection, the receiver hears nothing more."""
        self.aborted = True
        if self._task is not None:
            self._task.cancel()
        if self._upstream is not None and self._upstream.serves(self._receiver):
            self._upstream.abort()

    def pause(self, paused: bool) -> None:
        """Stop reading the response, or read on."""
        self._paused = paused
        if self._upstream is not None and self._upstream.serves(self._receiver):
            self._upstream.pause() if paused else self._upstream.resume()

    def use(self, upstream: UpstreamConnection, request: list[bytes]) -> None:
        """A connection is there: send."""
        self._upstream = upstream
        upstream.send(request, self._receiver)
        if self._paused:
            upstream.pause()

    def wait_for(self, task: asyncio.Task[None]) -> None:
        """The connection is being made by this task."""
        self._task = task


class ConnectionPool:
    """Keep-alive connections by address."""

    def __init__(self, limits: HttpLimits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._idle: dict[Address, list[UpstreamConnection]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, address: Address, request: list[bytes], receiver: Receiver) -> UpstreamExchange:
        """Send a request over a kept connection, or over a new one."""
        exchange = UpstreamExchange(receiver)
        upstream = self._take(address)
        if upstream is not None:
            exchange.use(upstream, request)
        else:
            task = asyncio.get_running_loop().create_task(self._connect(address, request, receiver, exchange))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            exchange.wait_for(task)
        return exchange

    def sweep(self) -> None:
        """Close what has been idle for too long; call it a few times a second."""
        oldest = self._now() - self._limits.upstream_keepalive_timeout_s
        for address in list(self._idle):
            for upstream in [u for u in self._idle[address] if u.idle_since < oldest]:
                self._idle[address].remove(upstream)
                upstream.abort()
            if not self._idle[address]:
                del self._idle[address]

    async def close(self) -> None:
        """Close every idle connection and stop connecting; exchanges under way end by themselves."""
        for upstream in [u for idle in self._idle.values() for u in idle]:
            upstream.abort()
        self._idle.clear()
        await cancel(*self._tasks)

    def _take(self, address: Address) -> UpstreamConnection | None:
        idle = self._idle.get(address)
        while idle:
            upstream = idle.pop()
            if upstream.open:
                return upstream
        return None

    async def _connect(
        self, address: Address, request: list[bytes], receiver: Receiver, exchange: UpstreamExchange
    ) -> None:
        upstream = self._make(address)
        try:
            async with asyncio.timeout(self._limits.connect_s):
                await asyncio.get_running_loop().create_connection(lambda: upstream, *address)
        except asyncio.CancelledError:
            upstream.abort()
            raise
        except OSError:  # TimeoutError is one
            upstream.abort()
            if not exchange.aborted:
                receiver.lost(DisconnectReason.REFUSED)
            return
        exchange.use(upstream, request)

    def _make(self, address: Address) -> UpstreamConnection:
        return UpstreamConnection(partial(self._keep, address), partial(self._drop, address))

    def _keep(self, address: Address, upstream: UpstreamConnection) -> None:
        idle = self._idle.setdefault(address, [])
        if len(idle) >= IDLE_LIMIT:
            upstream.abort()
            return
        upstream.idle_since = self._now()
        idle.append(upstream)

    def _drop(self, address: Address, upstream: UpstreamConnection) -> None:
        idle = self._idle.get(address)
        if idle and upstream in idle:
            idle.remove(upstream)
