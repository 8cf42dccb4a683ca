from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.every import cases
from tests.operator_plans.plan_factories import Operator, service

from paceline_core.kube.cluster import ObjectKey
from paceline_operator.plans.children import differs
from paceline_operator.plans.observe import observe_child, pod_problem
from paceline_operator.plans.types import DesiredChild, ObservedChild, PodProblem


def deployment(**status: Any) -> dict[str, Any]:
    operator, manifest = Operator(), service()
    operator.namespace()
    operator.step(manifest)
    found = operator.server.manifest(("Deployment", ObjectKey("team", "chat-main")))
    return {**found, "status": status}


def owned_by(*managers: tuple[str, str]) -> dict[str, Any]:
    fields = [{"manager": name, "fieldsV1": {"f:spec": {part: {}}}} for name, part in managers]
    found = deployment()
    found["metadata"]["managedFields"] = fields
    return found


def test_counts_are_those_of_spec_and_status() -> None:
    found = observe_child(
        deployment(replicas=4, updatedReplicas=3, readyReplicas=2, availableReplicas=1, terminatingReplicas=5)
    ).replicas
    assert found is not None
    counts = (found.desired, found.total, found.updated, found.ready, found.available, found.terminating)
    assert counts == (1, 4, 3, 2, 1, 5)


EARLIER, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"


@pytest.mark.parametrize(
    ("entries", "by"),
    [
        ([("paceline-operator", EARLIER, ""), ("kubectl-patch", LATER, "")], "kubectl-patch"),
        ([("paceline-operator", LATER, ""), ("kubectl-patch", EARLIER, "")], ""),
        ([("kubectl-patch", LATER, ""), ("paceline-operator", LATER, "")], "kubectl-patch"),
        ([("paceline-operator", EARLIER, ""), ("kube-controller-manager", LATER, "status")], ""),
        ([("paceline-operator", EARLIER, ""), ("paceline-replicas", LATER, "")], ""),
        ([], ""),
    ],
)
def test_the_writer_that_changed_a_child_last_is_known_unless_it_was_us(
    entries: list[tuple[str, str, str]], by: str
) -> None:
    found = deployment()
    found["metadata"]["managedFields"] = [
        {"manager": name, "time": time, "subresource": part, "fieldsV1": {}} for name, time, part in entries
    ]
    assert observe_child(found).changed_by == by


def test_an_empty_status_is_nobody_and_not_settled() -> None:
    found = observe_child(deployment()).replicas
    assert found is not None
    assert (found.ready, found.observed, found.settled) == (0, False, False)


@pytest.mark.parametrize(
    ("managers", "shared"),
    [
        ([("paceline-operator", "f:replicas")], False),
        ([("paceline-operator", "f:replicas"), ("paceline-replicas", "f:replicas")], True),
        ([("kube-controller-manager", "f:template")], False),
        ([("an-hpa", "f:replicas")], True),
        ([], False),
    ],
)
def test_replicas_are_shared_when_another_manager_owns_that_very_field(
    managers: list[tuple[str, str]], shared: bool
) -> None:
    found = observe_child(owned_by(*managers)).replicas
    assert found is not None
    assert found.shared is shared


