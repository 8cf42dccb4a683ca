import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.manifests import route, service, tenant
from tests.gateway.pieces import picture

from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedTenant
from paceline_gateway.routing.directory import Directory
from paceline_gateway.routing.models import Asker, Destination, locate, usable_names

HEADERS: dict[bytes, bytes] = {}


def of(seen: Directory, name: str = "team") -> ResolvedTenant:
    return seen.tenants[name]


def find(name: str, seen: Directory, tenant_name: str = "team", draw: float = 0.0) -> Destination:
    return locate(name, Asker(of(seen, tenant_name), HEADERS), seen, draw)[0]


def refused(name: str, seen: Directory, tenant_name: str = "team") -> RequestError:
    with pytest.raises(RequestError) as caught:
        find(name, seen, tenant_name)
    return caught.value


def test_the_full_name_always_works() -> None:
    seen = picture(service(served_name="llama"), tenant())
    assert find("default/chat", seen).service.key == "default/chat"
    assert find("default/chat", seen).model == "default/chat"


def test_short_and_served_names_work_and_reach_the_worker_as_it_knows_them() -> None:
    seen = picture(service(served_name="llama"), tenant())
    assert find("llama", seen).model == "llama"
    assert find("chat", seen).model == "llama"


def test_the_oldest_object_wins_a_contested_name() -> None:
    young = service("chat", "young", created="2026-03-01T00:00:00Z")
    old = service("other", "old", created="2026-02-01T00:00:00Z", served_name="chat")
    assert find("chat", picture(young, old, tenant())).service.key == "old/other"


def test_a_name_is_contested_only_among_what_the_caller_may_use() -> None:
    young = service("chat", "young", created="2026-03-01T00:00:00Z")
    old = service("chat", "old", created="2026-02-01T00:00:00Z")
    seen = picture(young, old, tenant(services=["young/*"]))
    assert find("chat", seen).service.key == "young/chat"


def test_unknown_and_forbidden_are_told_the_same() -> None:
    seen = picture(service(), tenant(services=["elsewhere/*"]))
    for name in ("default/chat", "chat", "nonsense"):
        error = refused(name, seen)
        assert (error.code, error.param) == (Code.MODEL_NOT_FOUND, "model")
        assert error.message.replace(name, "X") == refused("nonsense", seen).message.replace("nonsense", "X")


def test_a_public_name_goes_before_a_services_own() -> None:
    seen = picture(service("chat"), service("chat-v2"), route("chat", {"service": "chat-v2"}), tenant())
    assert find("chat", seen).service.key == "default/chat-v2"
    assert find("chat", seen).model == "chat-v2"


def test_backends_get_their_share() -> None:
    backends = ({"service": "a", "weight": 3}, {"service": "b", "weight": 1}, {"service": "c", "weight": 0})
    seen = picture(service("a"), service("b"), service("c"), route("m", *backends), tenant())
    names = [find("m", seen, draw=draw / 100).service.name for draw in range(100)]
    assert (names.count("a"), names.count("b"), names.count("c")) == (75, 25, 0)


@given(st.floats(0, 1, exclude_max=True))
def test_every_draw_finds_a_backend(draw: float) -> None:
    backends = ({"service": "a", "weight": 1}, {"service": "b", "weight": 999})
    seen = picture(service("a"), service("b"), route("m", *backends), tenant())
    assert find("m", seen, draw=draw).service.name in ("a", "b")


def test_backends_that_do_not_exist_or_are_forbidden_are_passed_over() -> None:
    seen = picture(
        service("a"), service("b"), route("m", {"service": "gone"}, {"service": "a"}, {"service": "b"}),
        tenant(services=["default/b"]),
    )  # fmt: skip
    assert {find("m", seen, draw=draw / 10).service.name for draw in range(10)} == {"b"}


def test_a_backend_may_name_the_model_it_wants_to_be_asked_for() -> None:
    seen = picture(service("a"), route("m", {"service": "a", "model": "inner"}), tenant())
    assert find("m", seen).model == "inner"


def test_a_route_none_of_whose_backends_exists_leads_to_its_fallback() -> None:
    for backend in ({"service": "gone"}, {"url": "https://api.example.com/v1"}):
        seen = picture(service("b"), route("m", backend, fallback=["none", "b"]), tenant())
        found = find("m", seen)
        assert (found.service.name, found.model, found.when) == ("b", "b", "fallback")
        assert usable_names(Asker(of(seen), HEADERS), seen).keys() == {"b", "m"}


