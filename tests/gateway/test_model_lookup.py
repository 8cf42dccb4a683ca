from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.manifests import NAMESPACE, route, service, tenant
from tests.gateway.pieces import snapshot

from paceline_core.errors import Code, RequestError
from paceline_core.kube.cluster import Manifest
from paceline_core.objects import InferenceService, Tenant, read
from paceline_core.objects.model_names import claimed
from paceline_core.objects.resolved import ResolvedTenant
from paceline_gateway.routing.config_snapshot import ConfigSnapshot, Unread, directory
from paceline_gateway.routing.model_lookup import Destination, Requester, resolve_model, usable_names

HEADERS: dict[bytes, bytes] = {}


def of(seen: ConfigSnapshot, name: str = "team") -> ResolvedTenant:
    return seen.tenants[name]


def find(name: str, seen: ConfigSnapshot, tenant_name: str = "team", draw: float = 0.0) -> Destination:
    return resolve_model(name, Requester(of(seen, tenant_name), HEADERS), seen, draw)[0]


def refused(name: str, seen: ConfigSnapshot, tenant_name: str = "team") -> RequestError:
    with pytest.raises(RequestError) as caught:
        find(name, seen, tenant_name)
    return caught.value


def test_the_full_name_always_works() -> None:
    seen = snapshot(service(served_name="llama"), tenant())
    assert find("default/chat", seen).service.key == "default/chat"
    assert find("default/chat", seen).model == "default/chat"


def test_short_and_served_names_work_and_reach_the_worker_as_it_knows_them() -> None:
    seen = snapshot(service(served_name="llama"), tenant())
    assert find("llama", seen).model == "llama"
    assert find("chat", seen).model == "llama"


def test_during_a_rename_both_names_reach_pods_of_either_name_and_the_old_one_yields_to_any_claim() -> None:
    renamed = service(served_name="new") | {"status": {"workload": {"servedName": "old"}}}
    seen = snapshot(renamed, tenant())
    assert {(find(name, seen).service.key, find(name, seen).model) for name in ("new", "old", "chat")} == {
        ("default/chat", "default/chat")
    }
    assert set(usable_names(Requester(of(seen), HEADERS), seen)) == {"new"}
    claimed_since = snapshot(renamed, service("old", "young", created="2026-03-01T00:00:00Z"), tenant())
    assert find("old", claimed_since).service.key == "young/old"
    foreign = service(served_name="new") | {"status": {"workload": {"servedName": "young/x"}}}
    assert refused("young/x", snapshot(foreign, service("y", "young"), tenant())).code is Code.MODEL_NOT_FOUND
    done = service(served_name="new") | {"status": {"workload": {"servedName": "new"}}}
    assert refused("old", snapshot(done, tenant())).code is Code.MODEL_NOT_FOUND


def test_the_oldest_object_wins_a_contested_name() -> None:
    young = service("chat", "young", created="2026-03-01T00:00:00Z")
    old = service("other", "old", created="2026-02-01T00:00:00Z", served_name="chat")
    assert find("chat", snapshot(young, old, tenant())).service.key == "old/other"


def test_a_name_is_contested_only_among_what_the_caller_may_use() -> None:
    young = service("chat", "young", created="2026-03-01T00:00:00Z")
    old = service("chat", "old", created="2026-02-01T00:00:00Z")
    seen = snapshot(young, old, tenant(services=["young/*"]))
    assert find("chat", seen).service.key == "young/chat"


def test_unknown_and_forbidden_get_the_same_answer() -> None:
    seen = snapshot(service(), tenant(services=["elsewhere/*"]))
    for name in ("default/chat", "chat", "nonsense"):
        error = refused(name, seen)
        assert (error.code, error.param) == (Code.MODEL_NOT_FOUND, "model")
        assert error.message.replace(name, "X") == refused("nonsense", seen).message.replace("nonsense", "X")


def test_a_public_name_goes_before_a_services_own() -> None:
    seen = snapshot(service("chat"), service("chat-v2"), route("chat", {"service": "chat-v2"}), tenant())
    assert find("chat", seen).service.key == "default/chat-v2"
    assert find("chat", seen).model == "chat-v2"


def test_backends_get_their_share() -> None:
    backends = ({"service": "a", "weight": 3}, {"service": "b", "weight": 1}, {"service": "c", "weight": 0})
    seen = snapshot(service("a"), service("b"), service("c"), route("m", *backends), tenant())
    names = [find("m", seen, draw=draw / 100).service.name for draw in range(100)]
    assert (names.count("a"), names.count("b"), names.count("c")) == (75, 25, 0)


