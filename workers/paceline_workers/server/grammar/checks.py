"""Checks of grammars off the event loop, in `grammar.process`: bounded in number, fair to tenants, and with a cache of
verdicts.

RUNNING checks run at a time, at most one of them for each tenant, and tenants take turns: a tenant whose grammars use
all the time of a check delays only its own requests. WAITING checks wait, at most SHARE of them for each tenant; more
are refused. Requests with the same grammar share one check. The last MAX_CACHED verdicts are cached, so a grammar that
is too costly is checked once.
"""

import asyncio
import contextlib
import socket
import sys
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from pathlib import Path

from paceline_core.errors import Code, RequestError
from paceline_core.registry.enums import GrammarCheck
from paceline_core.telemetry import get_logger
from paceline_workers.engine.sampling import grammar
from paceline_workers.server.grammar.process import CPU_S, MEMORY_BYTES, REASON, CheckResult

_log = get_logger(__name__)
PROGRAM = (sys.executable, "-m", "paceline_workers.server.grammar.process")
WAIT_S = 20.0
"""The longest wait for a verdict, including the start of the process: far above the CPU time that a check may use."""
RUNNING = 2
WAITING = 64
SHARE = 16
"""The most waiting checks of one tenant."""
MAX_CACHED = 256
RETRY_AFTER_S = 1.0
_REASONS = {
    CheckResult.TIME: f"reading it takes more than {CPU_S:g} s of a CPU; ask for less of it",
    CheckResult.MEMORY: f"reading it takes more than {MEMORY_BYTES >> 20} MiB; ask for less of it",
}
_ENDS = {
    CheckResult.TIME: GrammarCheck.TIME,
    CheckResult.MEMORY: GrammarCheck.MEMORY,
    CheckResult.FAILED: GrammarCheck.FAILED,
}
Ask = Callable[[str], Awaitable[tuple[CheckResult, str]]]
CountCheck = Callable[[GrammarCheck], None]


async def checked_here(text: str, tenant: str) -> str:  # noqa: ARG001 - the signature of `GrammarChecks.check`
    """Check a trusted grammar in this process, without a time limit."""
    return grammar.check(text)


class GrammarChecks:
    """`ask` runs one check. `count` gets the result of each. `waiting`: the number of checks that wait now."""

    def __init__(self, ask: Ask, count: CountCheck) -> None:
        self._ask = ask
        self._count = count
        self._known: OrderedDict[bytes, str] = OrderedDict()
        self._open: dict[bytes, asyncio.Future[str]] = {}
        self._lines: dict[str, deque[tuple[bytes, str]]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.waiting = 0

    async def check(self, text: str, tenant: str) -> str:
        """Return why a grammar cannot be followed, "" if it can. Raises RequestError `queue_full` or `no_capacity`."""
        if len(text) > grammar.LONGEST:
            return grammar.too_long(len(text))
        key = blake2b(text.encode(), digest_size=16).digest()
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        if key not in self._open:
            self._enter(key, text, tenant)
        return await asyncio.shield(self._open[key])

    async def close(self) -> None:
        """Cancel the waiting and running checks, and thereby the requests that await their verdicts."""
        for line in self._lines.values():
            for key, _ in line:
                self._open.pop(key).cancel()
        self._lines.clear()
        self.waiting = 0
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _enter(self, key: bytes, text: str, tenant: str) -> None:
        line = self._lines.get(tenant, ())
        if self.waiting >= WAITING or len(line) >= SHARE:
            self._count(GrammarCheck.FULL)
            words = f"{self.waiting} grammars wait to be checked, {len(line)} of them yours; try again shortly."
            raise RequestError(Code.QUEUE_FULL, words, retry_after=RETRY_AFTER_S)
        self._open[key] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(tenant, deque()).append((key, text))
        self.waiting += 1
        self._begin()

    def _begin(self) -> None:
        """Start waiting checks up to the limits, in the order of the tenants."""
        for tenant in [tenant for tenant in self._lines if tenant not in self._tasks]:
            if len(self._tasks) >= RUNNING:
                return
            line = self._lines.pop(tenant)
            key, text = line.popleft()
            if line:
                self._lines[tenant] = line
            self.waiting -= 1
            self._tasks[tenant] = asyncio.create_task(self._run(tenant, key, text))

    async def _run(self, tenant: str, key: bytes, text: str) -> None:
        future = self._open[key]
        try:
            answer, reason = await self._ask(text)
            self._end(future, key, answer, reason)
        finally:
            future.cancel()
            del self._open[key], self._tasks[tenant]
            if tenant in self._lines:
                self._lines[tenant] = self._lines.pop(tenant)  # after the other tenants
            self._begin()

    def _end(self, future: asyncio.Future[str], key: bytes, answer: CheckResult, reason: str) -> None:
        reason = _REASONS.get(answer, reason)
        self._count(_ENDS.get(answer, GrammarCheck.REFUSED if reason else GrammarCheck.ACCEPTED))
        if answer is CheckResult.FAILED:
            words = "The process that checks grammars has ended; try again shortly."
            future.set_exception(RequestError(Code.NO_CAPACITY, words, retry_after=RETRY_AFTER_S))
            future.exception()  # marks it as retrieved, even if no request waits for it any more
            return
        self._known[key] = reason
        if len(self._known) > MAX_CACHED:
            self._known.popitem(last=False)
        future.set_result(reason)


def program(folder: Path) -> tuple[str, ...]:
    """The command for the model in this folder."""
    return (*PROGRAM, "--tokenizer", str(folder / "tokenizer.json"))


class GrammarLink:
    """The API process's end of `grammar.process`: starts it on the first check, and again after it has ended.

    `argv` is the program, without `--fd`. `started`: how often the process has been started.
    """

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
                    with theirs:
                        end = theirs.fileno()
                        self._process = await asyncio.create_subprocess_exec(
                            *self._argv, "--fd", str(end), stdin=asyncio.subprocess.DEVNULL, pass_fds=(end,)
                        )
                except BaseException:
                    ours.close()
                    raise
                ours.setblocking(False)
                self._control = ours
                self.started += 1

    async def check(self, grammar: str) -> tuple[CheckResult, str]:
        """Check one grammar: how the check ended, and why the grammar cannot be followed, "" if it can."""
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
            return CheckResult(first[0]), (await reader.read(4 * REASON + 1)).decode(errors="replace")
        finally:
            writer.transport.abort()
