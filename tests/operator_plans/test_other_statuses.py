from typing import Any

import pytest
from tests.every import cases
from tests.operator_plans.plan_factories import EARLY, LATE, condition

from paceline_core.kube.client.client import key_of
from paceline_operator.plans.other_kinds import plan_profile, plan_route, plan_tenant
from paceline_operator.plans.validation import ModelNameIndex

SERVICES = {"team/chat", "team/small"}
HOSTS = {"api.example.com"}


def made(kind: str, spec: Any, namespace: str = "team", **metadata: Any) -> dict[str, Any]:
    given = {"name": "it", "namespace": namespace, "generation": 3, "creationTimestamp": EARLY, **metadata}
    return {"apiVersion": "paceline.dev/v1alpha1", "kind": kind, "metadata": given, "spec": spec}


def verdict(status: dict[str, Any] | None) -> tuple[str, str]:
    found = condition(status, "Accepted")
    return (found["status"], found["reason"])


def tenant(spec: Any, namespace: str = "paceline-system") -> dict[str, Any] | None:
    return plan_tenant(made("Tenant", spec, namespace), SERVICES, "paceline-system", EARLY)


def route(spec: Any, *others: dict[str, Any], **metadata: Any) -> dict[str, Any] | None:
    mine = made("InferenceRoute", spec, **metadata)
    names = ModelNameIndex()
    for one in (*others, mine):
        names.put(one)
    return plan_route(mine, SERVICES, names.loss((mine["kind"], key_of(mine))), HOSTS, EARLY)


@cases(
    ("spec", "namespace", "expected"),
    [
        ({"services": ["*"]}, "paceline-system", ("True", "Valid")),
        ({"services": ["team/*", "team/chat"]}, "paceline-system", ("True", "Valid")),
        ({"services": ["team/later"]}, "paceline-system", ("True", "ServiceMissing")),
        ({"services": ["*"], "limits": {"requestsPerMinute": 6}}, "paceline-system", ("True", "Valid")),
        ({"services": ["*"], "limits": {"monthly": {"tokens": 6}}}, "paceline-system", ("True", "Valid")),
        ({"services": ["*"], "weight": 3}, "paceline-system", ("True", "Valid")),
        ({"services": ["*"], "onStoreFailure": "closed"}, "paceline-system", ("True", "Valid")),
        ({"services": ["*"]}, "team", ("False", "NotHonoured")),
        ({"services": "all"}, "paceline-system", ("False", "Invalid")),
        (None, "paceline-system", ("False", "Invalid")),
    ],
)
def test_a_tenant_is_honoured_only_at_home_and_names_what_is_missing(
    spec: Any, namespace: str, expected: tuple[str, str]
) -> None:
    assert verdict(tenant(spec, namespace)) == expected


CHAT, LATER = {"service": "chat"}, {"service": "later"}
URL = {"url": "https://api.example.com/v1"}


@cases(
    ("spec", "expected"),
    [
        ({"model": "m", "backends": [CHAT]}, ("True", "Valid")),
        ({"model": "m", "backends": [LATER]}, ("False", "BackendMissing")),
        ({"model": "m", "backends": [CHAT, LATER]}, ("True", "BackendMissing")),
        ({"model": "m", "backends": [{"url": "https://evil.example.net/v1"}, CHAT]}, ("False", "HostNotAllowed")),
        ({"model": "m", "backends": [URL]}, ("False", "Unsupported")),
        ({"model": "m", "backends": [CHAT, URL]}, ("True", "PartlySupported")),
        ({"model": "m", "backends": [CHAT], "fallback": ["n"]}, ("True", "Valid")),
        ({"model": "m", "backends": [LATER], "fallback": ["n"]}, ("True", "BackendMissing")),
        ({"model": "m", "backends": [URL], "fallback": ["n"]}, ("True", "Unsupported")),
        ({"model": "m", "backends": [CHAT, {"service": "chat", "when": "overflow"}]}, ("True", "Valid")),
        ({"model": "m", "backends": [CHAT], "degrade": {"maxTokens": 9}}, ("True", "Valid")),
        ({"model": "m", "backends": [CHAT], "cascade": {"first": "n"}}, ("True", "PartlySupported")),
        ({"model": "m", "backends": [{"service": "chat", "region": "eu"}]}, ("True", "PartlySupported")),
        ({"model": "m", "backends": [CHAT, CHAT]}, ("True", "BackendTwice")),
        ({"model": "m", "backends": [CHAT, {**CHAT, "weight": 3}]}, ("True", "BackendTwice")),
        ({"model": "m", "backends": [CHAT, {**CHAT, "model": "inner"}]}, ("True", "Valid")),
        ({"model": "m", "backends": []}, ("False", "Invalid")),
        ({"backends": [CHAT]}, ("False", "Invalid")),
    ],
)
def test_a_route_reports_which_of_its_backends_it_has(spec: Any, expected: tuple[str, str]) -> None:
    assert verdict(route(spec)) == expected


