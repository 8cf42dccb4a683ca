import json

import pytest
from tests.gateway.manifests import route, service, tenant
from tests.gateway.pieces import snapshot

from paceline_core.errors import Code, RequestError
from paceline_core.registry import RequestClass
from paceline_gateway.api.admission import AdmittedRequest, admit
from paceline_gateway.http.message import Headers

CHAT = service(served_name="llama", classes={"batch": {"maxTokens": 100}})
SEEN = snapshot(CHAT, route("public", {"service": "chat"}), tenant())
TEAM = SEEN.tenants["team"]


def ask(headers: Headers | None = None, **fields: object) -> tuple[bytes, AdmittedRequest]:
    body = json.dumps({"messages": []} | fields).encode()
    return body, admit(body, headers or {}, TEAM, SEEN, 0.5)


def test_a_request_is_admitted_with_its_own_bytes() -> None:
    body, admission = ask(model="llama", stream=True)
    assert admission.body is body
    assert (admission.stream, admission.request_class) == (True, RequestClass.INTERACTIVE)
    assert admission.destination.service.key == "default/chat"


def test_a_public_name_is_exchanged_for_one_the_worker_knows() -> None:
    assert json.loads(ask(model="public")[1].body)["model"] == "llama"


def test_output_limits_are_the_class_own() -> None:
    with pytest.raises(RequestError, match=r"class `batch` at most 100 output tokens\. Send 100 or") as caught:
        ask({b"x-paceline-class": b"batch"}, model="llama", max_tokens=101)
    assert (caught.value.code, caught.value.param) == (Code.INVALID_REQUEST, "max_tokens")
    for huge in (2**63, 10**30):
        with pytest.raises(RequestError, match=r"`max_tokens` is too large: .* at most 100 output tokens"):
            ask({b"x-paceline-class": b"batch"}, model="llama", max_tokens=huge)
    assert ask({b"x-paceline-class": b"batch"}, model="llama", max_tokens=100)[1].request_class is RequestClass.BATCH
    assert ask(model="llama", max_tokens=101)[1].request_class is RequestClass.INTERACTIVE


def test_who_asks_for_no_limit_gets_that_of_the_class() -> None:
    assert ask({b"x-paceline-class": b"batch"}, model="llama")[1].max_tokens == 100
    assert ask({b"x-paceline-class": b"batch"}, model="llama", max_tokens=7)[1].max_tokens == 7
    assert ask({b"x-paceline-class": b"batch"}, model="llama", max_tokens=0)[1].max_tokens == 0
