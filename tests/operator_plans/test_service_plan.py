import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.every import cases
from tests.operator_plans.apiserver_model import Crash, ModelServer
from tests.operator_plans.plan_factories import (
    EARLY,
    EMULATE,
    LOST,
    POOL,
    SETTINGS,
    Operator,
    condition,
    service,
    unmanaged,
)

from paceline_core.kube.cluster import ObjectKey
from paceline_operator.plans.inferenceservice import plan_service
from paceline_operator.plans.types import Apply, Delete, HandOver, Settings

EDGE = {"name": "edge", "accelerator": "cpu", "replicas": {"min": 2, "max": 5}}


def converged(manifest: dict[str, Any] | None = None, **spec: Any) -> tuple[Operator, dict[str, Any]]:
    operator, manifest = Operator(), manifest or service(**spec)
    operator.converge(manifest)
    return operator, manifest


def edit(manifest: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """The user writes another spec."""
    desired = {**manifest["spec"], **spec}
    manifest["metadata"]["generation"] += desired != manifest["spec"]
    manifest["spec"] = {name: part for name, part in desired.items() if part is not None}
    return manifest


def test_a_service_becomes_a_service_a_budget_and_a_deployment_for_each_pool_in_this_order() -> None:
    operator, manifest = Operator(), service(pools=[POOL, EDGE])
    operator.namespace()
    plan = operator.step(manifest)
    assert operator.server.created[2:] == [
        "ConfigMap team/paceline-trust",
        "Service team/chat-workers",
        "PodDisruptionBudget team/chat-workers",
        "Deployment team/chat-main",
        "Deployment team/chat-edge",
    ]
    assert all(isinstance(a, Apply) and not a.force and a.uid is None and a.reason for a in plan.actions)
    assert [a.replicas for a in plan.actions if isinstance(a, Apply)] == [None, None, 1, 2]


def test_deployments_wait_for_what_the_namespace_shares_and_nothing_else_does() -> None:
    operator, manifest = Operator(), service()
    plan = operator.step(manifest)
    assert [a.child.kind for a in plan.actions if isinstance(a, Apply)] == ["Service", "PodDisruptionBudget"]
    assert plan.again_s is not None
    operator.converge(manifest)
    assert "Deployment team/chat-main" in operator.server.created


def test_a_service_that_is_ready_soon_costs_three_writes_and_one_status() -> None:
    operator, manifest = Operator(), service()
    operator.namespace()
    operator.server.calls = 0
    for _ in range(5):
        operator.step(manifest)
        operator.now -= 4.5
        operator.server.settle()
    assert operator.server.calls == 3
    assert operator.statuses == 1


def test_what_another_manager_scaled_is_mended_without_replicas() -> None:
    operator, manifest = Operator(), service()
    operator.namespace()
    operator.step(manifest)
    assert operator.step(manifest).actions == ()
    operator.server.scale("chat-main", 3)
    edit(manifest, runtime={"env": [{"name": "A", "value": "b"}]})
    (mended,) = operator.step(manifest).actions
    assert isinstance(mended, Apply)
    assert mended.replicas is None
    assert mended.uid
    assert operator.server.picture()["Deployment team/chat-main"]["spec"]["replicas"] == 3


def test_replicas_that_are_the_operators_alone_are_handed_over_before_an_apply_leaves_them_out() -> None:
    operator, manifest = Operator(), service()
    operator.namespace()
    operator.step(manifest)
    operator.server.scale("chat-main", 4, manager="paceline-operator")
    edit(manifest, runtime={"env": [{"name": "A", "value": "b"}]})
    (handed,) = operator.step(manifest).actions
    assert isinstance(handed, HandOver)
    assert handed.replicas == 4
    (mended,) = operator.step(manifest).actions
    assert isinstance(mended, Apply)
    assert mended.replicas is None
    assert operator.server.picture()["Deployment team/chat-main"]["spec"]["replicas"] == 4


@pytest.mark.parametrize(("known", "expected"), [({}, 2), ({"main": 4}, 4), ({"main": 0}, 0), ({"main": 9}, 5)])
def test_a_deployment_begins_with_what_the_autoscaler_last_wanted(known: dict[str, int], expected: int) -> None:
    operator, manifest = Operator(), service(pools=[{**EDGE, "name": "main"}])
    manifest["status"] = {"scaling": {"pools": [{"name": name, "desired": n} for name, n in known.items()]}}
    operator.namespace()
    assert operator.step(manifest).actions[-1].replicas == expected  # type: ignore[union-attr]


def test_a_converged_service_plans_nothing_with_or_without_memory() -> None:
    operator, manifest = converged()
    for remembers in (True, False):
        operator.remembers = remembers
        for _ in range(3):
            plan = operator.step(manifest)
            assert (plan.actions, plan.status, plan.events, plan.again_s) == ((), None, (), None)


def test_a_verdict_is_kept_from_a_creation_to_its_end_and_is_of_the_same_desired_state_only() -> None:
    operator, manifest = Operator(), service()
    operator.namespace()
    first = operator.step(manifest).memo
    assert first is not None
    assert first.validated is not None
    later = plan_service(operator.view(edit(manifest, rollout={"gpus": "inPlace"}))).memo
    assert later is not None
    assert later.validated is not None
    assert later.validated[1].service != first.validated[1].service
    operator.converge(manifest)
    assert operator.memo.settled
    assert operator.memo.validated is None


def test_an_unmanaged_edit_is_undone_and_an_unmanaged_addition_stays() -> None:
    operator, manifest = converged()
    stored = next(s for (kind, _), s in operator.server.stored.items() if kind == "PodDisruptionBudget")
    stored.values[("spec", "maxUnavailable")] = "5"
    stored.values[("metadata", "labels", "team")] = '"search"'
    operator.converge(manifest)
    picture = operator.server.picture()["PodDisruptionBudget team/chat-workers"]
    assert picture["spec"]["maxUnavailable"] == 1
    assert picture["metadata"]["labels"]["team"] == "search"


SELECTORS: dict[str, tuple[Any, ...]] = {
    "Service chat-workers": ("spec", "selector"),
    "PodDisruptionBudget chat-workers": ("spec", "selector"),
    "Deployment chat-main": ("spec", "template", "spec", "nodeSelector"),
}


@pytest.mark.parametrize("child", SELECTORS)
def test_a_key_that_another_controller_adds_to_a_selector_is_taken_away(child: str) -> None:
    operator, manifest = converged(pools=[{**POOL, "nodeSelector": {"zone": "a"}}])
    operator.server.scale("chat-main", 1)
    kind, name = child.split()
    place, before = (kind, ObjectKey("team", name)), operator.server.picture()
    whole = json.loads(operator.server.stored[place].values[SELECTORS[child]])
    inner = whole.get("matchLabels", whole)
    inner["foo"] = "bar"
    operator.server.change(place, SELECTORS[child], whole)
    (mended,) = operator.step(manifest).actions
    assert isinstance(mended, Apply)
    assert mended.child.place == place
    assert operator.server.picture() == before
    assert operator.step(manifest).actions == ()


def test_a_repair_is_reported_with_the_writer_that_made_it_needed() -> None:
    operator, manifest = converged()
    operator.server.change(("Service", ObjectKey("team", "chat-workers")), ("spec", "selector"), {"a": "b"})
    plan = plan_service(operator.view(manifest))
    children = operator.view(manifest).children
    named = {place: replace(live, changed_by="kubectl-patch") for place, live in children.items()}
    by_name = plan_service(operator.view(manifest, children=named))
    assert [(event.type, event.reason, event.message) for event in (*plan.events, *by_name.events)] == [
        ("Normal", "Repaired", "Service chat-workers was changed; restored."),
        ("Normal", "Repaired", "Service chat-workers was changed by kubectl-patch; restored."),
    ]


def test_neither_a_first_creation_nor_an_edit_of_the_spec_nor_another_version_is_a_repair() -> None:
    operator, manifest = Operator(), service()
    operator.namespace()
    told = [event for _ in range(4) for event in operator.step(manifest).events]
    operator.converge(manifest)
    told += operator.step(edit(manifest, runtime={"env": [{"name": "A", "value": "b"}]})).events
    operator.converge(manifest)
    operator.server.change(
        ("Service", ObjectKey("team", "chat-workers")), ("metadata", "labels", "paceline.dev/service"), "x"
    )
    operator.restart()
    told += operator.step(manifest).events
    assert "Repaired" not in [event.reason for event in told]


def test_a_deleted_child_comes_back() -> None:
    operator, manifest = converged()
    for place in [p for p in operator.server.stored if p[0] in ("Service", "Deployment")]:
        del operator.server.stored[place]
    operator.converge(manifest)
    assert {p[0] for p in operator.server.stored} >= {"Service", "Deployment", "PodDisruptionBudget"}


def test_a_pool_gone_from_the_spec_goes_by_its_uid() -> None:
    operator, manifest = converged(pools=[POOL, EDGE])
    uid = next(s.uid for (_, key), s in operator.server.stored.items() if key.name == "chat-edge")
    (gone,) = operator.step(edit(manifest, pools=[POOL])).actions
    assert isinstance(gone, Delete)
    assert (gone.key.name, gone.uid) == ("chat-edge", uid)
    assert "edge" in gone.reason


def test_a_renamed_pool_serves_until_the_new_one_does() -> None:
    operator, manifest = converged()
    edit(manifest, pools=[{**POOL, "name": "fast"}])
    assert not [a for a in operator.step(manifest).actions if isinstance(a, Delete)]
    plan = operator.step(manifest)
    assert not [a for a in plan.actions if isinstance(a, Delete)]
    assert "main serves until" in condition(manifest["status"], "Progressing")["message"]
    operator.server.settle()
    assert [a.key.name for a in operator.step(manifest).actions if isinstance(a, Delete)] == ["chat-main"]


def test_a_pool_in_which_nothing_is_ready_goes_at_once() -> None:
    operator, manifest = Operator(), service()
    operator.namespace()
    operator.step(manifest)
    edit(manifest, pools=[{**POOL, "name": "fast"}])
    assert [a.key.name for a in operator.step(manifest).actions if isinstance(a, Delete)] == ["chat-main"]


@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "Deployment"])
def test_an_unmanaged_child_is_reported_and_never_touched(kind: str) -> None:
    operator, manifest = Operator(), service()
    name = "chat-main" if kind == "Deployment" else "chat-workers"
    unmanaged(operator.server, kind, name)
    before = operator.server.picture()[f"{kind} team/{name}"]
    operator.namespace()
    plans = [operator.step(manifest) for _ in range(3)]
    assert operator.server.picture()[f"{kind} team/{name}"] == before
    degraded = condition(manifest["status"], "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "ForeignChild")
    assert f"{kind} {name}" in degraded["message"]
    warned = [event.reason for plan in plans for event in plan.events if event.type == "Warning"]
    assert warned == ["ForeignChild"]


def test_an_unmanaged_object_under_a_shared_name_is_reported_by_the_services_that_meet_it() -> None:
    operator, manifest = converged()
    for (kind, _), stored in operator.server.stored.items():
        if kind == "ConfigMap":
            stored.values["metadata", "labels", "app.kubernetes.io/managed-by"] = '"somebody"'
    operator.step(manifest)
    degraded = condition(manifest["status"], "Degraded")
    assert degraded["reason"] == "ForeignChild"
    assert "ConfigMap paceline-trust" in degraded["message"]


def test_children_of_a_deleted_object_of_the_same_name_are_waited_for_and_left_alone() -> None:
    operator, _ = converged()
    new = service(uid="u-2")
    operator.memo = None
    plan = operator.step(new)
    assert plan.actions == ()
    assert plan.again_s
    operator.step(new)
    assert condition(new["status"], "Progressing")["reason"] == "Waiting"
    assert condition(new["status"], "Degraded")["status"] == "False"
    for place in [p for p in operator.server.stored if p[0] in ("Service", "Deployment", "PodDisruptionBudget")]:
        del operator.server.stored[place]
    operator.converge(new)
    owners = [live.owner.uid for live in operator.server.seen().values() if live.owner]
    assert set(owners) == {"u-2"}


def test_an_object_that_is_being_deleted_gets_nothing() -> None:
    operator, manifest = Operator(), service()
    manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert plan_service(operator.view(manifest)).actions == ()


BAD: dict[str, dict[str, Any]] = {
    "Invalid": {"pools": "none"},
    "Unsupported": {"model": {"source": "hf://org/name"}},
    "InvalidEmulation": {"engine": {"emulate": {"accelerator": "abacus", "model": "llama-3.1-8b"}}},
    "TooLarge": {"runtime": {"env": [{"name": f"V{n}", "value": "x" * 4096} for n in range(60)]}},
}


@pytest.mark.parametrize("reason", BAD)
def test_what_cannot_be_accepted_moves_nothing_that_runs_and_reports_why(reason: str) -> None:
    operator, manifest = converged()
    before = operator.server.picture()
    plan = operator.step(edit(manifest, **BAD[reason]))
    assert plan.actions == ()
    accepted = condition(manifest["status"], "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", reason)
    assert "spec." in accepted["message"]
    assert condition(manifest["status"], "Ready")["status"] == "True"
    assert manifest["status"]["workload"]["summary"] == f"1/1 {reason}"
    assert [event.reason for event in plan.events] == [reason]
    assert operator.step(manifest).status is None
    assert operator.server.picture() == before


@pytest.mark.parametrize(
    ("config", "fix"),
    [
        ({"words": " , "}, "set config.words"),
        ({"words": "cat", "action": "burn"}, "set config.action to replace or end"),
        ({"words": "cat", "colour": "red"}, "remove the others from config"),
    ],
)
def test_a_filter_that_no_worker_would_take_moves_nothing_and_is_reported_with_the_fix(
    config: dict[str, str], fix: str
) -> None:
    operator, manifest = converged()
    words = {"name": "words", "stage": "output", "config": config}
    assert operator.step(edit(manifest, filters=[words])).actions == ()
    accepted = condition(manifest["status"], "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "Invalid")
    assert accepted["message"].startswith("spec.filters[0].config: ")
    assert fix in accepted["message"]


@pytest.mark.parametrize("reason", BAD)
def test_from_any_bad_spec_one_can_go_back(reason: str) -> None:
    operator, manifest = converged()
    seed, before = manifest["spec"], operator.server.picture()
    operator.step(edit(manifest, **BAD[reason]))
    manifest["metadata"]["generation"] += 1
    manifest["spec"] = seed
    operator.converge(manifest)
    assert operator.server.picture() == before
    assert condition(manifest["status"], "Accepted")["status"] == "True"


def test_correcting_a_spec_proceeds_although_nothing_is_ready() -> None:
    operator, manifest = converged()
    operator.server.scale("chat-main", 1)
    operator.step(edit(manifest, runtime={"image": "no-such-image"}))
    for (kind, _), stored in operator.server.stored.items():
        if kind == "Deployment":
            stored.status = {"replicas": 1, "unavailableReplicas": 1, "observedGeneration": stored.generation}
    (mended,) = operator.step(edit(manifest, runtime=None)).actions
    assert isinstance(mended, Apply)


def test_an_unmanaged_workload_is_reported_and_never_written() -> None:
    operator = Operator()
    unmanaged(operator.server, "Deployment", "legacy")
    operator.server.settle()
    manifest = service(
        model={"source": "hf://org/name"},
        runtime={"name": "custom", "workloadRef": {"name": "legacy"}},
    )
    plan = operator.step(manifest)
    assert plan.actions == ()
    assert manifest["status"]["workload"]["summary"] == "1/1 Unsupported"


def test_a_contested_name_is_reported_and_the_service_runs() -> None:
    operator, manifest = Operator(), service()
    operator.namespace()
    plan = operator.step(manifest, loss=LOST)
    assert len(plan.actions) == 3
    accepted = condition(manifest["status"], "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "NameTaken")
    assert "other/chat" in accepted["message"]
    assert "team/chat" in accepted["message"]


def test_an_upgrade_of_paceline_moves_nothing() -> None:
    operator, manifest = converged(pools=[POOL, EDGE])
    operator.settings = Settings(
        "paceline-system", "paceline/worker:2", SETTINGS.endpoint, log_level="DEBUG", pull_secrets=("registry",)
    )
    operator.restart()
    assert operator.step(manifest).actions == ()


NEW_PODS: dict[str, dict[str, Any]] = {
    "model": {"model": {"source": "builtin://demo", "servedName": "other"}},
    "runtime": {"runtime": {"env": [{"name": "A", "value": "b"}]}},
    "engine": {"engine": {"maxSeqs": 8}},
    "batch window": {"classes": {"batch": {"batchWindow": "50ms"}}},
    "reserved share": {"classes": {"interactive": {"reservedPercent": 25}}},
    "pages on disk": {"engine": {"kvCache": {"hostOffloadBytes": "1Gi", "diskOffloadBytes": "8Gi"}}},
    "drain timeout": {"rollout": {"drainTimeout": "90s"}},
    "filters": {"filters": [{"name": "words", "stage": "output", "config": {"words": "cat"}}]},
    "placement": {"pools": [{**POOL, "nodeSelector": {"zone": "a"}}]},
    "spot": {"pools": [{**POOL, "spot": True}]},
}
SAME_PODS: dict[str, dict[str, Any]] = {
    "bounds": {"pools": [{**POOL, "replicas": {"min": 2, "max": 9}}]},
    "promise": {"classes": {"interactive": {"slo": {"ttft": {"p95": "1s"}}, "queueLimit": 5}}},
    "a share of nothing": {"classes": {"batch": {"reservedPercent": 0}}},
    "scaling": {"scaling": {"policy": "advise"}},
    "a default written out": {"pools": [{**POOL, "role": "both", "spot": False}]},
    "an empty part": {"runtime": {}, "engine": {"kvCache": {}}},
}


@cases("field", NEW_PODS)
def test_what_the_user_writes_for_pods_makes_new_ones(field: str) -> None:
    operator, manifest = converged()
    before = operator.server.picture()["Deployment team/chat-main"]["spec"]["template"]
    operator.converge(edit(manifest, **NEW_PODS[field]))
    assert operator.server.picture()["Deployment team/chat-main"]["spec"]["template"] != before


@pytest.mark.parametrize("field", SAME_PODS)
def test_what_is_not_for_pods_leaves_them_alone_even_after_an_upgrade(field: str) -> None:
    operator, manifest = converged()
    operator.settings = Settings("paceline-system", "paceline/worker:2", SETTINGS.endpoint)
    assert operator.step(edit(manifest, **SAME_PODS[field])).actions == ()


def test_another_way_of_rolling_out_rolls_nothing_by_itself() -> None:
    operator, manifest = converged()
    before = operator.server.picture()["Deployment team/chat-main"]["spec"]
    operator.settings = Settings("paceline-system", "paceline/worker:2", SETTINGS.endpoint)
    operator.converge(edit(manifest, rollout={"gpus": "inPlace"}))
    after = operator.server.picture()["Deployment team/chat-main"]["spec"]
    assert after["template"] == before["template"]
    assert after["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_the_upgrade_annotation_takes_the_new_image() -> None:
    operator, manifest = converged()
    operator.server.scale("chat-main", 1)
    operator.settings = Settings("paceline-system", "paceline/worker:2", SETTINGS.endpoint)
    manifest["metadata"]["annotations"] = {"paceline.dev/upgrade": "2"}
    (applied,) = operator.step(manifest).actions
    assert isinstance(applied, Apply)
    (container,) = applied.child.body["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "paceline/worker:2"


def test_an_edit_while_the_operator_was_away_and_taken_back_does_nothing() -> None:
    operator, manifest = converged()
    manifest["metadata"]["generation"] += 2
    operator.restart()
    plan = operator.step(manifest)
    assert plan.actions == ()
    assert plan.status is not None


def test_a_list_older_than_the_last_act_neither_deletes_nor_doubles() -> None:
    operator, manifest = converged(pools=[POOL])
    old = {p: live for p, live in operator.server.seen().items() if p[0] in ("Service", "Deployment")}
    edit(manifest, pools=[POOL, EDGE])
    operator.converge(manifest)
    picture = operator.server.picture()
    for stale in ({}, old):
        plan = plan_service(operator.view(manifest, children=stale))
        for action in plan.actions:
            assert not isinstance(action, Delete)
            operator.server.carry_out(action)
    assert operator.server.picture() == picture


def test_a_stale_list_never_resets_replicas() -> None:
    operator, manifest = converged()
    operator.server.scale("chat-main", 7)
    for action in plan_service(operator.view(manifest, children={})).actions:
        operator.server.carry_out(action)
    assert operator.server.picture()["Deployment team/chat-main"]["spec"]["replicas"] == 7


def changes() -> dict[str, list[dict[str, Any]]]:
    """Sequences of specs; the last one must stand at the end whatever died in between."""
    return {
        "create": [{"pools": [POOL, EDGE]}],
        "edit": [{"pools": [POOL]}, {"runtime": {"env": [{"name": "A", "value": "b"}]}}],
        "pool removal": [{"pools": [POOL, EDGE]}, {"pools": [POOL]}],
    }


@pytest.mark.parametrize("change", changes())
def test_a_death_after_any_write_ends_as_if_nobody_had_died(change: str) -> None:
    *before, last = changes()[change]

    def begun() -> tuple[Operator, dict[str, Any]]:
        operator, manifest = Operator(), service()
        for spec in before:
            operator.converge(edit(manifest, **spec))
        return operator, edit(manifest, **last)

    whole, manifest = begun()
    whole.server.calls = 0
    whole.converge(manifest)
    for death in range(1, whole.server.calls + 1):
        operator, manifest = begun()
        known = {place: stored.uid for place, stored in operator.server.stored.items()}
        operator.server.calls, operator.server.die_after = 0, death
        with pytest.raises(Crash):
            operator.converge(manifest)
        operator.server.die_after = None
        operator.restart()
        operator.converge(manifest)
        assert operator.server.picture() == whole.server.picture()
        assert sorted(operator.server.created) == sorted(whole.server.created)
        assert sorted(operator.server.deleted) == sorted(whole.server.deleted)
        assert all(operator.server.stored[p].uid == uid for p, uid in known.items() if p in operator.server.stored)


OPTIONAL: dict[str, list[Any]] = {
    "runtime": [None, {"env": [{"name": "A", "value": "b"}, {"name": "EMPTY", "value": ""}]}, {"image": "own:1"}],
    "engine": [None, {"maxSeqs": 8}, {"emulate": EMULATE}, {"kvCache": {"pageTokens": 32}}],
    "rollout": [None, {"gpus": "inPlace"}, {"drainTimeout": "90s"}],
    "classes": [None, {"interactive": {"batchWindow": "5ms"}}],
    "pools": [
        [POOL],
        [POOL, EDGE],
        [{**POOL, "spot": True}],
        [{**POOL, "nodeSelector": {"zone": "a"}}],
        [{**POOL, "tolerations": [{"key": "gpu", "operator": "Exists"}]}],
        [{**POOL, "replicas": {"max": 3}}],
    ],
}
SPECS = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in OPTIONAL.items()})


@settings(max_examples=40)
@given(st.lists(SPECS, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_any_way_to_a_spec_ends_where_the_straight_one_does(specs: list[dict[str, Any]], chance: Any) -> None:
    """Field removal, A -> B -> A, restarts and skipped steps: children equal those that never saw the detours."""
    operator, manifest = Operator(), service()
    for spec in specs:
        edit(manifest, **spec)
        if chance.random() < 0.5:
            operator.restart()
        if chance.random() < 0.5:
            operator.converge(manifest)
    operator.converge(manifest)
    straight, once = Operator(), service()
    straight.converge(edit(once, **specs[-1]))
    assert operator.server.picture() == straight.server.picture()


@settings(max_examples=20)
@given(SPECS, st.randoms(use_true_random=False))
def test_a_plan_does_not_depend_on_the_order_of_what_is_observed(spec: dict[str, Any], chance: Any) -> None:
    operator, manifest = Operator(), service(pools=[POOL, EDGE])
    operator.converge(manifest)
    edit(manifest, **spec)
    view = operator.view(manifest)
    places = list(view.children)
    chance.shuffle(places)
    shuffled = operator.view(manifest, children={place: view.children[place] for place in places})
    assert plan_service(shuffled) == plan_service(view)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*OPTIONAL, "model", "name", "accelerator", "source"]), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_no_spec_whatever_brings_a_plan_down(spec: Any) -> None:
    manifest = {**service(), "spec": spec}
    plan = plan_service(Operator().view(manifest))
    assert plan.status is None or condition(plan.status, "Accepted")["status"] in ("True", "False")


def test_a_server_without_any_status_and_with_another_writers_is_read_alike() -> None:
    operator, manifest = Operator(), service()
    manifest["status"] = {
        "conditions": [
            {"type": "SLOMet", "status": "Unknown", "reason": "a", "message": "b", "lastTransitionTime": EARLY}
        ]
    }
    operator.namespace()
    assert operator.step(manifest).status is None
    assert ModelServer().seen() == {}
