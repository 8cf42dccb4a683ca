"""The API process's end of `grammar_process`: started when it is first needed, and again when it has ended."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from paceline_core.telemetry import get_logger
from paceline_workers.server.grammar.process import REASON, CheckResult

PROGRAM = (sys.executable, "-m", "paceline_workers.server.grammar.process")
WAIT_S = 20.0
"""For a verdict, with the start of the process: it is far above the CPU time that a check has."""
_MOST = 4 * REASON + 1
_log = get_logger(__name__)


def program(folder: Path) -> tuple[str, ...]:
    """The command for the model in this folder."""
    return (*PROGRAM, "--tokenizer", str(folder / "tokenizer.json"))


class GrammarLink:
    """`argv` is the program, without `--fd`. `started`: how many processes there have been."""

    def __init__(self, argv: Sequence[str], wait_s: float = WAIT_S) -> None:
        self._argv = argv
        self._wait_s = wait_s
        self._starting = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self.started = 0

    @property
    def pid(self) -> int:
        """Process id; 0 while no process runs."""
        return 0 if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process, unless it runs. Raises OSError."""
        async with self._starting:
            if self._control is None:
                ours, theirs = socket.socketpair()
                try:
                    self._process = await self._spawned(theirs)
                except BaseException:
                    ours.close()
                    raise
                ours.setblocking(False)
                self._control = ours
                self.started += 1

    async def check(self, grammar: str) -> tuple[CheckResult, str]:
        """Check one grammar: the end of the check, and why the grammar cannot be followed, "" if it can."""
        asked = None
        try:
            await self.start()
            asked = self._control
            async with asyncio.timeout(self._wait_s):
                return await self._ask(grammar)
        except TimeoutError:
            _log.error("a grammar's check gave no answer", extra={"seconds": self._wait_s})
        except (OSError, asyncio.IncompleteReadError) as error:
            _log.error("the process that checks grammars has ended", extra={"reason": str(error)})
        if self._control is asked:
            await self.close()
        return CheckResult.FAILED, ""

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        control, self._control = self._control, None
        if control is not None:
            control.close()
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _spawned(self, theirs: socket.socket) -> asyncio.subprocess.Process:
        with theirs:
            end = theirs.fileno()
            return await asyncio.create_subprocess_exec(
                *self._argv, "--fd", str(end), stdin=asyncio.subprocess.DEVNULL, pass_fds=(end,)
            )

    async def _ask(self, grammar: str) -> tuple[CheckResult, str]:
        assert self._control is not None
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._control, [b"c"], [theirs.fileno()])
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        try:
            writer.write(grammar.encode())
            writer.write_eof()
            first = await reader.readexactly(1)
            return CheckResult(first[0]), (await reader.read(_MOST)).decode(errors="replace")
        finally:
            writer.transport.abort()
