"""The example with the real Envoy in front: TLS and HTTP/2 outside, HTTP/1.1 to the gateway, streams as they come."""

import asyncio
import contextlib
import importlib.util
import json
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, PATIENCE_S, STREAM, Stand, until
from tests.gateway.worker_double import Script
from tests.ports import free_port
from websockets.asyncio.client import connect

pytestmark = pytest.mark.real
EXAMPLE = Path(__file__).parents[2] / "examples" / "envoy" / "gateway.yaml"


def certificate(directory: Path) -> ssl.SSLContext:
    """Make one for 127.0.0.1, and a context that trusts it alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "paceline test")])
    now = datetime.now(UTC)  # noqa: TID251 - a certificate is checked against the machine's own clock
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    (directory / "tls.crt").write_bytes(pem)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (directory / "tls.key").write_bytes(secret)
    context = ssl.create_default_context(cadata=pem.decode())
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def example(public: int, admin: int, gateway: int) -> str:
    """The example's configuration with the test's addresses, all else as it is."""
    config = yaml.safe_load(EXAMPLE.read_text())
    config["admin"]["address"]["socket_address"]["port_value"] = admin
    resources = config["static_resources"]
    resources["listeners"][0]["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": public}
    (place,) = resources["clusters"][0]["load_assignment"]["endpoints"][0]["lb_endpoints"]
    place["endpoint"]["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": gateway}
    return json.dumps(config)


@contextlib.asynccontextmanager
async def envoy(stand: Stand, directory: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Run it, and talk to it over HTTP/2; always stops."""
    context, (public, admin) = certificate(directory), (free_port(), free_port())
    (directory / "envoy.json").write_text(example(public, admin, stand.port))
    place = importlib.util.find_spec("envoy._bin")
    assert place is not None
    assert place.origin is not None
    program = Path(place.origin).with_name("envoy")
    process = await asyncio.create_subprocess_exec(
        program, "-c", "envoy.json", "--concurrency", "1", "--log-level", "warning", "--base-id", str(public),
        cwd=directory,
    )  # fmt: skip
    headers = {"authorization": f"Bearer {stand.key}"}
    base = f"https://127.0.0.1:{public}"
    try:
        async with httpx.AsyncClient(
            base_url=base, headers=headers, verify=context, http2=True, timeout=PATIENCE_S, trust_env=False
        ) as client:
            await until(lambda: _up(client))
            yield client
    finally:
        process.terminate()
        await process.wait()


async def _up(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).status_code == 200
    except httpx.TransportError:
        return False


async def test_streams_pass_event_by_event_over_tls_and_http2(
    stand: Stand, make_worker: MakeWorker, tmp_path: Path
) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(tokens=("one", "two"), stall_after=1)
    stand.work(worker)
    async with envoy(stand, tmp_path) as client:
        async with client.stream("POST", "/v1/chat/completions", json=STREAM) as response:
            assert (response.status_code, response.http_version) == (200, "HTTP/2")
            lines = response.aiter_lines()
            async with asyncio.timeout(PATIENCE_S):
                while "one" not in await anext(lines):
                    pass
            assert not worker.seen[0].closed.is_set()
        await client.aclose()  # httpx resets no single stream
        await until(worker.seen[0].closed.is_set)
        await until(lambda: stand.process.requests.open == 0)
    assert await stand.metric("paceline_requests_total", outcome="cancelled") == 1


async def test_many_requests_share_one_connection_and_errors_keep_their_form(
    stand: Stand, make_worker: MakeWorker, tmp_path: Path
) -> None:
    worker, sent = await make_worker(), asyncio.Event()
    worker.script = lambda _: Script(until=sent)  # httpx ends a body after it: an answer before that breaks its stream
    stand.work(worker)
    async with envoy(stand, tmp_path) as client:
        bodies: list[Any] = [CHAT, STREAM] * 10
        calls = [asyncio.create_task(client.post("/v1/chat/completions", json=body)) for body in bodies]
        await until(lambda: stand.process.requests.open == len(bodies))
        sent.set()
        answers = await asyncio.gather(*calls)
        assert {answer.status_code for answer in answers} == {200}
        assert all(answer.text.endswith("data: [DONE]\n\n") for answer in answers[1::2])
        refused = await client.post("/v1/chat/completions", json=CHAT, headers={"authorization": "Bearer no"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        large = await client.post("/v1/chat/completions", content=b"x" * (9 << 20))
        assert (large.status_code, large.json()["error"]["code"]) == (413, "request_too_large")


async def test_websocket_passes_too(stand: Stand, make_worker: MakeWorker, tmp_path: Path) -> None:
    stand.work(await make_worker())
    async with envoy(stand, tmp_path) as client:
        uri = f"wss://127.0.0.1:{client.base_url.port}/v1/chat/completions"
        context = ssl.create_default_context(cafile=tmp_path / "tls.crt")
        headers = {"authorization": f"Bearer {stand.key}"}
        async with connect(uri, additional_headers=headers, ssl=context, proxy=None) as chat:
            await chat.send(json.dumps(STREAM))
            async with asyncio.timeout(PATIENCE_S):
                while await chat.recv() != "[DONE]":
                    pass
