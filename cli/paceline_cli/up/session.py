"""A started stack until its stop: wait until it is ready, then check it or show it.

The first Ctrl-C, SIGTERM or closed terminal requests an orderly stop, the second ends everything at once. Output to a
closed terminal goes to /dev/null. Under nohup SIGHUP stays ignored.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from paceline_cli.ui.up_outputs import UpOutput
from paceline_cli.up.check import ChatTarget, ask
from paceline_core.clock import Clock
from paceline_core.errors import Unreachable
from paceline_core.kube.cluster import ObjectKey
from paceline_local.component_configs import GATEWAY
from paceline_local.process import failure
from paceline_local.stack import LocalStack

DEFAULT_PORT = 8000
REFRESH_S = 0.5
INTERRUPTED = "interrupted before the check was done"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UpOptions:
    """Checked command-line options. Port 0 takes a free one.

    `duration_s`: how long it runs once everything is ready, or waits for the check's answer; None: until a signal.
    """

    files: tuple[Path, ...]
    state: Path
    port: int = DEFAULT_PORT
    duration_s: float | None = None
    check: bool = False
    log_level: str = "INFO"
    cors_origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Session:
    """A run between start and stop; `stop` is set by the first Ctrl-C."""

    options: UpOptions
    stack: LocalStack
    targets: Mapping[ObjectKey, ChatTarget]
    output: UpOutput
    clock: Clock
    stop: asyncio.Event

    async def run(self, notes: tuple[str, ...]) -> None:
        """Run until the check is done, the duration is over or `stop` is set. Raises Unreachable if it failed."""
        self.output.starting(self.stack.snapshot(), notes)
        waited = await self._unless_stopped(self.stack.wait_ready())
        if waited is None:
            if self.options.check:
                raise Unreachable(INTERRUPTED)
            return
        broken = waited.result()
        served = [target for key, target in self.targets.items() if key not in broken]
        if broken and (self.options.check or not served):
            raise Unreachable("\n".join(map(str, broken.values())))
        if self.options.check:
            if not await self._unless_stopped(self._check(served[0])):
                raise Unreachable(INTERRUPTED)
            return
        self.output.ready(served[0])
        limit = self.options.duration_s
        await self._unless_stopped(asyncio.Event().wait() if limit is None else self.clock.sleep(limit))

    async def _check(self, target: ChatTarget) -> None:
        try:
            async with asyncio.timeout(self.options.duration_s):
                answer = await ask(target, self.clock)
        except TimeoutError:
            late = f"had no answer within {self.options.duration_s:g} s"
            raise failure("the check", late, self.stack.log(GATEWAY)) from None
        except Unreachable as error:
            raise failure("the check", f"failed: {error}", self.stack.log(GATEWAY)) from None
        self.output.checked(target, answer)

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T] | None:
        """Do the work and show the state meanwhile; None if `stop` is set first."""
        task, stopped = asyncio.create_task(work), asyncio.create_task(self.stop.wait())
        try:
            while not (task.done() or stopped.done()):
                self.output.update(self.stack.snapshot())
                await asyncio.wait([task, stopped], timeout=REFRESH_S, return_when=asyncio.FIRST_COMPLETED)
                self.stack.raise_if_broken()
            if not task.done():
                return None
            task.result()
            return task
        finally:
            task.cancel()
            stopped.cancel()


@contextlib.contextmanager
def interrupts(first: Callable[[], None], second: Callable[[], None]) -> Iterator[None]:
    """Handle the signals during the block; needs a running loop."""
    loop = asyncio.get_running_loop()
    calls, terminals = iter([first]), [output for output in (1, 2) if os.isatty(output)]

    def on_signal() -> None:
        next(calls, second)()

    def on_hangup() -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for output in terminals:
            os.dup2(nowhere, output)
        os.close(nowhere)
        on_signal()

    handlers = {signal.SIGINT: on_signal, signal.SIGTERM: on_signal}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handlers[signal.SIGHUP] = on_hangup
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
