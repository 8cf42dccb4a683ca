"""What becomes of a service whose accelerator nobody knows, or whose budget its price breaks."""

from typing import Any

import pytest
from tests.operator_plans.plan_factories import EMULATE, Operator, condition, service

H1000 = [{"name": "main", "accelerator": "h1000"}]
PROFILE: dict[str, Any] = {
    "metadata": {"name": "h1000", "generation": 1},
    "apiVersion": "paceline.dev/v1alpha1",
    "kind": "AcceleratorProfile",
    "spec": {"memory": "80G", "bandwidth": "3350G", "teraflops": {"bf16": 989}, "resourceName": "example.com/h1000"},
}


def accepted(manifest: dict[str, Any]) -> tuple[str, str, str]:
    found = condition(manifest["status"], "Accepted")
    return found["status"], found["reason"], found["message"]


def test_a_service_on_an_unknown_accelerator_gets_no_pod_until_a_profile_explains_it() -> None:
    operator, manifest = Operator(), service(pools=H1000)
    operator.namespace()
    assert operator.step(manifest).actions == ()
    status, reason, message = accepted(manifest)
    assert (status, reason) == ("False", "UnknownAccelerator")
    assert "spec.pools[0].accelerator: 'h1000' is none of a100, b200, h100, " in message
    assert "add an AcceleratorProfile h1000" in message
    assert manifest["status"]["workload"]["summary"] == "0/0 UnknownAccelerator"
    plan = operator.step(manifest, profiles={"h1000": PROFILE})
    assert len(plan.actions) == 3
    assert "example.com/h1000" in str(plan.actions)
    assert accepted(manifest)[:2] == ("True", "Valid")


def test_a_device_of_another_vendor_is_refused_before_there_is_a_pod() -> None:
    operator, manifest = Operator(), service(pools=H1000)
    operator.namespace()
    theirs = {**PROFILE, "spec": {**PROFILE["spec"], "resourceName": "amd.com/gpu"}}
    assert operator.step(manifest, profiles={"h1000": theirs}).actions == ()
    status, reason, message = accepted(manifest)
    assert (status, reason) == ("False", "Unsupported")
    assert message.startswith(
        "spec.pools[0].accelerator: workers compute on NVIDIA GPUs and CPUs in this version, and "
    )
    (another := Operator()).namespace()
    emulated = service(pools=H1000, engine={"emulate": EMULATE})
    assert len(another.step(emulated, profiles={"h1000": theirs}).actions) == 3


def test_what_runs_stays_as_it_is_when_its_profile_goes() -> None:
    operator, manifest = Operator(), service(pools=H1000)
    operator.namespace()
    operator.step(manifest, profiles={"h1000": PROFILE})
    operator.server.settle()
    manifest["metadata"]["generation"] = 2
    manifest["spec"]["pools"] = [{**H1000[0], "spot": True}]
    assert operator.step(manifest).actions == ()
    assert accepted(manifest)[1] == "UnknownAccelerator"
    assert condition(manifest["status"], "Ready")["status"] == "True"


@pytest.mark.parametrize("more", [{"profiles": None}, {}])
def test_where_profiles_may_not_be_read_or_steps_are_emulated_nobody_is_refused(more: dict[str, Any]) -> None:
    operator, manifest = Operator(), service(pools=H1000, engine={} if more else {"emulate": EMULATE})
    operator.namespace()
    assert len(operator.step(manifest, **more).actions) == 3


@pytest.mark.parametrize(
    ("budget", "replicas", "said"),
    [
        ("0", {}, "0 is below the 0.10 that replicas.min of all pools costs"),
        ("0.15", {"min": 2, "max": 4}, "0.15 is below the 0.20 that replicas.min of all pools costs"),
        ("0.05", {"min": 0, "max": 4}, "0.05 is below the 0.10 of one replica"),
        ("0.20", {"min": 2, "max": 4}, ""),
    ],
)
def test_a_budget_in_dollars_that_cannot_be_kept_is_reported(budget: str, replicas: dict[str, int], said: str) -> None:
    pools = [{"name": "main", "accelerator": "cpu", "replicas": replicas}]
    operator = Operator()
    manifest = service(pools=pools, scaling={"budget": {"dollarsPerHour": budget}})
    operator.namespace()
    operator.converge(manifest)
    assert condition(manifest["status"], "Progressing")["reason"] == "ReplicasReady"
    status, reason, message = accepted(manifest)
    assert (status, reason) == ("True", "BudgetNotEnforceable" if said else "Valid")
    assert said in message


def test_a_price_that_changes_or_is_gone_is_validated_anew() -> None:
    scaling = {"budget": {"dollarsPerHour": "2"}}
    operator, manifest = Operator(), service(scaling=scaling, pools=[{"name": "main", "accelerator": "h100"}])
    operator.converge(manifest)
    assert "2 is below the 3.93" in accepted(manifest)[2]
    own = {**PROFILE, "metadata": {"name": "h100", "generation": 1}}
    operator.step(manifest, profiles={"h100": own})
    assert "the price of pool main is unknown" in accepted(manifest)[2]
    priced = {"metadata": {"name": "h100", "generation": 2}, "spec": {**PROFILE["spec"], "dollarsPerHour": "1.5"}}
    operator.step(manifest, profiles={"h100": {**own, **priced}})
    assert accepted(manifest)[:2] == ("True", "Valid")
