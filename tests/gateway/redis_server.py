"""A real Redis on loopback for the tests: its own process, no persistence unless asked for, ended by its pid."""

import asyncio
import contextlib
import shutil
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.gateway.stand import until
from tests.ports import free_port

from paceline_gateway.config import RedisConfig


@dataclass(slots=True)
class RedisServer:
    """One server on one port; it can be killed and started again."""

    directory: Path
    arguments: tuple[str, ...] = ()
    port: int = field(default=0)
    process: Process | None = None

    @property
    def config(self) -> RedisConfig:
        """How a gateway reaches it."""
        return RedisConfig(url=f"redis://127.0.0.1:{self.port}/0", timeout_s=2.0)

    async def start(self) -> None:
        """Start, and return when it answers."""
        program = shutil.which("redis-server")
        assert program is not None, "redis-server is not on PATH; scripts/services.sh installs it"
        self.port = self.port or free_port()
        self.process = await asyncio.create_subprocess_exec(
            program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory), "--save", "",
            *self.arguments, stdout=DEVNULL, stderr=DEVNULL,
        )  # fmt: skip
        await until(self._answers)

    async def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
            self.process = None

    async def _answers(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.write(b"PING\r\n")
        line = await reader.readline()
        writer.close()
        return line.startswith((b"+PONG", b"-NOAUTH"))


@contextlib.asynccontextmanager
async def redis_server(directory: Path, *arguments: str) -> AsyncIterator[RedisServer]:
    """A running server; always ended."""
    server = RedisServer(directory, arguments)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()
