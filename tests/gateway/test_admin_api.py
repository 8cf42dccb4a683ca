"""The admin port's views, drain and log level over HTTP: who may, what is refused, and what then happens."""

import asyncio
import json
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, PATIENCE_S, STREAM, Stand, gateway, plain_client, until
from tests.gateway.test_gateway_process import Running, configuration, running
from tests.gateway.worker_double import Script

from paceline_core.auth import TokenSigner, jwk_set, new_signing_key, public_jwk
from paceline_core.auth.internal_token import GATEWAY_AUDIENCE, HEADER
from paceline_core.clock import SystemClock
from paceline_gateway.admin.views import DrainView, LogLevel, Page, Queues, Services, Tenants, Workers

pytestmark = pytest.mark.real
VIEWS: dict[str, type[Page]] = {"tenants": Tenants, "queues": Queues, "workers": Workers, "services": Services}


def authority(key: bytes, issuer: str = "admin", audience: str = GATEWAY_AUDIENCE) -> dict[str, str]:
    return {HEADER: TokenSigner(key, issuer).token(audience, SystemClock().utc())}


async def stage(stand: Stand) -> DrainView:
    return DrainView.model_validate_json((await stand.admin.get("/v1/drain")).content)


@pytest.mark.parametrize("name", VIEWS)
async def test_every_view_is_there_without_a_request_and_is_what_the_schema_says(stand: Stand, name: str) -> None:
    answer = await stand.admin.get(f"/v1/{name}")
    page = VIEWS[name].model_validate_json(answer.content)
    assert (answer.status_code, page.v, page.gateway, page.truncated) == (200, 1, socket.gethostname(), False)
    schema = (await stand.admin.get("/v1/openapi.json")).json()
    described = schema["paths"][f"/v1/{name}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert described == {"$ref": f"#/components/schemas/{VIEWS[name].__name__}"}


async def test_a_running_request_stands_in_all_views_and_its_key_and_prompt_in_none(
    stand: Stand, make_worker: MakeWorker
) -> None:
    stand.cluster.put(manifests.tenant(limits={"requestsPerMinute": 100, "concurrency": 5}))
    worker = await make_worker(slots=1)
    worker.script = lambda _: Script(stall_after=2)
    stand.work(worker)
    await stand.ready()
    body = json.loads(json.dumps(STREAM).replace("What is TTFT?", "my secret plan"))
    posts = [asyncio.create_task(stand.client.post("/v1/chat/completions", json=body)) for _ in range(2)]
    await until(lambda: _waiting(stand))
    pages: dict[str, Any] = {name: (await stand.admin.get(f"/v1/{name}")).json() for name in VIEWS}
    (team,), (queue,) = pages["tenants"]["tenants"], pages["queues"]["queues"]
    (seen,), (service,) = pages["workers"]["workers"], pages["services"]["services"]
    assert (team["open"], team["queued"], team["in_flight"]) == (2, 1, 1)
    assert (team["concurrency"]["used"], team["requests"]["reserved"]) == (2, 2)
    assert (queue["waiting"], queue["held"], queue["lines"][0]["tenants"][0]["tenant"]) == (1, 0, "team")
    assert (seen["state"], seen["in_flight"], seen["slots"], seen["taken"]) == ("ready", 1, 1, 1)
    assert (service["workers"], service["classes"][0]["arrivals"]) == ({"ready": 1}, 2)
    assert (service["classes"][0]["streaming_tokens"], service["classes"][0]["output_tokens"]) == (2, 0)
    told = json.dumps(pages)
    assert all(text not in told for text in ("secret plan", stand.key, stand.key.split("_")[2]))
    for post in posts:
        post.cancel()


async def _waiting(stand: Stand) -> bool:
    return bool((await stand.queue())["waiting"] == 1)


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/v1/tenants?limit=0", "limit"),
        ("/v1/tenants?limit=201", "limit"),
        ("/v1/workers?limit=many", "limit"),
        ("/v1/queues?colour=red", "colour"),
        ("/v1/tenants?service=default/chat", "service"),
        (f"/v1/services?after={'x' * 600}", "after"),
    ],
)
async def test_a_wrong_query_is_refused_by_the_name_of_its_field(stand: Stand, path: str, param: str) -> None:
    answer = await stand.admin.get(path)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_request", param)
    assert error["message"].startswith(param)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v2/tenants", 404, "route_not_found"),
        ("GET", "/debug/workers", 404, "route_not_found"),
        ("POST", "/v1/tenants", 405, "method_not_allowed"),
        ("DELETE", "/v1/drain", 405, "method_not_allowed"),
        ("POST", "/v1/log-level", 405, "method_not_allowed"),
    ],
)
async def test_other_routes_and_methods_are_refused_in_the_form_of_all_errors(
    stand: Stand, method: str, path: str, status: int, code: str
) -> None:
    answer = await stand.admin.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert ("allow" in answer.headers) == (status == 405)


