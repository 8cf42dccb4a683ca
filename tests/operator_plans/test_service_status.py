from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from tests.every import cases
from tests.operator_plans.plan_factories import EARLY, EMULATE, LATE, LOST, POOL, Operator, condition, service

from paceline_cli.commands.kube.status import cells, header
from paceline_core.kube.cluster import ObjectKey
from paceline_core.objects import InferenceService, read
from paceline_operator.plans.inferenceservice import plan_service
from paceline_operator.plans.status import COALESCE_S, HOLD_S, initial_delay_s, status_due
from paceline_operator.plans.types import PodProblem, ReconcilePlan

PLACE = ("Deployment", ObjectKey("team", "chat-main"))
COUNTERS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")


class Scene:
    """A converged service whose Deployment then says what the test wants."""

    def __init__(self, **spec: Any) -> None:
        self.operator, self.manifest = Operator(), service(**spec)
        self.operator.converge(self.manifest)

    def deployment(self, desired: int, *counts: int, **status: Any) -> None:
        stored = self.operator.server.stored[PLACE]
        stored.values["spec", "replicas"] = str(desired)
        named = dict(zip(COUNTERS, (*counts, *counts[-1:] * 4), strict=False))
        stored.status = {"observedGeneration": stored.generation, **named, **status}

    def look(self, **more: Any) -> ReconcilePlan:
        return self.operator.step(self.manifest, **more)

    def said(self, kind: str) -> tuple[str, str, str]:
        found = condition(self.manifest["status"], kind)
        return (found["status"], found["reason"], found["message"])


def test_a_ready_service_reports_it_in_numbers() -> None:
    scene = Scene()
    assert scene.manifest["status"]["workload"]["summary"] == "1/1"
    assert scene.said("Accepted")[:2] == ("True", "Valid")
    assert scene.said("Ready") == ("True", "WorkersReady", "1 of 1 replica is ready for requests.")
    assert scene.said("Progressing") == ("False", "ReplicasReady", "1 of 1 replica is ready.")
    assert scene.said("Degraded")[0] == "False"
    assert scene.manifest["status"]["observedGeneration"] == 1


def test_replicas_on_their_way_are_counted() -> None:
    scene = Scene()
    scene.deployment(3, 3, 3, 2)
    scene.look()
    assert scene.manifest["status"]["workload"]["summary"] == "2/3"
    assert scene.manifest["status"]["workload"]["pools"] == [{"name": "main", "ready": 2, "starting": 1, "draining": 0}]
    assert scene.said("Progressing") == ("True", "Scaling", "2 of 3 replicas are ready.")
    assert scene.said("Ready")[0] == "True"


def test_draining_replicas_are_counted_apart() -> None:
    scene = Scene()
    scene.deployment(1, 1, 1, 1, terminatingReplicas=2)
    scene.look()
    assert scene.manifest["status"]["workload"]["pools"][0]["draining"] == 2
    assert scene.said("Progressing") == (
        "True",
        "Draining",
        "1 of 1 replica is ready; 2 more finish their streams.",
    )


def test_more_ready_replicas_than_desired_are_never_counted() -> None:
    scene = Scene()
    scene.deployment(2, 3, 3, 3)
    scene.look()
    assert scene.manifest["status"]["workload"]["summary"] == "2/2"
    assert scene.said("Ready")[2] == "2 of 2 replicas are ready for requests."
    assert scene.said("Progressing") == (
        "True",
        "Draining",
        "2 of 2 replicas are ready; 1 more finishes its streams.",
    )


def test_a_rollout_is_reported_once_although_its_old_replicas_are_slow_to_go() -> None:
    scene = Scene()
    scene.deployment(2, 3, 1, 2)
    scene.look()
    scene.deployment(2, 2, 2, 1, terminatingReplicas=1)
    told = [event.reason for event in scene.look().events]
    assert scene.said("Progressing")[1] == "RollingOut"
    for more in ({"terminatingReplicas": 1}, {}):
        scene.deployment(2, 2, 2, 2, **more)
        told += [event.reason for event in scene.look().events]
    assert scene.said("Progressing")[1] == "ReplicasReady"
    assert told == ["RolledOut"]


