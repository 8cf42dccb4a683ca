"""A worker that drains again and again, told through its load stream, or with that stream closed or silent."""

import asyncio
import time
from typing import Literal

from tests.gateway.worker_double import REFUSAL, Script, Seen, WorkerDouble

from paceline_core.wire import WorkerState

Told = Literal["said", "closed", "silent"]


class Leaver(WorkerDouble):
    """`picks`: when requests came, in monotonic seconds. While it drains it refuses them, as real workers do.

    `serves`: it takes requests again, whatever it said.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, slots=64)
        self.picks: list[float] = []
        self.script = self._script
        self._told: Told = "said"
        self.serves = True

    def drain(self, told: Told) -> float:
        """Take nothing more; when that was."""
        self._told, self.serves = told, False
        if told == "said":
            self.say(state=WorkerState.DRAINING)
        else:
            self.say()
        return time.monotonic()

    def come_back(self) -> None:
        """Serve again, and say so."""
        self._told, self.serves = "said", True
        self.say(state=WorkerState.READY)

    def _script(self, _: Seen) -> Script:
        self.picks.append(time.monotonic())
        return Script(delay_s=0.002) if self.serves else REFUSAL

    async def _load(self, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(super()._load(writer))
        while not writer.is_closing() and self._told == "said":
            await self._said.wait()
        task.cancel()
        while not writer.is_closing() and self._told == "silent":
            await self._said.wait()
