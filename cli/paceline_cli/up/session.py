"""A started stack until it is to stop: wait for it, then check it or show it."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from paceline_cli.supervisor.control import GATEWAY
from paceline_cli.supervisor.part import failure
from paceline_cli.supervisor.stack import Stack
from paceline_cli.up.check import Target, ask
from paceline_cli.up.options import Options
from paceline_cli.view.outputs import Output
from paceline_core.clock import Clock
from paceline_core.errors import Unreachable

REFRESH_S = 0.5


@dataclass(frozen=True, slots=True)
class Session:
    """One run between start and stop; `stop` is set by the first Ctrl-C."""

    options: Options
    stack: Stack
    target: Target
    output: Output
    clock: Clock
    stop: asyncio.Event

    async def run(self, notes: tuple[str, ...]) -> None:
        """Until the check is done, the duration is over or `stop` is set. Raises Unreachable when it failed."""
        self.output.starting(self.stack.snapshot(), notes)
        ready = await self._unless_stopped(self.stack.wait_ready())
        if self.options.check:
            await self._check(ready)
        elif ready:
            self.output.ready(self.target)
            await self._unless_stopped(self._time())

    async def _check(self, ready: bool) -> None:
        if not ready or not await self._unless_stopped(self._ask()):
            raise Unreachable("interrupted before the check was done")

    async def _ask(self) -> None:
        try:
            answer = await ask(self.target, self.clock)
        except Unreachable as error:
            raise failure("the check", f"failed: {error}", self.stack.log(GATEWAY)) from None
        self.output.checked(self.target, answer)

    async def _time(self) -> None:
        await (asyncio.Event().wait() if self.options.duration_s is None else self.clock.sleep(self.options.duration_s))

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do the work, and show how things are meanwhile, unless `stop` is set first; whether it was done."""
        task, stopped = asyncio.create_task(work), asyncio.create_task(self.stop.wait())
        try:
            while not (task.done() or stopped.done()):
                self.output.update(self.stack.snapshot())
                await asyncio.wait([task, stopped], timeout=REFRESH_S, return_when=asyncio.FIRST_COMPLETED)
                self.stack.raise_if_broken()
            if task.done():
                task.result()
            return task.done()
        finally:
            task.cancel()
            stopped.cancel()