@pytest.mark.parametrize(
    ("conditions", "problem"),
    [
        ([], None),
        ([{"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated"}], None),
        (
            [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded  quota"}],
            PodProblem("FailedCreate", "exceeded quota"),
        ),
        (
            [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too long"}],
            PodProblem("ProgressDeadlineExceeded", "too long"),
        ),
    ],
)
def test_a_deployments_own_complaint_is_its_problem(
    conditions: list[dict[str, str]], problem: PodProblem | None
) -> None:
    found = observe_child(deployment(conditions=conditions)).replicas
    assert found is not None
    assert found.problem == problem


def test_what_others_move_all_the_time_does_not_change_the_fingerprint() -> None:
    quiet = deployment()
    noisy = deployment(replicas=9, readyReplicas=3)
    noisy["spec"]["replicas"] = 9
    noisy["metadata"] |= {"resourceVersion": "77", "generation": 12}
    noisy["metadata"]["annotations"] |= {"deployment.kubernetes.io/revision": "4"}
    assert observe_child(noisy).fingerprint == observe_child(quiet).fingerprint


def test_what_a_plan_looks_at_does() -> None:
    quiet, edited = deployment(), deployment()
    edited["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    assert observe_child(edited).fingerprint != observe_child(quiet).fingerprint


def test_the_owner_is_the_controller_and_no_other() -> None:
    found = deployment()
    found["metadata"]["ownerReferences"] = [{"kind": "A", "name": "a", "uid": "1"}]
    assert observe_child(found).owner is None
    found["metadata"]["ownerReferences"] += [{"kind": "B", "name": "b", "uid": "2", "controller": True}]
    owner = observe_child(found).owner
    assert owner is not None
    assert (owner.kind, owner.uid) == ("B", "2")


def live(content: dict[str, Any]) -> ObservedChild:
    metadata = {"name": "x", "namespace": "n", "uid": "u"}
    return observe_child({"kind": "Service", "metadata": metadata, **content})


def child(content: dict[str, Any]) -> DesiredChild:
    return DesiredChild("Service", ObjectKey("n", "x"), {"kind": "Service", "metadata": {"name": "x"}, **content})


NAMES = st.text("abc", min_size=1, max_size=2)
JSON = st.recursive(
    st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
SPECS = st.dictionaries(NAMES, JSON, max_size=4)


@given(SPECS)
def test_nothing_differs_from_itself(spec: dict[str, Any]) -> None:
    assert not differs(child({"spec": spec}), live({"spec": spec}))


@given(SPECS, SPECS)
def test_what_others_add_to_a_map_never_differs(spec: dict[str, Any], more: dict[str, Any]) -> None:
    assert not differs(child({"spec": spec}), live({"spec": {**more, **spec}}))


@given(SPECS, NAMES, st.integers(10, 20))
def test_a_leaf_of_ours_that_is_otherwise_always_differs(spec: dict[str, Any], name: str, value: int) -> None:
    desired = {**spec, name: value}
    assert differs(child({"spec": desired}), live({"spec": {**desired, name: value + 1}}))
    assert differs(child({"spec": desired}), live({"spec": {k: v for k, v in desired.items() if k != name}}))


@cases(
    ("desired", "found", "expected"),
    [
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B"}, {"name": "A", "value": "1"}]}, False),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "2"}]}, True),
        ({"env": [{"name": "A"}]}, {"env": []}, True),
        ({"ports": [{"port": 1, "protocol": "TCP"}]}, {"ports": [{"port": 2}, {"port": 1, "protocol": "TCP"}]}, False),
        ({"command": ["a", "b"]}, {"command": ["a", "b", "c"]}, True),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "a", "more": 1}]}, False),
        ({"ingress": [{"ports": [{"port": 1}]}]}, {"ingress": [{"ports": [{"port": 1}, {"port": 2}]}]}, True),
        ({"ingress": [{"from": [{"a": "b"}]}]}, {"ingress": [{"from": [{"a": "b"}]}, {}]}, True),
        ({"text": ""}, {}, False),
        ({"map": {}}, {}, False),
        ({"flag": False}, {}, True),
        ({"count": 0}, {"count": 0}, False),
    ],
)
def test_lists_are_compared_as_the_server_merges_them(
    desired: dict[str, Any], found: dict[str, Any], expected: bool
) -> None:
    assert differs(child({"spec": desired}), live({"spec": found})) is expected


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "chat-main-1", "labels": {"paceline.dev/pool": "main"}}, "status": status}


def waiting(reason: str, message: str = "", last: dict[str, Any] | None = None) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(containerStatuses=[{"state": state, "lastState": {"terminated": last} if last else {}}])


UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/5 nodes: no gpu"}
LINES = "Traceback\npaceline worker: engine.max_seqs: is over the limit\n"


@cases(
    ("manifest", "problem"),
    [
        (pod(), None),
        (waiting("ContainerCreating"), None),
        (waiting("PodInitializing"), None),
        (pod(conditions=[UNSCHEDULED]), PodProblem("Unschedulable", "0/5 nodes: no gpu", "main")),
        (waiting("ImagePullBackOff", "Back-off pulling"), PodProblem("ImagePullBackOff", "Back-off pulling", "main")),
        (waiting("ErrImagePull", "not found"), PodProblem("ErrImagePull", "not found", "main")),
        (
            waiting("CreateContainerConfigError", 'secret "tokens" not found'),
            PodProblem("CreateContainerConfigError", 'secret "tokens" not found', "main"),
        ),
        (
            waiting("CrashLoopBackOff", "back-off 5m0s restarting", {"exitCode": 1, "message": LINES}),
            PodProblem("CrashLoopBackOff", "spec.engine.maxSeqs: is over the limit", "main"),
        ),
        (
            waiting("CrashLoopBackOff", "", {"exitCode": 137, "reason": "OOMKilled", "message": LINES}),
            PodProblem(
                "CrashLoopBackOff", "the worker used more memory than its limit and was killed (OOMKilled)", "main"
            ),
        ),
        (
            waiting("CrashLoopBackOff", "", {"exitCode": 137}),
            PodProblem("CrashLoopBackOff", "the worker ended with exit code 137; see its log", "main"),
        ),
    ],
)
def test_a_pods_problem_has_the_words_of_who_knows(manifest: dict[str, Any], problem: PodProblem | None) -> None:
    assert pod_problem(manifest) == problem


def test_a_leaving_pod_is_no_problem_and_no_message_is_endless() -> None:
    leaving = waiting("CrashLoopBackOff")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert pod_problem(leaving) is None
    long = pod_problem(waiting("ErrImagePull", "x" * 5000))
    assert long is not None
    assert len(long.message) <= 512
