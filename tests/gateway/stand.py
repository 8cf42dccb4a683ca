"""A whole gateway in the test's own loop: real ports, a cluster in memory, workers from `worker_double`."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests.gateway import manifests
from tests.gateway.cluster_double import ClusterDouble
from tests.gateway.worker_double import SERVICE, WorkerDouble

from paceline_core.auth import TokenSigner, jwk_set, new_signing_key, public_jwk
from paceline_core.auth.internal_token import GATEWAY_AUDIENCE, HEADER
from paceline_core.clock import SystemClock
from paceline_core.config import Listen
from paceline_core.kube import Endpoint
from paceline_core.kube.connect import ClusterConfig
from paceline_gateway.config import GatewayConfig, HttpLimits
from paceline_gateway.process import GatewayProcess, ListenSockets
from paceline_gateway.proxy.active_request import ActiveRequest
from paceline_gateway.telemetry.metrics import LogSinks

PATIENCE_S = 20.0
CHAT = {"model": "chat", "messages": [{"role": "user", "content": "What is TTFT?"}]}
STREAM = CHAT | {"stream": True}


@dataclass(slots=True)
class Stand:
    """Everything a test needs to hold on to."""

    cluster: ClusterDouble
    process: GatewayProcess
    client: httpx.AsyncClient
    admin: httpx.AsyncClient
    key: str
    signing_key: bytes
    port: int
    autoscaler: bytes
    stop: asyncio.Event
    abort: asyncio.Event
    run: asyncio.Task[None]

    @property
    def calls(self) -> list[ActiveRequest]:
        """Requests under way."""
        return list(self.process.requests._open.values())

    def work(self, *workers: WorkerDouble, service: str = SERVICE) -> None:
        """These are the service's workers now."""
        self.cluster.serve(service, *(worker.endpoint for worker in workers))

    def autoscaler_headers(self, audience: str = GATEWAY_AUDIENCE) -> dict[str, str]:
        """The autoscaler's header."""
        return {HEADER: TokenSigner(self.autoscaler, "autoscaler").token(audience, SystemClock().utc())}

    async def workers(self, service: str = SERVICE) -> list[dict[str, Any]]:
        """What the gateway believes of a service's workers."""
        page = (await self.admin.get("/v1/workers", params={"service": service})).json()
        return list(page["workers"])

    async def queue(self, service: str = SERVICE) -> dict[str, Any]:
        """Who waits for a service."""
        (queue,) = (await self.admin.get("/v1/queues", params={"service": service})).json()["queues"]
        return dict(queue)

    async def ready(self, count: int = 1, service: str = SERVICE) -> None:
        """Wait until the gateway calls this many workers ready."""

        async def enough() -> bool:
            return [worker["state"] for worker in await self.workers(service)].count("ready") == count

        await until(enough)

    async def serve(self, endpoints: Sequence[Endpoint]) -> None:
        """These are the workers now; waits until the gateway calls all of them ready."""
        self.cluster.serve(SERVICE, *endpoints)
        await self.ready(len(endpoints))

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        text = (await self.admin.get("/metrics")).text
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        lines = [line for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(part in line for part in wanted))


def plain_client(**settings: Any) -> httpx.AsyncClient:
    """A client without TLS, whose certificates take longer to read than most tests."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False, verify=context, **settings)


async def until(condition: Callable[[], Any]) -> None:
    """Wait for something that will be so; a test's own time limit is the other end."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = condition()
            if found is True or (asyncio.iscoroutine(found) and await found):
                return
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def gateway(
    directory: Path,
    limits: dict[str, Any] | None = None,
    drain_s: float = 5.0,
    lame_duck_s: float = 0.0,
    signing_key: bytes | None = None,
    cluster: ClusterDouble | None = None,
    outlets: LogSinks | None = None,
    **more: Any,
) -> AsyncIterator[Stand]:
    """Start one with a service, a tenant and a key; always stops. Two of one cluster share it and the signing key."""
    key_file, trust = directory / "signing.key", directory / "jwks.json"
    autoscaler = new_signing_key()
    signing_key = signing_key or new_signing_key()
    key_file.write_bytes(signing_key)
    signers = {"autoscaler": autoscaler, "gateway": signing_key}
    trust.write_text(json.dumps(jwk_set(public_jwk(private, signer) for signer, private in signers.items())))
    config = GatewayConfig(
        listen=Listen(port=0), admin=Listen(port=0), cluster=ClusterConfig(socket=directory / "none.sock"),
        signing_key=key_file, trust_bundle=trust,
        lame_duck_s=lame_duck_s, drain_s=drain_s, limits=HttpLimits(**(limits or {})), **more,
    )  # fmt: skip
    cluster = cluster or ClusterDouble()
    secret, key = manifests.key()
    for manifest in (manifests.service(), manifests.tenant(), secret):
        cluster.put(manifest)
    ports = ListenSockets.take(config)
    port, admin = ports.public.getsockname()[1], ports.admin.getsockname()[1]
    process = GatewayProcess(config, cluster, SystemClock(), ports, outlets)
    stop, abort = asyncio.Event(), asyncio.Event()
    run = asyncio.create_task(process.run(stop, abort))
    base, headers = f"http://127.0.0.1:{port}", {"authorization": f"Bearer {key}"}
    async with (
        plain_client(base_url=base, headers=headers) as client,
        plain_client(base_url=f"http://127.0.0.1:{admin}") as inside,
    ):
        stand = Stand(cluster, process, client, inside, key, signing_key, port, autoscaler, stop, abort, run)
        await until(lambda: _is_ready(inside))
        try:
            yield stand
        finally:
            stop.set()
            abort.set()
            await run


async def _is_ready(admin: httpx.AsyncClient) -> bool:
    try:
        return (await admin.get("/readyz")).status_code == 200
    except httpx.TransportError:
        return False
