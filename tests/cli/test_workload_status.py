from collections.abc import Sequence
from typing import Any

from paceline_core.objects import InferenceService, ResolvedService, read, resolve, validate
from paceline_core.objects.workload_status import PoolCounts
from paceline_local.status import ObservedReplicas, status

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"


def document(**engine: Any) -> dict[str, Any]:
    return {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat"},
        "spec": {
            "model": {"source": "builtin://demo"},
            "engine": engine,
            "pools": [{"name": "main", "accelerator": "cpu"}],
        },
    }


def service(**engine: Any) -> ResolvedService:
    found = validate(document(**engine))
    assert isinstance(found, InferenceService)
    return resolve(found)


def said(
    counts: PoolCounts, desired: int, *failing: str, before: Sequence[dict[str, Any]] = (), now: str = EARLY
) -> Any:
    return status(service(), ObservedReplicas({"main": counts}, desired, failing), "http://x", before, now)


def condition(found: Any, kind: str) -> dict[str, Any]:
    return next(dict(c) for c in found["conditions"] if c["type"] == kind)


def test_the_summary_is_ready_of_desired() -> None:
    found = said(PoolCounts("main", ready=2, starting=1), 3)
    assert found["workload"]["summary"] == "2/3"
    assert found["workload"]["pools"] == [{"name": "main", "ready": 2, "starting": 1, "draining": 0}]
    assert condition(found, "Ready")["status"] == "True"
    assert condition(found, "Progressing")["status"] == "True"


def test_an_emulated_service_says_so() -> None:
    emulated = service(emulate={"accelerator": "h100", "model": "llama-3.1-8b"})
    found = status(emulated, ObservedReplicas({"main": PoolCounts("main", ready=1)}, 1), "http://x", (), EARLY)
    assert (found["workload"]["summary"], found["workload"]["emulated"]) == ("1/1 emulated", True)


def test_everybody_ready_is_settled() -> None:
    assert condition(said(PoolCounts("main", ready=1), 1), "Progressing")["reason"] == "ReplicasReady"


def test_who_finishes_its_streams_is_not_scaling_and_is_not_counted_as_ready() -> None:
    found = said(PoolCounts("main", ready=3, draining=1), 2)
    assert found["workload"]["summary"] == "2/2"
    progressing = condition(found, "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("True", "Draining")
    assert progressing["message"] == "2 of 2 replicas are ready; 2 more finish their streams."


def test_nobody_ready_and_nobody_wanted_are_different_things() -> None:
    assert condition(said(PoolCounts("main", starting=1), 1), "Ready")["reason"] == "NoWorkerReady"
    assert condition(said(PoolCounts("main"), 0), "Ready")["reason"] == "ScaledToZero"


def test_workers_that_keep_ending_degrade_the_service_by_name() -> None:
    degraded = condition(said(PoolCounts("main", starting=1), 1, "chat-main-1"), "Degraded")
    assert degraded["status"] == "True"
    assert "chat-main-1" in degraded["message"]
    ready = condition(said(PoolCounts("main", starting=1), 1, "chat-main-1"), "Ready")
    assert ready["message"] == "No worker is ready yet (0 of 1): BackOff; requests are held."


def test_nothing_is_wrong_when_no_worker_keeps_ending() -> None:
    assert condition(said(PoolCounts("main", starting=1), 1), "Degraded")["message"] == "Nothing is wrong."


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    before = said(PoolCounts("main", ready=1), 1)["conditions"]
    after = said(PoolCounts("main", ready=0, starting=1), 1, before=before, now=LATE)
    assert condition(after, "Accepted")["lastTransitionTime"] == EARLY
    assert condition(after, "Ready")["lastTransitionTime"] == LATE


def test_the_status_fits_the_objects_schema() -> None:
    found = said(PoolCounts("main", ready=1, starting=2, draining=3), 3, "chat-main-1")
    whole = read(InferenceService, {**document(), "status": found})
    assert whole.status.workload.summary == "1/3 BackOff"
    assert {c.type for c in whole.status.conditions} == {"Accepted", "Ready", "Progressing", "Degraded"}
