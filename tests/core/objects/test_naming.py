import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.objects.corpus import valid

from paceline_core.objects import (
    InferenceService,
    deployment_name,
    pod_labels,
    revision,
    selector_labels,
    validate,
    workers_service_name,
)
from paceline_core.objects.fields import LABEL_PATTERN, POOL_PATTERN, SERVICE_NAME_PATTERN
from paceline_core.objects.naming import CANARY

services = st.from_regex(SERVICE_NAME_PATTERN, fullmatch=True).filter(lambda name: len(name) <= 40)
pools = st.from_regex(POOL_PATTERN, fullmatch=True).filter(lambda name: name != "canary")
tracks = st.sampled_from(["stable", "canary"])


def service(**spec: Any) -> InferenceService:
    base = valid()["minimal"]
    found = validate({**base, "spec": {**base["spec"], **spec}})
    assert isinstance(found, InferenceService)
    return found


GOLDEN = {
    "minimal": "ij4sdrcco4",
    "engine": "por43kq5lc",
    "runtime-custom": "hixjvvakqr",
    "source-hf": "lusxifwzv4",
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_revision_of_a_stored_object_never_changes(name: str) -> None:
    """If this fails, upgrading paceline would re-roll every service: the change is wrong, not the value here."""
    found = validate(valid()[name])
    assert isinstance(found, InferenceService)
    assert revision(found) == GOLDEN[name]


def test_scaling_classes_pools_and_rollout_are_not_in_the_revision() -> None:
    changed = service(
        pools=[{"name": "other", "accelerator": "l4", "replicas": {"max": 9}}],
        classes={"interactive": {"slo": {"ttft": {"p95": "1s"}}}},
        scaling={"policy": "queue"},
        rollout={"drainTimeout": "1h"},
        telemetry={"logPrompts": True},
    )
    assert revision(changed) == revision(service())


@pytest.mark.parametrize(
    "spec",
    [
        {"model": {"source": "builtin://demo", "quantization": "none"}},
        {"runtime": {"name": "paceline"}},
        {"runtime": {"env": [{"name": "A", "value": "1"}]}},
        {"engine": {"maxSeqs": 64}},
        {"engine": {"kvCache": {"pageTokens": 64}}},
        {"engine": {"prefixCache": False}},
    ],
)
def test_whatever_the_user_writes_of_model_runtime_or_engine_makes_a_revision(spec: dict[str, Any]) -> None:
    assert revision(service(**spec)) != revision(service())


@pytest.mark.parametrize("spec", [{"runtime": {}}, {"engine": {}}, {"engine": {"kvCache": {}, "parallel": {}}}])
def test_empty_maps_say_nothing(spec: dict[str, Any]) -> None:
    assert revision(service(**spec)) == revision(service())


def test_the_order_of_fields_says_nothing_but_the_order_of_arguments_does() -> None:
    there = service(engine={"maxSeqs": 8, "stepTokens": 64}, runtime={"args": ["a", "b"]})
    back = service(engine={"stepTokens": 64, "maxSeqs": 8}, runtime={"args": ["a", "b"]})
    other = service(engine={"stepTokens": 64, "maxSeqs": 8}, runtime={"args": ["b", "a"]})
    assert revision(there) == revision(back) != revision(other)


def test_a_revision_is_a_label() -> None:
    assert re.fullmatch(r"[a-z2-7]{10}", revision(service()))


@given(services, pools, tracks)
def test_every_name_fits_where_kubernetes_puts_it(name: str, pool: str, track: str) -> None:
    """A ReplicaSet adds 11 characters and a pod 6 to a Deployment's name, and a pod's name should stay a host name."""
    assert len(deployment_name(name, pool, track)) <= 63
    assert len(workers_service_name(name)) <= 63
    for value in pod_labels(name, pool, role="both", revision="abcdefghij", track=track).values():
        assert len(value) <= 63
        assert re.fullmatch(LABEL_PATTERN, value)


@given(services, pools, tracks, services, pools, tracks)
def test_no_two_deployments_share_a_name(
    one: str, one_pool: str, one_track: str, two: str, two_pool: str, two_track: str
) -> None:
    if (one, one_pool, one_track) != (two, two_pool, two_track):
        assert deployment_name(one, one_pool, one_track) != deployment_name(two, two_pool, two_track)


def test_a_canary_of_one_service_is_not_the_pool_of_another() -> None:
    assert deployment_name("chat", "main", CANARY) == "chat-main-canary"
    assert deployment_name("chat", "main") == "chat-main"


def test_a_selector_has_three_labels_and_a_pod_says_more() -> None:
    selector = selector_labels("chat", "main")
    labels = pod_labels("chat", "main", role="both", revision="abcdefghij")
    assert selector == {
        "paceline.dev/service": "chat",
        "paceline.dev/pool": "main",
        "paceline.dev/track": "stable",
    }
    assert selector.items() < labels.items()
    assert not [key for key in labels if "version" in key]