def test_a_rollout_names_the_revision_and_how_far_it_is() -> None:
    scene = Scene()
    scene.deployment(3, 4, 1, 3)
    scene.look()
    status, reason, message = scene.said("Progressing")
    assert (status, reason) == ("True", "RollingOut")
    assert message.startswith("1 of 3 replicas are of the revision ")
    scene.deployment(3, 3, 3, 3)
    plan = scene.look()
    assert [(event.type, event.reason) for event in plan.events] == [("Normal", "RolledOut")]


def test_zero_replicas_are_no_fault() -> None:
    scene = Scene()
    scene.deployment(0, 0)
    scene.look()
    assert scene.said("Ready")[:2] == ("False", "ScaledToZero")
    assert scene.said("Progressing")[:2] == ("False", "ReplicasReady")
    assert scene.manifest["status"]["workload"]["summary"] == "0/0"


def test_an_emulated_service_reports_it_and_its_fit_has_numbers() -> None:
    scene = Scene(engine={"emulate": EMULATE})
    assert scene.manifest["status"]["workload"]["summary"] == "1/1 emulated"
    status, reason, message = scene.said("ModelFits")
    assert (status, reason) == ("True", "Fits")
    assert "16.1 GB" in message
    assert "KV tokens" in message


def test_the_summary_ends_in_what_is_wrong() -> None:
    scene = Scene(engine={"emulate": EMULATE})
    scene.deployment(1, 1, 1, 0)
    scene.look(problems=(PodProblem("CrashLoopBackOff", "out of memory", "main"),))
    assert scene.manifest["status"]["workload"]["summary"] == "0/1 emulated CrashLoopBackOff"
    scene.look(loss=LOST)
    assert scene.manifest["status"]["workload"]["summary"] == "0/1 emulated NameTaken"


def test_the_summary_of_what_was_never_accepted_reports_why() -> None:
    operator, manifest = Operator(), service(model={"source": "hf://org/name"})
    operator.namespace()
    operator.step(manifest)
    assert manifest["status"]["workload"]["summary"] == "0/0 Unsupported"


def test_weights_that_the_operator_never_sees_are_unknown_and_not_false() -> None:
    assert Scene().said("ModelFits")[:2] == ("Unknown", "NotChecked")


def test_a_model_that_cannot_fit_is_refused_with_the_numbers() -> None:
    operator, manifest = Operator(), service(engine={"emulate": {**EMULATE, "accelerator": "l4", "model": "qwen3-32b"}})
    operator.namespace()
    assert operator.step(manifest).actions == ()
    fits = condition(manifest["status"], "ModelFits")
    assert (fits["status"], fits["reason"]) == ("False", "DoesNotFit")
    assert "65.5 GB" in fits["message"]


def test_ready_speaks_of_a_generation_only_when_the_deployment_has_observed_its_spec() -> None:
    scene = Scene()
    scene.manifest["metadata"]["generation"] = 2
    scene.manifest["spec"]["runtime"] = {"env": [{"name": "A", "value": "b"}]}
    scene.look()
    ready = condition(scene.manifest["status"], "Ready")
    assert (ready["status"], ready["observedGeneration"]) == ("True", 1)
    assert scene.manifest["status"]["observedGeneration"] == 2
    scene.look()
    assert condition(scene.manifest["status"], "Ready")["observedGeneration"] == 1
    scene.operator.server.settle()
    scene.look()
    assert condition(scene.manifest["status"], "Ready")["observedGeneration"] == 2


