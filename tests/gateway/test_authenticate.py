import pytest
from tests.every import cases
from tests.gateway.manifests import key, tenant
from tests.gateway.pieces import snapshot

from paceline_core.errors import Code, RequestError
from paceline_core.registry import RequestClass
from paceline_gateway.api.admission import authenticate, choose_class

SECRET, KEY = key("team")
SEEN = snapshot(tenant("team"), SECRET)


def bearer(text: str, scheme: str = "Bearer") -> dict[bytes, bytes]:
    return {b"authorization": f"{scheme} {text}".encode()}


def test_a_key_names_its_tenant() -> None:
    assert authenticate(bearer(KEY), SEEN).name == "team"
    assert authenticate(bearer(KEY, "bearer"), SEEN).name == "team"
    assert authenticate({b"x-api-key": KEY.encode()}, SEEN).name == "team"


@cases(
    "headers",
    [
        {},
        {b"authorization": b""},
        {b"authorization": KEY.encode()},
        {b"x-api-key": KEY[:-1].encode()},
        bearer("pl_aaaaaaaa_" + "a" * 32) | {b"x-api-key": KEY.encode()},
        bearer(KEY, "Basic"),
        bearer(""),
        bearer(KEY[:-1]),
        bearer(KEY[:-1] + ("a" if KEY[-1] != "a" else "b")),
        bearer("pl_aaaaaaaa_" + "a" * 32),
        bearer("sk-something-else"),
        bearer("\xff\xfe"),
    ],
)
def test_anything_else_is_refused_and_never_repeated(headers: dict[bytes, bytes]) -> None:
    with pytest.raises(RequestError) as caught:
        authenticate(headers, SEEN)
    assert caught.value.code is Code.INVALID_API_KEY
    assert KEY[12:20] not in caught.value.message


def test_a_key_without_its_tenant_is_no_key() -> None:
    with pytest.raises(RequestError, match="not valid"):
        authenticate(bearer(KEY), snapshot(SECRET))


def test_a_revoked_key_is_refused_at_once() -> None:
    with pytest.raises(RequestError, match="not valid"):
        authenticate(bearer(KEY), snapshot(tenant("team")))


def test_the_default_class_is_the_tenants() -> None:
    seen = snapshot(tenant("team", classes=["batch", "offline"]), tenant("other", defaultClass="offline"))
    assert choose_class({}, seen.tenants["team"]) is RequestClass.BATCH
    assert choose_class({}, seen.tenants["other"]) is RequestClass.OFFLINE


def test_a_class_may_be_asked_for() -> None:
    team = snapshot(tenant("team")).tenants["team"]
    assert choose_class({b"x-paceline-class": b"Batch"}, team) is RequestClass.BATCH


def test_a_class_that_is_not_open_is_forbidden() -> None:
    team = snapshot(tenant("team", classes=["batch"])).tenants["team"]
    with pytest.raises(RequestError, match="you may use batch") as caught:
        choose_class({b"x-paceline-class": b"interactive"}, team)
    assert caught.value.code is Code.CLASS_FORBIDDEN


def test_a_class_that_does_not_exist_is_named_as_such() -> None:
    team = snapshot(tenant("team")).tenants["team"]
    with pytest.raises(RequestError, match="not `urgent`") as caught:
        choose_class({b"x-paceline-class": b"urgent"}, team)
    assert caught.value.code is Code.INVALID_REQUEST
