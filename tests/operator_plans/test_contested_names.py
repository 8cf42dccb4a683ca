"""Who answers to a short name: the operator's answer beside the gateway's own."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.operator_plans.plan_factories import service

from paceline_core.kube.cluster import Key
from paceline_core.objects import InferenceService, Tenant, read
from paceline_gateway.routing.directory import directory
from paceline_gateway.routing.models import Asker, locate
from paceline_operator.plans import Names


def named(key: str, served: str = "", created: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    namespace, _, name = key.partition("/")
    found = service(name)
    found["metadata"] |= {"namespace": namespace, "creationTimestamp": created, "uid": key}
    found["spec"]["model"] = {"source": "builtin://demo", **({"servedName": served} if served else {})}
    return found


def names(*services: dict[str, Any]) -> Names:
    found = Names()
    for one in services:
        found.put(one)
    return found


OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def test_the_oldest_service_answers_and_the_younger_is_told_who_does() -> None:
    found = names(named("b/chat", created=NEW), named("a/chat", created=OLD))
    assert found.taken_by(Key("b", "chat")) == "a/chat"
    assert found.taken_by(Key("a", "chat")) == ""


def test_services_of_one_age_go_by_their_keys() -> None:
    assert names(named("b/chat"), named("a/chat")).taken_by(Key("b", "chat")) == "a/chat"


def test_a_served_name_can_be_lost_to_another_services_own_name() -> None:
    found = names(named("a/llama", created=OLD), named("b/x", served="llama", created=NEW))
    assert found.taken_by(Key("b", "x")) == "a/llama"


def test_losing_only_ones_own_name_is_no_loss() -> None:
    found = names(named("a/chat", created=OLD), named("b/chat", served="mine", created=NEW))
    assert found.taken_by(Key("b", "chat")) == ""


def test_a_change_names_those_whose_answer_may_change() -> None:
    found = names(named("a/chat", created=OLD))
    assert found.put(named("b/chat", created=NEW)) == {Key("a", "chat")}
    assert found.put(named("b/chat", created=NEW)) == frozenset()
    assert found.put(named("a/chat", served="other", created=OLD)) == {Key("b", "chat")}
    assert found.remove(Key("a", "chat")) == {Key("b", "chat")}
    assert found.taken_by(Key("b", "chat")) == ""
    assert found.taken_by(Key("a", "gone")) == ""


def test_a_service_that_cannot_be_read_still_holds_its_own_name() -> None:
    broken = {**named("a/chat", created=OLD), "spec": "nonsense"}
    assert names(broken, named("b/chat", created=NEW)).taken_by(Key("b", "chat")) == "a/chat"


EVERYBODY = Asker(
    directory(
        (), (), [read(Tenant, {"metadata": {"name": "t", "namespace": "p"}, "spec": {"services": ["*"]}})], (), "p"
    ).tenants["t"],
    {},
)
SERVICES = st.lists(
    st.builds(
        named,
        st.sampled_from(["a/x", "a/y", "b/x", "b/y", "c/z"]),
        st.sampled_from(["", "x", "y", "m"]),
        st.sampled_from([OLD, NEW]),
    ),
    max_size=5,
    unique_by=lambda one: one["metadata"]["uid"],
)


@given(SERVICES, st.randoms(use_true_random=False))
def test_the_operator_and_the_gateway_agree(services: list[dict[str, Any]], chance: Any) -> None:
    picture = directory([read(InferenceService, one) for one in services], (), (), (), "p")
    chance.shuffle(services)
    found = names(*services)
    for one in services:
        key = Key(one["metadata"]["namespace"], one["metadata"]["name"])
        served = one["spec"]["model"].get("servedName") or key.name
        answers = locate(served, EVERYBODY, picture, 0.0)[0].service.key
        assert (found.taken_by(key) or str(key)) == answers


@given(st.lists(st.tuples(SERVICES, st.booleans()), max_size=3))
def test_coming_and_going_leaves_what_the_last_set_alone_would(rounds: list[tuple[list[dict[str, Any]], bool]]) -> None:
    found, there = Names(), {}
    for services, leave in rounds:
        for one in services:
            key = Key(one["metadata"]["namespace"], one["metadata"]["name"])
            found.put(one)
            there[key] = one
            if leave:
                found.remove(key)
                del there[key]
    fresh = names(*there.values())
    assert {key: found.taken_by(key) for key in there} == {key: fresh.taken_by(key) for key in there}