def test_times_move_only_when_a_status_turns() -> None:
    scene = Scene()
    scene.deployment(3, 3, 3, 0)
    plan = plan_service(replace(scene.operator.view(scene.manifest), time=LATE))
    assert plan.status is not None
    times = {one["type"]: one["lastTransitionTime"] for one in plan.status["conditions"]}
    assert times == {"Accepted": EARLY, "Ready": LATE, "Progressing": LATE, "ModelFits": EARLY, "Degraded": EARLY}


@pytest.mark.parametrize(
    ("reason", "message"),
    [("Unschedulable", "0/5 nodes are available"), ("CrashLoopBackOff", "spec.engine.maxSeqs: is over the limit")],
)
def test_problem_of_pods_degrades_by_name(reason: str, message: str) -> None:
    scene = Scene()
    plan = scene.look(problems=(PodProblem(reason, message, "main", 2),))
    assert scene.said("Degraded") == ("True", reason, f"2 pods in pool main: {reason}: {message}")
    assert [(event.type, event.reason) for event in plan.events] == [("Warning", reason)]
    assert scene.look(problems=(PodProblem(reason, message, "main", 3),)).events == ()


def test_a_service_without_ready_worker_repeats_why_as_far_as_it_is_known() -> None:
    scene = Scene()
    scene.deployment(1, 1, 1, 0)
    scene.look()
    assert scene.said("Ready")[2] == "No worker is ready yet (0 of 1); requests are held."
    scene.look(problems=(PodProblem("Unschedulable", "0/5 nodes are available", "main"),))
    assert scene.said("Ready")[2] == "No worker is ready yet (0 of 1): Unschedulable; requests are held."
    scene.look()
    assert scene.said("Degraded") == ("False", "AsExpected", "Nothing is wrong.")


def test_refused_pods_and_a_rollout_that_is_stuck_are_reported_in_the_deployments_words() -> None:
    scene = Scene()
    failed = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "violates PodSecurity"}
    scene.deployment(2, 1, conditions=[failed])
    scene.look()
    assert scene.said("Degraded")[1:] == ("FailedCreate", "FailedCreate: violates PodSecurity")
    stuck = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    scene.deployment(2, 1, conditions=[stuck])
    scene.look()
    assert scene.said("Progressing") == ("False", "ProgressDeadlineExceeded", "timed out.")


def test_the_status_fits_the_objects_schema() -> None:
    scene = Scene(pools=[POOL, {"name": "edge", "accelerator": "cpu"}])
    found = read(InferenceService, scene.manifest)
    assert found.status.workload.summary == "2/2"
    assert {one.type for one in found.status.conditions} >= {"Accepted", "Ready", "Progressing", "ModelFits"}


def test_the_status_of_other_writers_is_neither_read_as_ours_nor_written() -> None:
    scene = Scene()
    theirs = {"type": "SLOMet", "status": "True", "reason": "Met", "message": "m", "lastTransitionTime": EARLY}
    scene.manifest["status"]["conditions"].append(theirs)
    scene.manifest["status"]["scaling"] = {"desired": 1}
    assert scene.look().status is None
    scene.deployment(1, 0)
    written = scene.look().status
    assert written is not None
    assert "scaling" not in written
    assert "SLOMet" not in {one["type"] for one in written["conditions"]}


def saying(
    ready: str = "False", summary: str = "0/1", accepted: str = "True", progressing: str = "True"
) -> dict[str, Any]:
    said = {"Accepted": accepted, "Ready": ready, "Progressing": progressing}
    conditions = [{"type": kind, "status": status} for kind, status in said.items()]
    return {"observedGeneration": 1, "workload": {"summary": summary}, "conditions": conditions}


NEVER: dict[str, Any] = {}