async def test_without_authority_nothing_is_changed(stand: Stand) -> None:
    mine = stand.signing_key
    strangers: list[dict[str, Any]] = [
        {},
        {HEADER: "nonsense"},
        {HEADER: b"\xe9.\xe9"},
        {"authorization": f"Bearer {stand.key}"},
        authority(new_signing_key()),
        authority(mine, "gateway"),
        authority(mine, "autoscaler"),
        authority(mine, audience="default/chat"),
        stand.autoscaler_headers(),
        authority(stand.autoscaler),
    ]
    for headers in strangers:
        for method, path, body in (("POST", "/v1/drain", None), ("PUT", "/v1/log-level", {"level": "debug"})):
            answer = await stand.admin.request(method, path, headers=headers, json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert (await stage(stand)).stage == "serving"
    assert (await stand.admin.get("/readyz")).status_code == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"[", None),
        (b"[]", None),
        (b"{}", "level"),
        (b'{"level": "loud"}', "level"),
        (b'{"level": 10}', "level"),
        (b'{"level": "debug", "for": "10m"}', "for"),
        (b'{"level": "debug", "duration": "soon"}', "duration"),
        (b'{"level": "debug", "duration": "25h"}', "duration"),
        (b'{"level": "debug", "duration": 10}', "duration"),
    ],
)
async def test_a_wrong_log_level_names_the_field_and_the_fix(stand: Stand, body: bytes, param: str | None) -> None:
    answer = await stand.admin.put("/v1/log-level", content=body, headers=authority(stand.signing_key))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_request", param)
    assert "10m" in error["message"] or param == "duration"


async def test_a_huge_body_is_refused_before_it_is_read(stand: Stand) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b" " * 65536

    held: list[httpx.Response] = []
    for content in (b" " * 4_000_000, endless()):
        for method, path in (("PUT", "/v1/log-level"), ("POST", "/v1/drain")):
            held.append(await stand.admin.request(method, path, content=content, headers=authority(stand.signing_key)))
            if not isinstance(content, bytes):
                break
    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in held] == [(413, "request_too_large")] * 3
    assert (await stage(stand)).stage == "serving"


async def test_a_drain_that_was_asked_for_finishes_streams_refuses_new_work_and_ends(
    stand: Stand, make_worker: MakeWorker
) -> None:
    worker, goes_on = await make_worker(), asyncio.Event()
    worker.script = lambda _: Script(tokens=("a",) * 20, delay_s=0.0 if goes_on.is_set() else 0.05)
    stand.work(worker)
    await stand.ready()
    stream = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
    await until(lambda: len(worker.seen) == 1)
    for _ in range(2):
        answer = await stand.admin.post("/v1/drain", headers=authority(stand.signing_key))
        assert answer.status_code == 202
        assert answer.json()["stage"] in {"settling", "draining"}
    await until(lambda: _draining(stand))
    seen = await stage(stand)
    assert (seen.open, seen.connections) == (1, 1)
    assert seen.left_s is not None
    assert 0 < seen.left_s <= 5
    async with plain_client(headers={"authorization": f"Bearer {stand.key}"}) as fresh:
        refused = await fresh.post(f"http://127.0.0.1:{stand.port}/v1/chat/completions", json=CHAT)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    assert (await stand.admin.get("/readyz")).status_code == 503
    text = (await stream).text
    assert (text.count('"content":"a"'), text.endswith("data: [DONE]\n\n")) == (20, True)
    async with asyncio.timeout(PATIENCE_S):
        await stand.run


async def _draining(stand: Stand) -> bool:
    return (await stage(stand)).stage == "draining"


async def test_while_it_settles_the_drain_says_how_long_that_takes(tmp_path: Path) -> None:
    async with gateway(tmp_path, lame_duck_s=60.0) as stand:
        await stand.admin.post("/v1/drain", headers=authority(stand.signing_key))
        await until(lambda: _settling(stand))
        left_s = (await stage(stand)).left_s
        assert left_s is not None
        assert 0 < left_s <= 60