@given(st.floats(0, 1, exclude_max=True))
def test_every_draw_finds_a_backend(draw: float) -> None:
    backends = ({"service": "a", "weight": 1}, {"service": "b", "weight": 999})
    seen = snapshot(service("a"), service("b"), route("m", *backends), tenant())
    assert find("m", seen, draw=draw).service.name in ("a", "b")


def test_backends_that_do_not_exist_or_are_forbidden_are_passed_over() -> None:
    seen = snapshot(
        service("a"), service("b"), route("m", {"service": "gone"}, {"service": "a"}, {"service": "b"}),
        tenant(services=["default/b"]),
    )  # fmt: skip
    assert {find("m", seen, draw=draw / 10).service.name for draw in range(10)} == {"b"}


def test_a_backend_may_name_the_model_it_wants_to_be_asked_for() -> None:
    seen = snapshot(service("a"), route("m", {"service": "a", "model": "inner"}), tenant())
    assert find("m", seen).model == "inner"


def test_a_route_none_of_whose_backends_exists_leads_to_its_fallback() -> None:
    for backend in ({"service": "gone"}, {"url": "https://api.example.com/v1"}):
        seen = snapshot(service("b"), route("m", backend, fallback=["none", "b"]), tenant())
        found = find("m", seen)
        assert (found.service.name, found.model, found.when) == ("b", "b", "fallback")
        assert usable_names(Requester(of(seen), HEADERS), seen).keys() == {"b", "m"}


def test_a_route_nothing_of_which_exists_does_not_exist() -> None:
    seen = snapshot(service("b"), route("m", {"service": "gone"}, fallback=["none"]), tenant())
    assert refused("m", seen).code is Code.MODEL_NOT_FOUND
    assert usable_names(Requester(of(seen), HEADERS), seen).keys() == {"b"}


def test_a_route_to_outside_endpoints_hides_no_other_model_from_the_list() -> None:
    seen = snapshot(service("b"), route("m", {"url": "https://api.example.com/v1"}), tenant())
    assert usable_names(Requester(of(seen), HEADERS), seen).keys() == {"b"}


def test_a_routes_retry_terms_come_with_it() -> None:
    seen = snapshot(service("a"), route("m", {"service": "a"}, retry={"attempts": 4, "budget": 0.5}), tenant())
    assert (find("m", seen).attempts, find("m", seen).retry_share) == (4, 0.5)


def test_a_route_to_outside_endpoints_is_refused_with_the_reason() -> None:
    seen = snapshot(route("m", {"url": "https://api.example.com/v1"}), tenant())
    error = refused("m", seen)
    assert error.code is Code.MODEL_NOT_FOUND
    assert "outside endpoints" in error.message


def test_a_route_applies_to_the_tenants_it_names() -> None:
    private = route("m", {"service": "a"}, matches=[{"tenants": ["vip"]}])
    seen = snapshot(service("a"), private, tenant("team"), tenant("vip"))
    assert find("m", seen, "vip").service.name == "a"
    assert refused("m", seen, "team").code is Code.MODEL_NOT_FOUND


def test_a_route_applies_to_requests_with_its_headers() -> None:
    canary = route("m", {"service": "b"}, matches=[{"headers": [{"name": "X-Try", "value": "new"}]}])
    seen = snapshot(service("m"), service("b"), canary, tenant())
    assert resolve_model("m", Requester(of(seen), {b"x-try": b"new"}), seen, 0.0)[0].service.name == "b"
    assert resolve_model("m", Requester(of(seen), {b"x-try": b"old"}), seen, 0.0)[0].service.name == "m"


def test_tenants_of_other_namespaces_are_not_honoured() -> None:
    stranger = tenant("team")
    stranger["metadata"]["namespace"] = "default"
    assert snapshot(stranger).tenants == {}


def test_every_listed_name_leads_to_the_service_it_is_listed_for() -> None:
    seen = snapshot(
        service("chat", "old", created="2026-01-01T00:00:00Z"),
        service("chat", "new", created="2026-02-01T00:00:00Z"),
        service("x", "new", served_name="llama"),
        service("hidden", "secret"),
        route("public", {"service": "x"}, namespace="new"),
        tenant(services=["old/*", "new/*"]),
    )
    names = usable_names(Requester(of(seen), HEADERS), seen)
    assert set(names) == {"chat", "new/chat", "llama", "public"}
    for name, found in names.items():
        assert find(name, seen).service.key == found.key


