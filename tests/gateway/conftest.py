from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvloop
from tests.gateway.stand import Stand, gateway
from tests.gateway.worker_double import SERVICE, WorkerDouble

MakeWorker = Callable[..., Awaitable[WorkerDouble]]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], AbstractEventLoop]]:
    """The loop that the gateway runs on: its transports differ from asyncio's own."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    async with gateway(tmp_path) as stand:
        yield stand


@pytest.fixture
async def make_worker() -> AsyncIterator[MakeWorker]:
    made: list[WorkerDouble] = []

    async def make(name: str = "w0", slots: int = 16, service: str = SERVICE) -> WorkerDouble:
        worker = await WorkerDouble(name, service, slots=slots).start()
        made.append(worker)
        return worker

    yield make
    for worker in made:
        await worker.stop()