def test_a_route_nothing_of_which_exists_does_not_exist() -> None:
    seen = picture(service("b"), route("m", {"service": "gone"}, fallback=["none"]), tenant())
    assert refused("m", seen).code is Code.MODEL_NOT_FOUND
    assert usable_names(Asker(of(seen), HEADERS), seen).keys() == {"b"}


def test_a_route_to_outside_endpoints_hides_no_other_model_from_the_list() -> None:
    seen = picture(service("b"), route("m", {"url": "https://api.example.com/v1"}), tenant())
    assert usable_names(Asker(of(seen), HEADERS), seen).keys() == {"b"}


def test_a_routes_retry_terms_come_with_it() -> None:
    seen = picture(service("a"), route("m", {"service": "a"}, retry={"attempts": 4, "budget": 0.5}), tenant())
    assert (find("m", seen).attempts, find("m", seen).retry_share) == (4, 0.5)


def test_a_route_to_outside_endpoints_is_refused_with_the_reason() -> None:
    seen = picture(route("m", {"url": "https://api.example.com/v1"}), tenant())
    error = refused("m", seen)
    assert error.code is Code.MODEL_NOT_FOUND
    assert "outside endpoints" in error.message


def test_a_route_applies_to_the_tenants_it_names() -> None:
    private = route("m", {"service": "a"}, matches=[{"tenants": ["vip"]}])
    seen = picture(service("a"), private, tenant("team"), tenant("vip"))
    assert find("m", seen, "vip").service.name == "a"
    assert refused("m", seen, "team").code is Code.MODEL_NOT_FOUND


def test_a_route_applies_to_requests_with_its_headers() -> None:
    canary = route("m", {"service": "b"}, matches=[{"headers": [{"name": "X-Try", "value": "new"}]}])
    seen = picture(service("m"), service("b"), canary, tenant())
    assert locate("m", Asker(of(seen), {b"x-try": b"new"}), seen, 0.0)[0].service.name == "b"
    assert locate("m", Asker(of(seen), {b"x-try": b"old"}), seen, 0.0)[0].service.name == "m"


def test_tenants_of_other_namespaces_are_not_honoured() -> None:
    stranger = tenant("team")
    stranger["metadata"]["namespace"] = "default"
    assert picture(stranger).tenants == {}


def test_every_listed_name_leads_to_the_service_it_is_listed_for() -> None:
    seen = picture(
        service("chat", "old", created="2026-01-01T00:00:00Z"),
        service("chat", "new", created="2026-02-01T00:00:00Z"),
        service("x", "new", served_name="llama"),
        service("hidden", "secret"),
        route("public", {"service": "x"}, namespace="new"),
        tenant(services=["old/*", "new/*"]),
    )
    names = usable_names(Asker(of(seen), HEADERS), seen)
    assert set(names) == {"chat", "new/chat", "llama", "public"}
    for name, found in names.items():
        assert find(name, seen).service.key == found.key


def test_a_service_is_listed_by_its_name_where_a_route_of_that_name_does_not_apply() -> None:
    header = route("m", {"service": "b"}, matches=[{"headers": [{"name": "x-try", "value": "new"}]}])
    private = route("n", {"service": "b"}, matches=[{"tenants": ["vip"]}])
    missing = route("o", {"service": "gone"})
    services = [service(name) for name in "bmno"]
    seen = picture(*services, header, private, missing, tenant())
    names = usable_names(Asker(of(seen), HEADERS), seen)
    assert names.keys() == {"b", "m", "n", "o"}
    for name, found in names.items():
        assert find(name, seen).service.key == found.key


def test_a_route_is_listed_for_who_asks_with_its_headers_and_hidden_from_others() -> None:
    canary = route("m", {"service": "b"}, matches=[{"headers": [{"name": "X-Try", "value": "new"}]}])
    seen = picture(service("b"), canary, tenant())
    for headers, listed in (({b"x-try": b"new"}, {"b", "m"}), ({b"x-try": b"old"}, {"b"}), ({}, {"b"})):
        asker = Asker(of(seen), headers)
        assert usable_names(asker, seen).keys() == listed


def test_a_service_hidden_behind_a_public_name_is_listed_by_its_full_one() -> None:
    seen = picture(service("chat"), service("b"), route("chat", {"service": "b"}), tenant())
    assert {name: s.key for name, s in usable_names(Asker(of(seen), HEADERS), seen).items()} == {
        "default/chat": "default/chat", "b": "default/b", "chat": "default/b",
    }  # fmt: skip
