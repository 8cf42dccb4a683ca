"""Pages of other origins: none reads answers unless its origin is configured; its preflight needs no key."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, STREAM, Stand, gateway
from tests.gateway.test_gateway_websocket import dial
from websockets.exceptions import InvalidStatus

from paceline_core.errors import ERRORS, RequestError, error_response
from paceline_gateway.config import GatewayConfig
from paceline_gateway.http.cors import EXPOSED, NO_CORS, CorsPolicy
from paceline_gateway.http.message import Head
from paceline_gateway.http.response import request_id_field
from paceline_gateway.quota.leased_buckets import OWN_SHARE, ratelimit_fields

PAGE = "https://chat.example.com"
ALLOW, VARY = "access-control-allow-origin", "vary"
ASKS = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}


@pytest.fixture
async def open_to_page(tmp_path: Path) -> AsyncIterator[Stand]:
    async with gateway(tmp_path, cors_origins=(PAGE,)) as stand:
        yield stand


@pytest.mark.real
async def test_every_answer_to_a_listed_page_may_be_read(open_to_page: Stand, make_worker: MakeWorker) -> None:
    stand = open_to_page
    stand.work(await make_worker())
    for body, status in ((CHAT, 200), (STREAM, 200), (CHAT | {"model": "none"}, 404)):
        answer = await stand.client.post("/v1/chat/completions", json=body, headers={"origin": PAGE})
        assert (answer.status_code, answer.headers[ALLOW], answer.headers[VARY]) == (status, PAGE, "origin")
        assert "x-request-id" in answer.headers["access-control-expose-headers"]
    without_key = await stand.client.get("/v1/models", headers={"origin": PAGE, "authorization": "Bearer none"})
    assert (without_key.status_code, without_key.headers[ALLOW]) == (401, PAGE)


@pytest.mark.real
async def test_a_preflight_is_answered_without_a_key_and_by_the_route(open_to_page: Stand) -> None:
    client = open_to_page.client
    for path, methods in (("/v1/chat/completions", "POST"), ("/v1/models", "GET, HEAD")):
        answer = await client.options(path, headers=ASKS | {"authorization": ""})
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers[ALLOW] == PAGE
        assert answer.headers["access-control-allow-methods"] == methods
        assert answer.headers["access-control-allow-headers"] == "authorization"
    assert (await client.options("/v1/nothing", headers=ASKS)).status_code == 404
    assert (await client.request("OPTIONS", "/v1/models", headers=ASKS, content=b"x" * 9)).status_code == 400


@pytest.mark.real
async def test_another_page_gets_no_leave_and_its_preflight_is_a_wrong_method(open_to_page: Stand) -> None:
    other = {"origin": "https://other.example.com"}
    answer = await open_to_page.client.get("/health", headers=other)
    assert (answer.status_code, ALLOW in answer.headers, answer.headers[VARY]) == (200, False, "origin")
    refused = await open_to_page.client.options("/v1/models", headers=ASKS | other)
    assert (refused.status_code, ALLOW in refused.headers) == (405, False)


@pytest.mark.real
async def test_a_listed_page_may_open_a_websocket_and_no_other(open_to_page: Stand) -> None:
    async with dial(open_to_page, origin=PAGE):
        pass
    with pytest.raises(InvalidStatus):
        async with dial(open_to_page, origin="https://other.example.com"):
            pass


@pytest.mark.real
async def test_by_default_nothing_is_said_to_any_page(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stand:
        answer = await stand.client.get("/health", headers={"origin": PAGE})
        assert not {ALLOW, VARY} & set(answer.headers)
        assert (await stand.client.options("/v1/models", headers=ASKS)).status_code == 405


def test_a_star_is_every_page_and_no_page_is_no_origin() -> None:
    every, head = CorsPolicy(frozenset({"*"})), Head("OPTIONS", "/health", {b"access-control-request-method": b"GET"})
    assert every.allows({b"origin": b"null"})
    assert not every.allows({})
    assert not every.is_preflight(head)
    assert NO_CORS.fields({b"origin": PAGE.encode()}) == b""


def test_a_page_may_read_every_field_that_an_answer_may_carry() -> None:
    told = {name for code in ERRORS for name in error_response(RequestError(code, "why", retry_after=1.5)).headers}
    lines = ratelimit_fields((10, 10, 10, 10), (5, 5, 5, 5)) + OWN_SHARE + request_id_field(b"r")
    told |= {line.partition(":")[0] for line in lines.decode().splitlines()}
    assert told - {"content-type"} <= set(EXPOSED)
    assert "retry-after-ms" in told


@pytest.mark.parametrize("origin", ["chrome-extension://abcdef", "tauri://localhost", "http://localhost:3000", "*"])
def test_origins_are_taken_as_browsers_send_them(origin: str, tmp_path: Path) -> None:
    policy = CorsPolicy(
        frozenset(GatewayConfig(signing_key=tmp_path, trust_bundle=tmp_path, cors_origins=(origin,)).cors_origins)
    )
    assert policy.allows({b"origin": origin.encode()})


@pytest.mark.parametrize(
    "origin",
    [
        "chat.example.com",
        "https://chat.example.com/",
        "https://a b",
        "",
        "https://Chat.example.com",
        "https://u@a",
        "null",
    ],
)
def test_what_is_no_origin_is_refused_by_name(origin: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="cors_origins"):
        GatewayConfig(signing_key=tmp_path, trust_bundle=tmp_path, cors_origins=(origin,))
