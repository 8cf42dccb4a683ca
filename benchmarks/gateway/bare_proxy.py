"""The floor of Python: uvloop and httptools pass bytes on as they come, and nothing of what a gateway is for is done.

It only looks for where messages end, to take the upstreams in turn. No limits, no time-outs, no second attempts.
`python bare_proxy.py PORT UPSTREAM...`, all ports of this machine.
"""

import asyncio
import itertools
import socket
import sys
from typing import Any

import httptools
import uvloop


class Upstream(asyncio.Protocol):
    """A connection to an upstream; in `idle` while no client has it."""

    def __init__(self, idle: "list[Upstream]") -> None:
        self.client: Client | None = None
        self.transport: Any = None
        self._idle = idle
        self._complete = False
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: it is there."""
        self.transport = _quick(transport)

    def data_received(self, data: bytes) -> None:
        """asyncio: a part of an answer."""
        client = self.client
        if client is None:
            return
        self._parser.feed_data(data)
        if self._complete:
            self._complete, self.client, client.upstream = False, None, None
            self._idle.append(self)
        client.transport.write(data)

    def on_message_complete(self) -> None:
        """httptools: the answer is whole."""
        self._complete = True


class Client(asyncio.Protocol):
    """A client's connection. What comes before its upstream is connected waits in `_early`."""

    def __init__(self, pools: "itertools.cycle[tuple[int, list[Upstream]]]") -> None:
        self.upstream: Upstream | None = None
        self.transport: Any = None
        self._pools = pools
        self._early: list[bytes] | None = None
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: it is there."""
        self.transport = _quick(transport)

    def data_received(self, data: bytes) -> None:
        """asyncio: a request, or more of it."""
        if self._early is not None:
            self._early.append(data)
        elif self.upstream is not None:
            self.upstream.transport.write(data)
        else:
            self._begin(data)

    def _begin(self, data: bytes) -> None:
        port, idle = next(self._pools)
        if idle:
            self.upstream = idle.pop()
            self.upstream.client = self
            self.upstream.transport.write(data)
        else:
            self._early = [data]
            self._connecting = asyncio.create_task(self._connect(port, idle))

    async def _connect(self, port: int, idle: list[Upstream]) -> None:
        loop = asyncio.get_running_loop()
        _, upstream = await loop.create_connection(lambda: Upstream(idle), "127.0.0.1", port)
        self.upstream, upstream.client = upstream, self
        early, self._early = self._early or [], None
        upstream.transport.writelines(early)


def _quick(transport: Any) -> Any:
    transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return transport


async def _serve(port: int, upstreams: list[int]) -> None:
    pools = itertools.cycle([(upstream, list[Upstream]()) for upstream in upstreams])
    server = await asyncio.get_running_loop().create_server(lambda: Client(pools), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    first, *others = map(int, sys.argv[1:])
    uvloop.run(_serve(first, others))
