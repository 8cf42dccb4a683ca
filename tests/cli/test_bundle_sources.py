from typing import Any

from paceline_cli.kube.bundle.sources import OURS, PODS, concerned, left_out, listings, readings


def service(name: str = "chat", runtime: str = "") -> dict[str, Any]:
    spec = {"runtime": {"name": runtime}} if runtime else {}
    return {"metadata": {"name": name, "namespace": "team"}, "spec": spec}


def pod(name: str, labels: dict[str, str], restarts: int = 0, namespace: str = "team") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "worker"}]},
        "status": {"containerStatuses": [{"name": "worker", "restartCount": restarts}]},
    }


WORKER = {"paceline.dev/service": "chat", "app.kubernetes.io/name": "paceline-worker"}


def event(kind: str, name: str, namespace: str = "team") -> dict[str, Any]:
    about = {"kind": kind, "name": name, "namespace": namespace}
    return {"metadata": {"namespace": namespace}, "involvedObject": about}


def test_secrets_and_config_maps_are_never_asked_for() -> None:
    asked = list(listings(("",), "paceline-system"))
    assert {listing.kind for listing in asked}.isdisjoint({"Secret", "ConfigMap", "ServiceAccount"})
    assert len({listing.path for listing in asked}) == len(asked)


def test_in_paceline_s_own_namespace_only_its_own_parts_are_read() -> None:
    own = [listing for listing in listings(("team",), "paceline-system") if listing.namespace == "paceline-system"]
    assert {listing.kind for listing in own if listing.selector != OURS} == {"Tenant", "Event"}


def test_of_a_worker_its_metrics_and_its_log_are_read_and_the_last_run_s_when_it_restarted() -> None:
    fresh = [reading.path for reading in readings([pod("chat-main-1", WORKER)], [service()])]
    assert fresh == ["metrics/team/chat-main-1.txt", "logs/team/chat-main-1/worker.log"]
    again = [reading.path for reading in readings([pod("chat-main-1", WORKER, restarts=2)], [service()])]
    assert again[2:] == ["logs/team/chat-main-1/worker.previous.log"]


def test_an_unmanaged_runtimes_output_may_hold_prompts_and_is_left_out() -> None:
    pods, services = [pod("chat-main-1", WORKER)], [service(runtime="vllm")]
    assert not list(readings(pods, services))
    assert list(left_out(pods, services)) == [
        ("logs/team/chat", "an unmanaged runtime's log and metrics may hold prompts")
    ]


def test_a_foreign_service_of_another_namespace_hides_nothing_here() -> None:
    elsewhere = {**service(runtime="vllm"), "metadata": {"name": "chat", "namespace": "other"}}
    assert list(readings([pod("chat-main-1", WORKER)], [elsewhere, service()]))


def test_pods_beyond_the_limit_are_named() -> None:
    pods = [pod(f"p{index}", {}) for index in range(PODS + 2)]
    assert len(list(readings(pods, []))) == PODS
    assert [path for path, _ in left_out(pods, [])] == [f"logs/team/p{PODS}", f"logs/team/p{PODS + 1}"]


def test_events_are_those_of_our_services_and_of_our_own_parts() -> None:
    def kept(about: dict[str, Any]) -> bool:
        return concerned(about, "paceline-system", [service()])

    assert kept(event("InferenceService", "chat"))
    assert kept(event("Pod", "chat-main-abc"))
    assert kept(event("Deployment", "paceline-operator", "paceline-system"))
    assert not kept(event("Pod", "somebody-else"))
    assert not kept(event("Secret", "chat-key"))