def test_a_service_is_listed_by_its_name_where_a_route_of_that_name_does_not_apply() -> None:
    header = route("m", {"service": "b"}, matches=[{"headers": [{"name": "x-try", "value": "new"}]}])
    private = route("n", {"service": "b"}, matches=[{"tenants": ["vip"]}])
    missing = route("o", {"service": "gone"})
    services = [service(name) for name in "bmno"]
    seen = snapshot(*services, header, private, missing, tenant())
    names = usable_names(Requester(of(seen), HEADERS), seen)
    assert names.keys() == {"b", "m", "n", "o"}
    for name, found in names.items():
        assert find(name, seen).service.key == found.key


def test_a_route_is_listed_for_who_asks_with_its_headers_and_hidden_from_others() -> None:
    canary = route("m", {"service": "b"}, matches=[{"headers": [{"name": "X-Try", "value": "new"}]}])
    seen = snapshot(service("b"), canary, tenant())
    for headers, listed in (({b"x-try": b"new"}, {"b", "m"}), ({b"x-try": b"old"}, {"b"}), ({}, {"b"})):
        asker = Requester(of(seen), headers)
        assert usable_names(asker, seen).keys() == listed


def test_a_service_hidden_behind_a_public_name_is_listed_by_its_full_one() -> None:
    seen = snapshot(service("chat"), service("b"), route("chat", {"service": "b"}), tenant())
    assert {name: s.key for name, s in usable_names(Requester(of(seen), HEADERS), seen).items()} == {
        "default/chat": "default/chat", "b": "default/b", "chat": "default/b",
    }  # fmt: skip


OLD, NEW, NEWEST = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"


def fronting(model: str, namespace: str, created: str, **spec: Any) -> Manifest:
    made = route(model, {"service": "own"}, namespace=namespace, **spec)
    made["metadata"]["creationTimestamp"] = created
    return made


def answers(name: str, *objects: Manifest, headers: dict[bytes, bytes] = HEADERS, **allowed: Any) -> str | None:
    """The key of the service that answers to a tenant who may use everything, or what is said."""
    seen = snapshot(*objects, tenant(**allowed))
    try:
        return resolve_model(name, Requester(of(seen), headers), seen, 0.0)[0].service.key
    except RequestError:
        return None


THEIRS = (service("own", "evil", created=OLD), service("chat", "team", created=NEW, served_name="llama"))
VICTIM = [{"tenants": ["team"]}]


@pytest.mark.parametrize("matches", [[], VICTIM])
@pytest.mark.parametrize("name", ["llama", "chat"])
def test_a_younger_route_of_another_namespace_takes_no_name_also_not_for_one_tenant(
    name: str, matches: list[dict[str, Any]]
) -> None:
    assert answers(name, *THEIRS, fronting(name, "evil", NEWEST, matches=matches)) == "team/chat"
    assert answers(name, *THEIRS, fronting(name, "evil", OLD, matches=matches)) == "evil/own"


@pytest.mark.parametrize("created", [OLD, NEWEST])
def test_a_name_of_a_namespace_is_never_anothers_whatever_its_age(created: str) -> None:
    for name in ("team/chat", "team/gone"):
        capture = fronting(name, "evil", created)
        assert answers(name, *THEIRS, capture) == ("team/chat" if name == "team/chat" else None)
        served = service("bad", "evil", created=created, served_name=name)
        assert answers(name, *THEIRS, served) == ("team/chat" if name == "team/chat" else None)
        assert answers("evil/bad", *THEIRS, served) == "evil/bad"


def test_the_full_name_of_a_service_is_not_even_its_own_namespaces_to_give_away() -> None:
    objects = (service("chat", "team"), service("own", "team"), fronting("team/chat", "team", OLD))
    assert answers("team/chat", *objects) == "team/chat"
    assert answers("team/chat", *objects, services=["team/own"]) is None


def test_a_namespace_may_give_itself_names_that_no_service_has() -> None:
    assert answers("team/best", service("own", "team"), fronting("team/best", "team", NEW)) == "team/own"


def test_a_hugging_face_id_is_a_name_like_any_other() -> None:
    found = fronting("meta-llama/llama-3.1-8b", "team", NEW)
    assert answers("meta-llama/llama-3.1-8b", service("own", "team"), found) == "team/own"


