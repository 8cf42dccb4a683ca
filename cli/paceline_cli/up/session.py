"""A started stack until it is to stop: wait for it, then check it or show it."""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from paceline_cli.supervisor.control import GATEWAY
from paceline_cli.supervisor.part import failure
from paceline_cli.supervisor.stack import LocalStack
from paceline_cli.up.check import ChatTarget, ask
from paceline_cli.up.options import UpOptions
from paceline_cli.view.outputs import UpOutput
from paceline_core.clock import Clock
from paceline_core.errors import Unreachable
from paceline_core.kube.cluster import ObjectKey

REFRESH_S = 0.5
INTERRUPTED = "interrupted before the check was done"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Session:
    """One run between start and stop; `stop` is set by the first Ctrl-C."""

    options: UpOptions
    stack: LocalStack
    targets: Mapping[ObjectKey, ChatTarget]
    output: UpOutput
    clock: Clock
    stop: asyncio.Event

    async def run(self, notes: tuple[str, ...]) -> None:
        """Until the check is done, the duration is over or `stop` is set. Raises Unreachable when it failed."""
        self.output.starting(self.stack.snapshot(), notes)
        waited = await self._unless_stopped(self.stack.wait_ready())
        if waited is None:
            if self.options.check:
                raise Unreachable(INTERRUPTED)
            return
        target = self._served(waited.result())
        if self.options.check:
            await self._check(target)
        else:
            self.output.ready(target)
            await self._unless_stopped(self._time())

    def _served(self, broken: Mapping[ObjectKey, Unreachable]) -> ChatTarget:
        """The first service that answers; raises Unreachable when none does, or a check finds one that does not."""
        served = [target for key, target in self.targets.items() if key not in broken]
        if broken and (self.options.check or not served):
            raise Unreachable("\n".join(map(str, broken.values())))
        return served[0]

    async def _check(self, target: ChatTarget) -> None:
        if not await self._unless_stopped(self._ask(target)):
            raise Unreachable(INTERRUPTED)

    async def _ask(self, target: ChatTarget) -> None:
        try:
            async with asyncio.timeout(self.options.duration_s):
                answer = await ask(target, self.clock)
        except TimeoutError:
            late = f"had no answer within {self.options.duration_s:g} s"
            raise failure("the check", late, self.stack.log(GATEWAY)) from None
        except Unreachable as error:
            raise failure("the check", f"failed: {error}", self.stack.log(GATEWAY)) from None
        self.output.checked(target, answer)

    async def _time(self) -> None:
        await (asyncio.Event().wait() if self.options.duration_s is None else self.clock.sleep(self.options.duration_s))

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T] | None:
        """Do the work, and show how things are meanwhile; None if `stop` is set first."""
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