def test_a_route_before_its_service_is_accepted_when_that_comes() -> None:
    mine = made("InferenceRoute", {"model": "m", "backends": [LATER]})
    before = plan_route(mine, SERVICES, None, HOSTS, EARLY)
    mine["status"] = before
    after = plan_route(mine, {*SERVICES, "team/later"}, None, HOSTS, LATE)
    assert verdict(before) == ("False", "BackendMissing")
    assert verdict(after) == ("True", "Valid")
    assert condition(after, "Accepted")["lastTransitionTime"] == LATE


SPEC = {"model": "m", "backends": [CHAT]}


def test_an_older_route_for_every_request_takes_the_name_and_one_for_some_does_not() -> None:
    older = made("InferenceRoute", SPEC, namespace="other")
    some = made("InferenceRoute", {**SPEC, "matches": [{"tenants": ["a"]}]}, namespace="other")
    assert verdict(route(SPEC, older, creationTimestamp=LATE)) == ("False", "NameTaken")
    assert verdict(route(SPEC, some, creationTimestamp=LATE)) == ("True", "Valid")
    assert verdict(route(SPEC, made("InferenceRoute", SPEC, creationTimestamp=LATE, name="z"))) == ("True", "Valid")
    assert verdict(route(SPEC, made("InferenceRoute", "nonsense", name="z"))) == ("True", "Valid")


def test_a_route_that_loses_its_name_names_the_winner() -> None:
    chat = made("InferenceService", {"model": {}}, namespace="other", name="m")
    lost = condition(route(SPEC, chat, creationTimestamp=LATE), "Accepted")
    assert (lost["status"], lost["reason"]) == ("False", "NameTaken")
    assert lost["message"] == "The older service other/m answers to 'm'. Change spec.model."
    some = made("InferenceRoute", {**SPEC, "matches": [{"tenants": ["a"]}]}, namespace="other")
    shared = condition(route(SPEC, some, creationTimestamp=LATE), "Accepted")
    assert shared["message"].endswith("The older route other/it answers to 'm' where its matches apply.")


PROFILE = {"memory": "80G", "bandwidth": "3350G", "teraflops": {"bf16": 989}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (PROFILE, ("True", "Valid")),
        ({**PROFILE, "memory": "0"}, ("False", "Invalid")),
        ({**PROFILE, "teraflops": {"fp4": 1}}, ("False", "Invalid")),
        ({**PROFILE, "bandwidth": "fast"}, ("False", "Invalid")),
        ({"memory": "80G"}, ("False", "Invalid")),
    ],
)
def test_a_profile_is_used_if_the_planner_can_compute_with_it(spec: Any, expected: tuple[str, str]) -> None:
    assert verdict(plan_profile(made("AcceleratorProfile", spec, name="h100"), EARLY)) == expected


def test_a_profile_of_a_built_in_name_reports_that_it_replaces_all_of_it() -> None:
    for spec, end in ((PROFILE, "counts as free in costs and budgets."), ({**PROFILE, "dollarsPerHour": "2"}, "one.")):
        message = condition(plan_profile(made("AcceleratorProfile", spec, name="h100"), EARLY), "Accepted")["message"]
        assert "replaces all of the built-in one" in message
        assert message.endswith(end)


def test_nothing_is_reported_twice_and_a_new_generation_is_spoken_of() -> None:
    mine = made("AcceleratorProfile", PROFILE)
    mine["status"] = {**(plan_profile(mine, EARLY) or {}), "other": 1}
    assert plan_profile(mine, LATE) is None
    mine["metadata"]["generation"] = 4
    again = plan_profile(mine, LATE)
    assert condition(again, "Accepted")["observedGeneration"] == 4
    assert condition(again, "Accepted")["lastTransitionTime"] == EARLY


def test_an_object_that_is_being_deleted_is_not_spoken_of() -> None:
    mine = made("AcceleratorProfile", PROFILE, deletionTimestamp=LATE)
    assert plan_profile(mine, EARLY) is None


@pytest.mark.parametrize("word", ["Invalid", "BackendMissing", "HostNotAllowed"])
def test_a_refusal_names_what_is_at_fault(word: str) -> None:
    specs = {
        "Invalid": ({"model": "m", "backends": []}, "spec.backends"),
        "BackendMissing": ({"model": "m", "backends": [LATER]}, "team/later"),
        "HostNotAllowed": ({"model": "m", "backends": [{"url": "http://evil.example.net"}]}, "evil.example.net"),
    }
    spec, named = specs[word]
    assert named in condition(route(spec), "Accepted")["message"]
