"""The API on its socket: uvicorn, without its signal handling (the supervisor has its own)."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from paceline_core.serving import QuietServer

BACKLOG = 128
GRACE_S = 2


@contextlib.asynccontextmanager
async def serving(app: FastAPI, path: Path) -> AsyncIterator[None]:
    """Serve while the block runs. The socket listens from the start, and only this user can connect to it."""
    listener = _listen(path)
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=GRACE_S)
    server = QuietServer(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="api")
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.wait([task], timeout=GRACE_S + 1)
        task.cancel()
        _close(listener, path)


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def _close(listener: socket.socket, path: Path) -> None:
    listener.close()
    path.unlink(missing_ok=True)
