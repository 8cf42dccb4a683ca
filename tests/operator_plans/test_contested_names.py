"""Who answers to a short name: the operator's answer beside the gateway's own."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.operator_plans.plan_factories import service as made

from paceline_core.errors import RequestError
from paceline_core.kube.cluster import ObjectKey
from paceline_core.objects import InferenceRoute, InferenceService, Tenant, read
from paceline_core.objects.metadata import INFERENCE_ROUTE, INFERENCE_SERVICE
from paceline_gateway.routing.config_snapshot import directory
from paceline_gateway.routing.model_lookup import Requester, resolve_model
from paceline_operator.plans.types import ObjectRef
from paceline_operator.plans.validation import ModelNameIndex


def named(key: str, served: str = "", created: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    namespace, _, name = key.partition("/")
    found = made(name)
    found["metadata"] |= {"namespace": namespace, "creationTimestamp": created, "uid": key}
    found["spec"]["model"] = {"source": "builtin://demo", **({"servedName": served} if served else {})}
    return found


def routed(key: str, model: str, created: str = "2026-01-01T00:00:00Z", *, partial: bool = False) -> dict[str, Any]:
    namespace, _, name = key.partition("/")
    metadata = {"namespace": namespace, "name": name, "creationTimestamp": created, "uid": f"route {key}"}
    matches = [{"tenants": ["other"]}] if partial else []
    spec = {"model": model, "backends": [{"service": "own"}], "matches": matches}
    return {"apiVersion": "paceline.dev/v1alpha1", "kind": "InferenceRoute", "metadata": metadata, "spec": spec}


def names(*services: dict[str, Any]) -> ModelNameIndex:
    found = ModelNameIndex()
    for one in services:
        found.put(one)
    return found


def place(key: str) -> ObjectRef:
    return (INFERENCE_SERVICE, ObjectKey.parse(key))


def taken_by(found: ModelNameIndex, key: str) -> str:
    loss = found.loss(place(key))
    return loss.winner.key if loss and loss.winner else ""


OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def test_the_oldest_service_answers_and_the_younger_names_the_winner() -> None:
    found = names(named("b/chat", created=NEW), named("a/chat", created=OLD))
    assert taken_by(found, "b/chat") == "a/chat"
    assert taken_by(found, "a/chat") == ""


def test_services_of_one_age_go_by_their_keys() -> None:
    assert taken_by(names(named("b/chat"), named("a/chat")), "b/chat") == "a/chat"


def test_a_served_name_can_be_lost_to_another_services_own_name() -> None:
    found = names(named("a/llama", created=OLD), named("b/x", served="llama", created=NEW))
    assert taken_by(found, "b/x") == "a/llama"


def test_losing_only_ones_own_name_is_no_loss() -> None:
    found = names(named("a/chat", created=OLD), named("b/chat", served="mine", created=NEW))
    assert taken_by(found, "b/chat") == ""


def test_a_change_names_those_whose_answer_may_change() -> None:
    found = names(named("a/chat", created=OLD))
    assert found.put(named("b/chat", created=NEW)) == {place("a/chat")}
    assert found.put(named("b/chat", created=NEW)) == frozenset()
    assert found.put(named("a/chat", served="other", created=OLD)) == {place("b/chat")}
    assert found.remove(place("a/chat")) == {place("b/chat")}
    assert taken_by(found, "b/chat") == ""
    assert taken_by(found, "a/gone") == ""


def test_a_service_that_cannot_be_read_still_holds_its_own_name() -> None:
    broken = {**named("a/chat", created=OLD), "spec": "nonsense"}
    assert taken_by(names(broken, named("b/chat", created=NEW)), "b/chat") == "a/chat"


EVERYBODY = Requester(
    directory(
        (), (), [read(Tenant, {"metadata": {"name": "t", "namespace": "p"}, "spec": {"services": ["*"]}})], (), "p"
    ).tenants["t"],
    {},
)
KEYS = st.sampled_from(["a/x", "a/y", "b/x", "b/y", "c/z"])
CREATED = st.sampled_from([OLD, NEW])
NAMES = ["x", "y", "m", "a/x", "c/m", "meta/m"]
OBJECTS = st.lists(
    st.one_of(
        st.builds(named, KEYS, st.sampled_from(["", *NAMES]), CREATED),
        st.builds(routed, KEYS, st.sampled_from(NAMES), CREATED, partial=st.booleans()),
    ),
    max_size=6,
    unique_by=lambda one: one["metadata"]["uid"],
)
BACKENDS = [named(f"{namespace}/own", f"own-{namespace}", OLD) for namespace in "abc"]


def place_of(one: dict[str, Any]) -> ObjectRef:
    return (one["kind"], ObjectKey(one["metadata"]["namespace"], one["metadata"]["name"]))


def told(one: dict[str, Any]) -> str:
    """The name that its condition speaks of."""
    spec = one["spec"]
    return str(
        spec["model"] if one["kind"] == INFERENCE_ROUTE else spec["model"].get("servedName") or one["metadata"]["name"]
    )


@given(OBJECTS, st.randoms(use_true_random=False))
def test_the_operator_and_the_gateway_agree(objects: list[dict[str, Any]], chance: Any) -> None:
    objects = [*BACKENDS, *objects]
    services = [read(InferenceService, one) for one in objects if one["kind"] == INFERENCE_SERVICE]
    picture = directory(
        services, [read(InferenceRoute, one) for one in objects if one["kind"] == INFERENCE_ROUTE], (), (), "p"
    )
    chance.shuffle(objects)
    found = names(*objects)
    for one in objects:
        loss, namespace = found.loss(place_of(one)), one["metadata"]["namespace"]
        whole = loss is not None and not loss.partial
        try:
            answering = resolve_model(told(one), EVERYBODY, picture, 0.0)[0].service
        except RequestError:
            assert one["spec"].get("matches") or (whole and loss is not None and loss.winner is None)
        else:
            own = whole or one["spec"].get("matches") or answering.namespace == namespace
            assert own if not (whole and loss) else answering.namespace == loss.owner
            if one["kind"] == INFERENCE_SERVICE and whole:
                assert answering.key != str(place_of(one)[1])


@given(st.lists(st.tuples(OBJECTS, st.booleans()), max_size=3))
def test_coming_and_going_leaves_what_the_last_set_alone_would(rounds: list[tuple[list[dict[str, Any]], bool]]) -> None:
    found: ModelNameIndex = ModelNameIndex()
    there: dict[ObjectRef, Any] = {}
    said: dict[ObjectRef, Any] = {}
    for objects, leave in rounds:
        for one in objects:
            place = place_of(one)
            concerned = {place, *found.put(one)}
            there[place] = one
            if leave:
                concerned |= found.remove(place)
                del there[place]
            said = {known: found.loss(known) if known in concerned else said.get(known) for known in there}
            assert said == {known: found.loss(known) for known in there}
    fresh = names(*there.values())
    assert {key: found.loss(key) for key in there} == {key: fresh.loss(key) for key in there}


def test_of_a_route_and_a_service_of_one_age_and_key_the_route_is_reported_whatever_came_first() -> None:
    both = (routed("a/x", "x"), named("a/x"))
    for first, second in (both, both[::-1]):
        loss = names(first, named("b/x", "x"), second).loss(place("b/x"))
        assert loss is not None
        assert loss.winner is not None
        assert loss.winner.kind == INFERENCE_ROUTE


def test_a_route_and_a_service_contest_one_name_and_each_names_the_other() -> None:
    chat, capture = named("team/chat", created=OLD), routed("evil/take", "chat", NEW)
    assert (
        str(names(chat, capture).loss((INFERENCE_ROUTE, ObjectKey("evil", "take"))))
        == "the older service team/chat answers to 'chat'"
    )
    older = names(named("team/chat", created=NEW), routed("evil/take", "chat", OLD))
    assert str(older.loss(place("team/chat"))) == "the older route evil/take answers every request for 'chat'"
    some = names(named("team/chat", created=NEW), routed("evil/take", "chat", OLD, partial=True)).loss(
        place("team/chat")
    )
    assert some is not None
    assert some.partial
    assert str(some) == "the older route evil/take answers to 'chat' where its matches apply"


def test_a_name_of_a_namespace_is_lost_by_everybody_else_as_soon_as_it_holds_an_object() -> None:
    found = names(routed("evil/take", "team/best", OLD), named("evil/bad", "team/chat", OLD))
    assert found.loss((INFERENCE_ROUTE, ObjectKey("evil", "take"))) is None
    assert found.put(named("team/chat", created=NEW)) == {
        (INFERENCE_ROUTE, ObjectKey("evil", "take")),
        place("evil/bad"),
    }
    reserved = "names that begin with 'team/' belong to the namespace team"
    assert str(found.loss((INFERENCE_ROUTE, ObjectKey("evil", "take")))) == reserved
    assert str(found.loss(place("evil/bad"))) == "'team/chat' is the full name of the service team/chat"
    assert found.remove(place("team/chat")) == {(INFERENCE_ROUTE, ObjectKey("evil", "take")), place("evil/bad")}
    assert found.loss(place("evil/bad")) is None


def test_a_route_of_its_own_namespace_takes_no_name_from_a_service() -> None:
    found = names(named("team/chat", created=OLD), routed("team/front", "chat", NEW), routed("evil/take", "chat", NEW))
    assert found.loss(place("team/chat")) is None
    assert found.loss((INFERENCE_ROUTE, ObjectKey("team", "front"))) is None
    lost = found.loss((INFERENCE_ROUTE, ObjectKey("evil", "take")))
    assert lost is not None
    assert lost.winner is not None
    assert lost.winner.key == "team/chat"