def test_a_route_fronts_a_service_of_its_own_namespace_whatever_its_age() -> None:
    for created in (OLD, NEWEST):
        objects = (service("chat", "team", created=NEW), service("own", "team"), fronting("chat", "team", created))
        assert answers("chat", *objects) == "team/own"
        other = service("chat", "other", created="2026-02-02T00:00:00Z")
        assert answers("chat", *objects, other) == "team/own"


def test_an_owner_that_leads_nowhere_hands_its_name_to_no_other_namespace() -> None:
    objects = (fronting("chat", "team", OLD), service("chat", "other", created=NEW))
    assert answers("chat", *objects) is None
    assert answers("chat", *objects, services=["other/*"]) == "other/chat"


def test_a_route_is_nothing_to_a_tenant_that_may_use_none_of_its_backends() -> None:
    shadow = fronting("chat", "evil", OLD, fallback=["dear"])
    objects = (service("own", "evil"), shadow, service("chat", "team"), service("dear", "team"))
    assert answers("chat", *objects, services=["team/*"]) == "team/chat"


NAMES = ("x", "y", "a/x", "b/z", "meta/y")
OBJECTS = st.lists(
    st.one_of(
        st.builds(
            lambda name, space, created, served: service(name, space, created=created, served_name=served),
            st.sampled_from(["x", "y", "own"]),
            st.sampled_from("abc"),
            st.sampled_from([OLD, NEW, NEWEST]),
            st.sampled_from([None, *NAMES]),
        ),
        st.builds(
            fronting,
            st.sampled_from(NAMES),
            st.sampled_from("abc"),
            st.sampled_from([OLD, NEW, NEWEST]),
            matches=st.sampled_from([[], VICTIM, [{"tenants": ["other"]}]]),
        ),
    ),
    max_size=7,
    unique_by=lambda one: (one["kind"], one["metadata"]["namespace"], one["metadata"]["name"]),
)


def claims(one: Manifest, name: str) -> bool:
    """Whether an object claims a name for the tenant `team`, said without the code's own words."""
    if one["kind"] == "InferenceRoute":
        matches = one["spec"]["matches"]
        return one["spec"]["model"] == name and (not matches or matches == VICTIM)
    return name in (one["metadata"]["name"], one["spec"]["model"].get("servedName"))


@given(OBJECTS, st.sampled_from(NAMES), st.sampled_from([["*"], ["a/*"], ["b/*", "c/own"]]))
def test_nobody_is_sent_to_a_younger_objects_namespace(objects: list[Manifest], name: str, allowed: list[str]) -> None:
    caller = snapshot(*objects, tenant(services=allowed))
    spaces = {one["metadata"]["namespace"] for one in objects}
    usable = [
        one
        for one in objects
        if of(caller).allows(f"{one['metadata']['namespace']}/own" if one["kind"] == "InferenceRoute"
                             else f"{one['metadata']['namespace']}/{one['metadata']['name']}")
    ]  # fmt: skip
    found = answers(name, *objects, services=allowed)
    prefix = name.partition("/")[0] if "/" in name else ""
    if name in caller.services:
        assert found in {name, None}
    elif found is not None:
        rivals = [one["metadata"] for one in usable if claims(one, name)]
        oldest = min(
            (one["creationTimestamp"], f"{one['namespace']}/{one['name']}", one["namespace"])
            for one in rivals
            if prefix not in spaces or one["namespace"] == prefix
        )
        assert found.partition("/")[0] == oldest[2]
    names = usable_names(Requester(of(caller), HEADERS), caller)
    assert {listed: answers(listed, *objects, services=allowed) for listed in names} == {
        listed: service.key for listed, service in names.items()
    }


def test_an_object_that_this_version_cannot_read_hands_its_names_to_nobody() -> None:
    unread = service("chat", "team", served_name="llama", created=OLD, colour="red", pools="of a later version")
    younger = service("chat", "evil", served_name="llama", created=NEW)
    for shelved in (unread, {**fronting("llama", "team", OLD), "spec": {"model": "llama", "backends": {}}}):
        claim = Unread(*claimed(shelved))
        seen = directory([claim, read(InferenceService, younger)], [], [read(Tenant, tenant())], [], NAMESPACE)
        assert refused("llama", seen).code is Code.MODEL_NOT_FOUND
        assert find("evil/chat", seen).service.key == "evil/chat"
        assert "llama" not in usable_names(Requester(of(seen), HEADERS), seen)
        other = tenant(services=["evil/*"])
        alone = directory([claim, read(InferenceService, younger)], [], [read(Tenant, other)], [], NAMESPACE)
        assert find("llama", alone).service.key == "evil/chat"
