"""kopf runs the process: it starts the work, handles SIGTERM and SIGINT, and cleans up before the process ends.

There are no resource handlers: the informers list and watch all ten kinds, and a second watch would be redundant. kopf
would still scan the API server's resources at its start, and end the process after a few failures. It scans only with
credentials, so its login never completes: kopf sends no request, and tasks that wait for the login need no grace period
at the end. Liveness, readiness and metrics share the admin port, because kopf's own probe server has only liveness.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import kopf

from paceline_core.process import cancel, on_signals

registry = kopf.OperatorRegistry()


class OperatorProcess:
    """kopf's memo: the work between startup and cleanup. `ended` has its result, and stops kopf.

    `unawaited`: every task that the cleanup leaves; kopf would wait five seconds for them.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.unawaited = asyncio.all_tasks()
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._work(), name="operator")
        self._task.add_done_callback(self._end)

    async def stop(self) -> None:
        if self._task is not None:
            await cancel(self._task)
        self.unawaited |= asyncio.all_tasks()

    def _end(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()):
            self.ended.set_exception(error)
        else:
            self.ended.set_result(None)


@kopf.on.startup(registry=registry)
async def start(memo: OperatorProcess, **_: Any) -> None:
    memo.start()


@kopf.on.login(registry=registry)
async def withhold_credentials(**_: Any) -> None:
    await asyncio.Event().wait()


@kopf.on.cleanup(registry=registry)
async def stop(memo: OperatorProcess, **_: Any) -> None:
    on_signals(lambda: None)
    await memo.stop()


async def run_under_kopf(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `work` until a signal cancels it, or until it ends by itself; raises what it raised."""
    process = OperatorProcess(work)
    tasks = await kopf.spawn_tasks(
        registry=registry, memo=process, stop_flag=process.ended, standalone=True, clusterwide=True
    )
    await kopf.run_tasks(tasks, ignored=process.unawaited)
