"""A door into the run's network: listens on this machine's loopback and connects inside.

One thread does both: it opens the listening socket in this machine's namespace and steps into the run's before
anything is connected, because a socket belongs to the namespace it was made in. A line `HOST PORT` on standard
input opens a door and its port is the answering line. Hole: a client sees an accepted connection that closes where
inside would refuse it.
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import sys
from pathlib import Path

CHUNK = 65536
CONNECT_LIMIT_S = 10.0
_NEWNET = 0x40000000


class Door:
    """Listens outside, connects inside."""

    def __init__(self, inside: str) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._outside = os.open("/proc/self/ns/net", os.O_RDONLY)
        self._inside = os.open(inside, os.O_RDONLY)
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> int:
        """Forward a fresh local port to `host:port` inside; the port is the answer."""
        self._step(self._outside)
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._step(self._inside)

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._forward(reader, writer, host, port)

        await asyncio.start_server(forward, sock=listener)
        return int(listener.getsockname()[1])

    def _step(self, namespace: int) -> None:
        if self._libc.setns(namespace, _NEWNET):
            raise OSError(ctypes.get_errno(), "setns")

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
        try:
            opening = asyncio.open_connection(host, port)
            inside_reader, inside_writer = await asyncio.wait_for(opening, CONNECT_LIMIT_S)
        except (OSError, TimeoutError):
            writer.transport.abort()
            return
        try:
            await asyncio.gather(_pump(reader, inside_writer), _pump(inside_reader, writer))
        finally:
            inside_writer.close()
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.transport.abort()


async def serve(inside: str) -> None:
    """Open doors until standard input ends."""
    door = Door(inside)
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        host, port = line.decode().split()
        sys.stdout.write(f"{await door.open(host, int(port))}\n")
        sys.stdout.flush()


def main() -> None:
    """Serve the network namespace named by its path."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(str(Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