async def _settling(stand: Stand) -> bool:
    return (await stage(stand)).stage == "settling"


def trusting(directory: Path, **more: object) -> Path:
    """The file of a gateway that believes its own key, as every installed one does."""
    path = configuration(directory, **more)
    known = public_jwk((directory / "signing.key").read_bytes(), "gateway")
    (directory / "jwks.json").write_text(json.dumps(jwk_set([known])))
    return path


async def log(started: Running) -> list[str]:
    """Every message until its end."""
    assert started.process.stderr is not None
    async with asyncio.timeout(PATIENCE_S):
        return [json.loads(line)["message"] for line in (await started.process.stderr.read()).splitlines()]


@pytest.mark.parametrize(("level", "told"), [("error", False), ("info", True)])
async def test_the_log_level_decides_what_is_logged_from_then_on(tmp_path: Path, level: str, told: bool) -> None:
    async with running(trusting(tmp_path)) as started, plain_client() as client:
        base, who = f"http://127.0.0.1:{started.admin}", authority((tmp_path / "signing.key").read_bytes())
        assert (await client.get(f"{base}/v1/log-level")).json() == {"level": "info", "usual": "info", "left_s": None}
        answer = await client.put(f"{base}/v1/log-level", json={"level": level}, headers=who)
        assert answer.json() == {"level": level, "usual": "info", "left_s": None}
        await client.post(f"{base}/v1/drain", headers=who)
        assert ("draining" in await log(started)) is told
        assert await started.process.wait() == 0


async def test_a_log_level_for_a_while_ends_by_itself(tmp_path: Path) -> None:
    async with running(trusting(tmp_path)) as started, plain_client() as client:
        url, who = f"http://127.0.0.1:{started.admin}/v1/log-level", authority((tmp_path / "signing.key").read_bytes())

        async def level() -> LogLevel:
            return LogLevel.model_validate_json((await client.get(url)).content)

        await client.put(url, json={"level": "debug", "duration": "1h"}, headers=who)
        seen = await level()
        assert (seen.level, seen.left_s is not None) == ("debug", True)
        await client.put(url, json={"level": "debug", "duration": "10ms"}, headers=who)

        async def usual() -> bool:
            return (await level()).level == "info"

        await until(usual)
        assert (await level()).left_s is None
        await client.post(f"http://127.0.0.1:{started.admin}/v1/drain", headers=who)
        assert (await log(started)).count("the log level is the usual one again") == 1


async def test_whoever_may_read_the_gateways_key_asks_with_one_command(tmp_path: Path) -> None:
    with_port = {"admin": {"host": "0.0.0.0", "port": 0}}
    async with running(trusting(tmp_path, **with_port)) as started:
        path = trusting_again(tmp_path, started.admin)

        async def ask(*words: str) -> tuple[int | None, str, str]:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "paceline_gateway.admin", *words,
                env={"PACELINE_CONFIG": str(path), "PYTHONPATH": ":".join(sys.path)}, stdout=PIPE, stderr=PIPE,
            )  # fmt: skip
            async with asyncio.timeout(PATIENCE_S):
                out, err = await process.communicate()
            return process.returncode, out.decode(), err.decode()

        assert json.loads((await ask("PUT", "/v1/log-level", '{"level": "warning"}'))[1])["level"] == "warning"
        status, out, _ = await ask("PUT", "/v1/log-level", '{"level": "loud"}')
        assert (status, json.loads(out)["error"]["param"]) == (1, "level")
        status, _, err = await ask("drain")
        assert (status, err) == (2, "error: arguments: write METHOD PATH [JSON], such as: POST /v1/drain\n")
        status, out, _ = await ask("POST", "/v1/drain")
        assert (status, json.loads(out)["stage"] in {"settling", "draining"}) == (0, True)
        async with asyncio.timeout(PATIENCE_S):
            assert await started.process.wait() == 0
        status, _, err = await ask("GET", "/v1/drain")
        assert (status, len(err.splitlines())) == (1, 1)
        assert "is it up?" in err


def trusting_again(directory: Path, port: int) -> Path:
    """The same file, with the port that was taken."""
    path = directory / "gateway.yaml"
    path.write_text(path.read_text().replace("host: 0.0.0.0\n  port: 0", f"host: 0.0.0.0\n  port: {port}"))
    return path
