"""Who may ask a worker: without a gateway's token nothing but probes is reached, by a page of another site nothing."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import BaseRoute, Route, WebSocketRoute
from tests.worker.harness import SERVICE, Rig, listening, running, settings
from tests.worker.processes import HTTP, worker_process
from tests.worker.scripted_engine import Script
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from paceline_core.auth import TokenSigner, jwk_set, new_signing_key, public_jwk
from paceline_core.auth.internal_token import HEADER
from paceline_core.clock import SystemClock
from paceline_core.config import parse
from paceline_core.errors import InvalidInput
from paceline_core.wire import RETIRE_PATH
from paceline_workers.config import WorkerConfig
from paceline_workers.server.http.middleware import PROBES, CallerMiddleware

CHAT = "/v1/chat/completions"
HELLO = {"model": "chat", "messages": [{"role": "user", "content": "hello"}]}
TRUST = {"listen": {"host": "0.0.0.0", "port": 1}, "trust_bundle": "jwks.json"}


@pytest.fixture
async def rig(folder: Path, reply: list[int]) -> AsyncIterator[Rig]:
    async with running(Script(reply=reply), folder=folder, anonymous=False) as rig:
        yield rig


def routes(rig: Rig) -> list[BaseRoute]:
    assert isinstance(rig.app, CallerMiddleware)
    found: list[BaseRoute] = rig.app._app.routes  # type: ignore[attr-defined]
    return found


def trusted(folder: Path, issuer: str, audience: str = SERVICE) -> dict[str, str]:
    """A token of one more trusted key."""
    key, file = new_signing_key(), folder / "jwks.json"
    file.write_text(json.dumps(jwk_set([*json.loads(file.read_text())["keys"], public_jwk(key, issuer)])))
    return {HEADER: TokenSigner(key, issuer).token(audience, SystemClock().utc())}


async def asked(rig: Rig, headers: dict[str, str]) -> dict[str, int]:
    """The status of every HTTP route but streams of load, which go on."""
    found = {}
    for route in routes(rig):
        if isinstance(route, Route) and route.path != "/internal/load":
            for method in sorted((route.methods or set()) - {"HEAD"}):
                path = route.path.replace("{name:path}", "chat")
                found[path] = (await rig.http.request(method, path, headers=headers, content=b"{}")).status_code
    return found


async def test_no_route_but_the_probes_answers_without_a_token(rig: Rig) -> None:
    found = await asked(rig, {})
    assert {path for path, status in found.items() if status != 401} == PROBES
    assert {CHAT, "/v1/completions", "/v1/embeddings", "/tokenize", "/v1/models"} <= found.keys()
    assert (await rig.http.get("/internal/load")).status_code == 401
    assert (await rig.http.get("/nowhere")).status_code == 401


async def test_a_gateways_token_reaches_every_route_but_the_autoscalers(rig: Rig) -> None:
    assert {
        path for path, status in (await asked(rig, dict(rig.gateway_headers))).items() if status in {401, 403, 404}
    } == {RETIRE_PATH}


async def test_the_autoscalers_token_reads_the_load_retires_and_generates_nothing(rig: Rig, folder: Path) -> None:
    token = trusted(folder, "autoscaler")
    refused = {path for path, status in (await asked(rig, token)).items() if status == 401}
    open_paths = {path for path in await asked(rig, token) if path not in refused}
    assert open_paths == PROBES | {"/internal/evacuate", RETIRE_PATH}
    call = rig.call("/internal/load", headers=token)
    assert await call.status() == 200
    call.leave()
    await call.done()


@pytest.mark.parametrize("token", ["", "x", "other service", "other key"])
async def test_a_token_that_is_not_for_this_service_is_none(rig: Rig, folder: Path, token: str) -> None:
    other = TokenSigner(new_signing_key(), "gateway").token(SERVICE, SystemClock().utc())
    made = {"other service": trusted(folder, "gateway", "team/other")[HEADER], "other key": other}
    answer = await rig.http.post(CHAT, json=HELLO, headers={HEADER: made.get(token, token)})
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert "x-paceline-internal-token" in answer.json()["error"]["message"]
    assert answer.headers["x-request-id"]


async def test_over_websocket_it_is_the_same(rig: Rig) -> None:
    async with listening(rig) as address:
        for route in routes(rig):
            if isinstance(route, WebSocketRoute):
                with pytest.raises(InvalidStatus) as refused:
                    async with connect(f"ws://{address}{route.path}"):
                        pass
                assert refused.value.response.status_code == 401
        async with connect(f"ws://{address}{CHAT}", additional_headers=rig.gateway_headers) as socket:
            await socket.send(json.dumps(HELLO))
            assert "choices" in str(await socket.recv())


async def test_a_worker_that_trusts_nobody_yet_is_not_ready(rig: Rig, folder: Path) -> None:
    kept = (folder / "jwks.json").read_text()
    (folder / "jwks.json").write_text('{"keys": []}')
    answer = await rig.http.get("/readyz")
    assert (answer.status_code, "No public key of a gateway" in answer.text) == (503, True)
    (folder / "jwks.json").write_text(kept)
    assert (await rig.http.get("/readyz")).status_code == 200


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("127.0.0.1:8100", None, True),
        ("127.0.0.1:8100", "http://127.0.0.1:8100", True),
        ("localhost:8100", "http://localhost:8100", True),
        ("[::1]:8100", "http://[::1]:8100", True),
        ("127.0.0.1:8100", "http://evil.example", False),
        ("127.0.0.1:8100", "http://127.0.0.1:9000", False),
        ("127.0.0.1:8100", "null", False),
        ("evil.example:8100", "http://evil.example:8100", False),
    ],
)
async def test_a_page_of_another_site_cannot_ask_even_where_anybody_else_may(
    folder: Path, reply: list[int], host: str, origin: str | None, allowed: bool
) -> None:
    headers = {"host": host, "content-type": "text/plain"} | ({"origin": origin} if origin else {})
    async with running(Script(reply=reply), folder=folder) as rig:
        answer = await rig.http.post(CHAT, content=json.dumps(HELLO), headers=headers)
    assert answer.status_code == (200 if allowed else 400), answer.text
    assert allowed or "origin" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"listen": {"host": "0.0.0.0"}, "anonymous": None}, "in `trust_bundle`, or listen on 127.0.0.1"),
        ({"listen": {"host": "10.0.0.7"}, "anonymous": True}, "in `trust_bundle`, and leave this out"),
        ({**TRUST, "anonymous": True}, "whoever reaches 0.0.0.0 could ask without a token"),
        ({"anonymous": False}, "nobody could ask"),
    ],
)
def test_only_on_loopback_may_a_worker_be_asked_without_a_token(changed: dict[str, Any], says: str) -> None:
    plain = settings().model_dump(mode="json")
    with pytest.raises(InvalidInput, match=r"^worker.yaml: anonymous: ") as refused:
        parse(WorkerConfig, plain | changed, "worker.yaml")
    assert says in str(refused.value)


def test_with_public_keys_a_worker_listens_anywhere_and_asks_for_tokens() -> None:
    plain = settings().model_dump(mode="json")
    assert not parse(WorkerConfig, plain | TRUST | {"anonymous": None}, "worker.yaml").anonymous
    assert parse(WorkerConfig, plain | {"listen": {"host": "::1"}, "anonymous": None}, "worker.yaml").open_to_all


@pytest.mark.real
def test_metrics_and_probes_have_a_port_of_their_own_that_generates_nothing(folder: Path, reply: list[int]) -> None:
    with worker_process(folder, Script(reply=reply), anonymous=False, metrics={}) as worker:
        said = next(line for line in _lines(worker) if '"listening"' in line)
        metrics = f"http://127.0.0.1:{json.loads(said)['metrics']}"
        while HTTP.get(f"{metrics}/readyz").status_code != 200:
            pass
        assert "paceline_worker_requests_total" in HTTP.get(f"{metrics}/metrics").text
        assert HTTP.post(f"{metrics}{CHAT}", json=HELLO, headers=worker.gateway_headers).status_code == 404
        assert [HTTP.get(worker.url + path).status_code for path in sorted(PROBES)] == [401] * 3
        assert [HTTP.get(worker.url + path, headers=worker.gateway_headers).status_code for path in sorted(PROBES)] == [
            404
        ] * 3
        assert HTTP.post(worker.url + CHAT, json=HELLO).status_code == 401
        assert HTTP.post(worker.url + CHAT, json=HELLO, headers=worker.gateway_headers).status_code == 200


def _lines(worker: Any) -> list[str]:
    assert worker.url
    lines: list[str] = worker.said().splitlines()
    return lines
