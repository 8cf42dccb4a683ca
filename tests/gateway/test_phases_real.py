"""Phases of real requests at real workers, as Prometheus sees them, sum to the time that the access log tells."""

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.manifests import service
from tests.gateway.replicas import EMULATED, Replica, holder, replicas
from tests.gateway.stand import CHAT, STREAM, Stand, gateway, until

from paceline_core.auth import new_signing_key
from paceline_core.registry import RequestClass
from paceline_core.telemetry import BackgroundWriter
from paceline_gateway.telemetry.metrics import LogSinks

pytestmark = pytest.mark.real
KEY = new_signing_key()
PATH = "/v1/chat/completions"
LONG: dict[str, Any] = {"max_tokens": 20, "ignore_eos": True}
NAME = "paceline_request_phase_seconds_sum"


class Rig:
    """A gateway, its workers and its log."""

    def __init__(self, stand: Stand, workers: list[Replica], log: io.StringIO) -> None:
        self.stand = stand
        self.workers = workers
        self._log = log

    async def ask(self, body: dict[str, Any], meanwhile: Callable[["Rig"], Awaitable[None]] | None = None) -> None:
        """One request, and what happens while it is answered."""
        asked = asyncio.create_task(self.stand.client.post(PATH, json=body))
        if meanwhile is not None:
            await until(lambda: any(call.machine.meter.output > 3 for call in self.stand.calls))
            await meanwhile(self)
        await asked
        await until(lambda: self.stand.process.requests.open == 0)

    def holder(self) -> Replica:
        """Who answers the only request."""
        return holder(self.stand, self.workers)

    def last(self) -> dict[str, Any]:
        """What the log says of the last request."""
        self.stand.process.requests.sweep()
        found: dict[str, Any] = json.loads(self._log.getvalue().splitlines()[-1])
        return found


async def evacuate(rig: Rig) -> None:
    assert await asyncio.to_thread(rig.holder().evacuate) == 1


async def kill(rig: Rig) -> None:
    rig.holder().kill()


async def test_the_phases_of_every_kind_of_request_sum_to_its_time(tmp_path: Path) -> None:
    log = io.StringIO()
    with replicas(tmp_path, 3, KEY, engine=EMULATED) as workers:
        outlets, limits = LogSinks(BackgroundWriter(log)), {"resume_s": 1.0}
        async with gateway(tmp_path, limits, signing_key=KEY, outlets=outlets) as stand:
            await stand.serve([worker.endpoint for worker in workers])
            rig = Rig(stand, workers, log)
            story: list[tuple[dict[str, Any], Callable[[Rig], Awaitable[None]] | None, str, int]] = [
                (STREAM, None, "ok", 0),
                (CHAT, None, "ok", 0),
                (STREAM, evacuate, "ok", 1),
                (STREAM, kill, "ok", 1),
                (STREAM, kill, "ok", 1),
                (STREAM, kill, "stream_error", 0),
            ]
            for body, meanwhile, outcome, resumed in story:
                before = await stand.metric(NAME)
                await rig.ask(body | LONG, meanwhile)
                spent, line = await stand.metric(NAME) - before, rig.last()
                assert (line["outcome"], line["resumed"]) == (outcome, resumed)
                assert spent == pytest.approx(line["e2e"], rel=0.05), line


async def test_a_request_that_waited_in_vain_has_phases_too(tmp_path: Path) -> None:
    log = io.StringIO()
    async with gateway(tmp_path, outlets=LogSinks(BackgroundWriter(log))) as stand:
        rig = Rig(stand, [], log)
        stand.cluster.put(service(classes={"interactive": {"holdTimeout": "300ms"}}))
        registry = stand.process.registry
        await until(lambda: registry.services["default/chat"].spec.classes[RequestClass.INTERACTIVE].hold_timeout_s < 1)
        await rig.ask(STREAM)
        line = rig.last()
        assert line["status"] == 504
        assert await stand.metric(NAME) == pytest.approx(line["e2e"], rel=0.05)
