"""Gateways and workers that say what the test wants, behind an httpx transport."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from paceline_autoscaler.output.retire_client import RetireClient
from paceline_autoscaler.signals import StreamClient
from paceline_core.auth import TokenSigner, new_signing_key
from paceline_core.clock import ManualClock
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import (
    RETIRE_PATH,
    ClassDemand,
    DemandReport,
    KVLoad,
    LoadReport,
    Message,
    ServiceDemand,
    StepTime,
    WorkerState,
    encode,
)

KEY = new_signing_key()


@dataclass
class Talker:
    """One stream: `say` puts a line on it, `hang_up` ends it; `status` other than 200 refuses readers.

    `retires`: it knows that call; `retired`: what the last one made of it.
    """

    status: int = 200
    retires: bool = False
    retired: bool | None = None
    readers: list[httpx.Request] = field(default_factory=list)
    _lines: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)

    def say(self, line: bytes | Message) -> None:
        self._lines.put_nowait(encode(line) if isinstance(line, Message) else line)

    def hang_up(self) -> None:
        self._lines.put_nowait(None)

    async def stream(self) -> AsyncIterator[bytes]:
        while (line := await self._lines.get()) is not None:
            yield line


@dataclass
class Talkers:
    """Every talker by `host:port`; an unknown one refuses connections."""

    by_host: dict[str, Talker] = field(default_factory=dict)
    clock: ManualClock = field(default_factory=ManualClock)

    def __getitem__(self, host: str) -> Talker:
        return self.by_host.setdefault(host, Talker())

    def link(self) -> StreamClient:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        return StreamClient(http, TokenSigner(KEY, "autoscaler"), self.clock)

    def retire_client(self) -> RetireClient:
        link = self.link()
        return RetireClient(link.http, link.signer, link.clock)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        talker = self.by_host.get(request.url.netloc.decode())
        if talker is None:
            raise httpx.ConnectError("refused")
        if request.url.path == RETIRE_PATH:
            talker.retired = request.method == "POST" if talker.retires else None
            return httpx.Response(200 if talker.retires else 404)
        talker.readers.append(request)
        return httpx.Response(talker.status, content=talker.stream())


async def eventually(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Let other tasks run until the condition holds, however many turns they need; fails after `limit_s`."""
    try:
        async with asyncio.timeout(limit_s):
            while True:
                if condition():
                    return
                await asyncio.sleep(0)
    except TimeoutError:
        pytest.fail(f"the condition did not come true within {limit_s:g} s")


def demand_report(gateway: str = "g1", service: str = "default/chat", **row: Any) -> DemandReport:
    classes = (ClassDemand.model_validate({"name": RequestClass.INTERACTIVE, **row}),)
    return DemandReport(gateway=gateway, started="a", services=(ServiceDemand(service=service, classes=classes),))


def load_report(worker: str = "main-1", **changes: Any) -> LoadReport:
    fields = {
        "worker": worker,
        "service": "default/chat",
        "revision": "r",
        "pool": "main",
        "state": WorkerState.READY,
        "slots": 64,
        "kv": KVLoad(page_tokens=64, total=1000, free=700, cached=200),
        "step_time": StepTime(base=0.0, prefill=25e-6, observations=9),
        "max_model_len": 8192,
        **changes,
    }
    return LoadReport.model_validate(fields)