@cases(
    ("before", "after", "now", "written", "due"),
    [
        (saying(), saying(), 100.0, None, None),
        (NEVER, saying(), 0.0, None, HOLD_S),
        (NEVER, saying(), 0.5, None, HOLD_S - 0.5),
        (NEVER, saying(), 9.0, None, 0.0),
        (NEVER, saying(ready="True", summary="1/2"), 0.25, None, HOLD_S - 0.25),
        (NEVER, saying(ready="True", summary="1/1", progressing="False"), 0.0, None, 0.0),
        (NEVER, saying(accepted="False"), 0.0, None, 0.0),
        (saying(), saying(summary="1/4"), 100.0, 99.5, COALESCE_S - 0.5),
        (saying(), saying(summary="1/4"), 100.0, 90.0, 0.0),
        (saying(), saying(summary="1/4"), 100.0, None, 0.0),
        (saying(), saying(ready="True"), 100.0, 99.9, 0.0),
        (saying(ready="True"), saying(), 100.0, 99.9, 0.0),
        (NEVER, saying(), 1.0, 0.5, COALESCE_S - 0.5),
    ],
)
def test_news_is_written_at_once_and_counters_a_little_later(
    before: dict[str, Any], after: dict[str, Any], now: float, written: float | None, due: float | None
) -> None:
    assert status_due(before, after, now=now, held_until=HOLD_S, written=written) == due


def test_a_first_status_fills_every_column_of_the_operator_at_once_although_nothing_is_ready() -> None:
    operator, manifest = Operator(), service()
    operator.namespace()
    operator.step(manifest)
    operator.now = HOLD_S
    assert operator.step(manifest).status is not None
    found = cells(manifest, datetime.fromisoformat(EARLY))
    filled = dict(zip(header(), found, strict=True))
    assert {title: filled[title] for title in ("MODEL", "SERVED", "READY")} == {
        "MODEL": "builtin://demo",
        "SERVED": "chat",
        "READY": "0/1",
    }


def test_a_status_that_must_wait_asks_to_be_looked_at_again() -> None:
    operator, manifest = Operator(), service()
    operator.namespace()
    plan = operator.step(manifest)
    assert plan.status is None
    assert plan.again_s == HOLD_S


def test_the_wide_columns_hold_the_name_the_bounds_and_the_pools() -> None:
    pools = [
        {**POOL, "replicas": {"min": 2, "max": 5}},
        {"name": "edge", "accelerator": "cpu", "replicas": {"min": 0, "max": 3}},
    ]
    scene = Scene(model={"source": "builtin://demo", "servedName": "acme/chat-7b"}, pools=pools)
    workload = scene.manifest["status"]["workload"]
    assert workload["servedName"] == "acme/chat-7b"
    assert (workload["minReplicas"], workload["maxReplicas"], workload["poolNames"]) == (2, 8, "main, edge")
    scene.manifest["spec"]["pools"] = [{"name": "main", "accelerator": "h1000"}]
    scene.manifest["metadata"]["generation"] = 2
    scene.look()
    assert scene.said("Accepted")[1] == "UnknownAccelerator"
    workload = scene.manifest["status"]["workload"]
    assert (workload["servedName"], workload["minReplicas"], workload["maxReplicas"]) == ("acme/chat-7b", 2, 8)


def test_after_an_edit_the_status_speaks_of_the_pods_that_serve_until_all_are_new() -> None:
    scene = Scene()
    old = scene.manifest["status"]["workload"]["revision"]
    scene.deployment(2, 2)
    scene.look()
    scene.manifest["spec"]["engine"] = {"emulate": EMULATE}
    scene.manifest["metadata"]["generation"] = 2
    told = []
    for counts in ((2, 0, 2), (3, 1, 2), (2, 2, 1), (2, 2, 2)):
        scene.look()
        scene.deployment(2, *counts)
        scene.look()
        workload = scene.manifest["status"]["workload"]
        told.append((workload["revision"] == old, workload["emulated"]))
    assert told == [(True, False), (True, False), (False, True), (False, True)]


