"""Gateways as processes, replaced one after another under load, as a Deployment does it: no request fails."""

import asyncio
import contextlib
import random
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, PATIENCE_S, plain_client, until
from tests.gateway.test_gateway_process import Running, configuration, running
from tests.gateway.worker_double import Script, WorkerDouble

from paceline_core.clock import SystemClock
from paceline_core.kube import ObjectKey, ServiceEndpoints
from paceline_core.process import admin_server
from paceline_local.apiserver import ObjectStore
from paceline_local.apiserver.api import make_app

pytestmark = pytest.mark.real
SETTLE_S = 4.0
DRAIN_S = 20.0


@contextlib.asynccontextmanager
async def supervised(folder: Path, store: ObjectStore) -> AsyncIterator[None]:
    """The supervisor's API over a store, on the socket that `configuration` names."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "supervisor.sock"))
        server = admin_server(make_app(store, SystemClock(), lambda: None))
        serving = asyncio.create_task(server.serve([listening]))
        yield
        store.topics.close()
        server.should_exit = True
        await serving


def stocked(worker: WorkerDouble) -> tuple[ObjectStore, str]:
    """A store with a service, its worker, and a tenant; and the tenant's key."""
    store = ObjectStore()
    secret, key = manifests.key()
    for manifest in (manifests.service(), manifests.tenant(), secret):
        store.objects.put(manifest)
    store.put_endpoints(ServiceEndpoints(ObjectKey("default", "chat"), (worker.endpoint,)))
    return store, key


@dataclass
class Crowd:
    """Clients that keep their connections and ask whichever gateway the load balancer names."""

    key: str
    serving: list[int] = field(default_factory=list)
    answered: int = 0
    failures: list[str] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def client(self, seed: int) -> None:
        draw = random.Random(seed)
        async with plain_client(headers={"authorization": f"Bearer {self.key}"}) as http:
            while not self.stop.is_set():
                url = f"http://127.0.0.1:{draw.choice(self.serving)}/v1/chat/completions"
                try:
                    response = await http.post(url, json=CHAT | {"stream": draw.random() < 0.5})
                    if response.status_code != 200 or '"error"' in response.text:
                        self.failures.append(response.text)
                except httpx.HTTPError as error:
                    self.failures.append(repr(error))
                self.answered += 1

    async def some_more(self, count: int = 12) -> None:
        """Wait for so many more answers."""
        enough = self.answered + count
        await until(lambda: self.answered >= enough)


async def ready(started: Running) -> None:
    """Wait until it says so."""
    async with plain_client() as http:

        async def asked() -> bool:
            return (await http.get(f"http://127.0.0.1:{started.admin}/readyz")).status_code == 200

        await until(asked)


async def unready(started: Running) -> None:
    """Wait until it says so: from then on a load balancer looks for another one."""
    async with plain_client() as http:

        async def asked() -> bool:
            return (await http.get(f"http://127.0.0.1:{started.admin}/readyz")).status_code == 503

        await until(asked)


async def test_gateways_are_replaced_under_load_and_no_request_fails(tmp_path: Path, make_worker: MakeWorker) -> None:
    worker = await make_worker(slots=64)
    worker.script = lambda _: Script(delay_s=0.02)
    store, key = stocked(worker)
    crowd = Crowd(key)
    async with supervised(tmp_path, store), contextlib.AsyncExitStack() as stack:
        # nobody reads its log here, and a full pipe would stop it
        path = configuration(tmp_path, lame_duck_s=SETTLE_S, drain_s=DRAIN_S, access_log=False)
        generation = [await stack.enter_async_context(running(path)) for _ in range(2)]
        for started in generation:
            await ready(started)
        crowd.serving = [started.public for started in generation]
        clients = [asyncio.create_task(crowd.client(seed)) for seed in range(6)]
        for leaving in generation:
            new = await stack.enter_async_context(running(path))
            await ready(new)
            crowd.serving.append(new.public)
            await crowd.some_more()
            leaving.process.send_signal(signal.SIGTERM)
            await unready(leaving)
            await crowd.some_more()  # the load balancer has not heard of it yet
            crowd.serving.remove(leaving.public)
            async with asyncio.timeout(SETTLE_S + DRAIN_S + PATIENCE_S):
                assert await leaving.process.wait() == 0
        await crowd.some_more()
        crowd.stop.set()
        await asyncio.gather(*clients)
    assert crowd.failures == []