def test_during_a_rollout_model_name_and_fit_are_of_the_pods_that_serve_and_the_message_names_the_new_model() -> None:
    scene = Scene(engine={"emulate": EMULATE})
    fits = scene.said("ModelFits")
    scene.manifest["spec"]["model"] = {"source": "file:///models/new", "servedName": "new"}
    scene.manifest["spec"]["engine"] = {}
    scene.manifest["metadata"]["generation"] = 2
    told = []
    for counts in ((1, 0, 1), (2, 1, 1), (1, 1, 0), (1, 1, 1)):
        scene.look()
        scene.deployment(1, *counts)
        scene.look()
        status = scene.manifest["status"]
        about = condition(status, "ModelFits")["observedGeneration"]
        workload = status["workload"]
        told.append((workload["model"], workload["servedName"], scene.said("ModelFits") == fits, about))
        if counts == (2, 1, 1):
            assert scene.said("Progressing")[2].endswith(", whose model is file:///models/new.")
    old, new = ("builtin://demo", "chat", True, 1), ("file:///models/new", "new", False, 2)
    assert told == [old, old, new, new]
    assert cells(scene.manifest, datetime.fromisoformat(LATE))[2] == "file:///models/new"


def test_an_edit_that_is_not_accepted_leaves_the_model_and_the_fit_of_what_serves_in_the_status() -> None:
    scene = Scene(engine={"emulate": EMULATE})
    fits = scene.said("ModelFits")
    scene.manifest["spec"] |= {"model": {"source": "file:///models/new"}, "engine": {}}
    scene.manifest["spec"]["pools"] = [{"name": "main", "accelerator": "h1000"}]
    scene.manifest["metadata"]["generation"] = 2
    scene.look()
    assert (scene.manifest["status"]["workload"]["model"], scene.said("ModelFits")) == ("builtin://demo", fits)
    assert scene.said("Accepted")[1] == "UnknownAccelerator"
    fresh = service(pools=[{"name": "main", "accelerator": "h1000"}])
    Operator().converge(fresh)
    assert fresh["status"]["workload"]["model"] == "builtin://demo"


def test_ready_names_the_revision_that_serves_while_another_one_comes() -> None:
    scene = Scene()
    old = scene.manifest["status"]["workload"]["revision"]
    scene.manifest["spec"]["engine"] = {"emulate": EMULATE}
    scene.manifest["metadata"]["generation"] = 2
    scene.look()
    scene.deployment(1, 2, 1, 1)
    scene.look()
    new = scene.said("Progressing")[2].rsplit(" ", 1)[1].removesuffix(".")
    assert new != old
    assert scene.said("Ready")[2] == (
        f"1 of 1 replica is ready for requests; revision {old} serves until revision {new} has replaced it."
    )
    assert scene.manifest["status"]["workload"]["summary"] == "1/1"


def test_a_spec_that_is_not_accepted_leaves_the_revision_that_serves_in_the_status() -> None:
    scene = Scene()
    old = scene.manifest["status"]["workload"]["revision"]
    scene.manifest["spec"]["pools"] = [{"name": "main", "accelerator": "h1000"}]
    scene.manifest["metadata"]["generation"] = 2
    scene.look()
    said = scene.said("Ready")[2]
    assert said == f"1 of 1 replica is ready for requests; revision {old} of the last accepted spec serves."


def test_a_rollout_that_ends_at_zero_is_not_reported_as_one_of_no_replicas() -> None:
    scene = Scene()
    scene.deployment(2, 3, 1, 2)
    scene.look()
    assert scene.said("Progressing")[1] == "RollingOut"
    scene.deployment(0, 0)
    assert [event.reason for event in scene.look().events] == []


def test_in_a_bulk_start_a_first_not_ready_waits_longer_and_ready_does_not() -> None:
    operator, manifest = Operator(), service()
    operator.namespace()
    assert operator.step(manifest, bulk_starts=500).again_s == initial_delay_s(500) == 50.0
    assert operator.step(manifest, bulk_starts=500).status is None
    operator.server.settle()
    assert condition(operator.step(manifest, bulk_starts=500).status, "Ready")["status"] == "True"
