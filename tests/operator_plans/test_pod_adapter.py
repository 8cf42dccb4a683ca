"""One launch, two worlds: the same WorkerLaunch as a pod (golden) and as a process on this machine."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.operator_plans.plan_factories import EMULATE, POOL, SETTINGS, service
from tests.operator_plans.pod_standard import violations

from paceline_core.config import parse
from paceline_core.launch import Binding, Probe, WorkerLaunch, build
from paceline_core.objects import InferenceService, ResolvedService, read, resolve
from paceline_core.units import quantity
from paceline_operator.plans.children import render
from paceline_operator.plans.pod import BINDING, USER, binary_size, cores, pod_template
from paceline_workers.config import WorkerConfig

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]
PROCESS = Binding(
    "chat-main-1",
    "127.0.0.1",
    20017,
    "/run/parts/chat-main-1",
    "/run/jwks.json",
    "/run/pages",
    20018,
    "/venv/bin/python",
)
SECRET = {"name": "HUB_TOKEN", "valueFrom": {"secretKeyRef": {"name": "tokens", "key": "hub"}}}
PLAIN = {"name": "MONEY", "value": "$(HOME) costs $$5 $x"}
WISHES: dict[str, dict[str, Any]] = {
    "demo": {},
    "emulated": {
        "model": {"source": "builtin://demo", "servedName": "llama-3.1-8b"},
        "engine": {"maxModelLen": 16384, "emulate": {**EMULATE, "coldStart": "20s"}},
        "rollout": {"drainTimeout": "90s"},
    },
    "spilling": {
        "engine": {"kvCache": {"hostOffloadBytes": "1Gi", "diskOffloadBytes": "8Gi"}},
        "classes": {"interactive": {"reservedPercent": 25}},
    },
    "gpu": {
        "model": {"source": "file:///models/llama"},
        "engine": {"kvCache": {"dtype": "fp8"}},
        "pools": [{"name": "main", "accelerator": "h100"}],
    },
    "placed": {
        "runtime": {"image": "registry.example.com/own:1", "env": [PLAIN, SECRET]},
        "pools": [
            {
                **POOL,
                "spot": True,
                "nodeSelector": {"zone": "a"},
                "tolerations": [{"key": "batch", "operator": "Exists"}],
            }
        ],
    },
}


def resolved(**spec: Any) -> ResolvedService:
    return resolve(read(InferenceService, service(**spec)))


def launched(binding: Binding = BINDING, **spec: Any) -> WorkerLaunch:
    found = resolved(**spec)
    return build(found, found.pools[0], "stable", binding, found.runtime.image or SETTINGS.image)


def template(nodes: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    found = resolved(**spec)
    return pod_template(launched(**spec), found.pools[0], SETTINGS, nodes or {})


def container(pod: Mapping[str, Any]) -> dict[str, Any]:
    (only,) = pod["spec"]["containers"]
    return dict(only)


def expanded(text: str) -> str:
    """What a kubelet makes of a value: `$$` is `$`, and `$(NAME)` of no variable stays."""
    return re.sub(r"\$\$", "$", text)


def literals(pod: Mapping[str, Any]) -> dict[str, str]:
    return {v["name"]: expanded(v.get("value", "")) for v in container(pod)["env"] if "valueFrom" not in v}


@pytest.mark.parametrize("name", WISHES)
def test_a_pod_is_the_golden_one(name: str) -> None:
    assert template(**WISHES[name]) == yaml.safe_load((GOLDEN / f"{name}.yaml").read_text())


@pytest.mark.parametrize("name", WISHES)
def test_pod_and_process_start_the_same_worker(name: str) -> None:
    pod, process = template(**WISHES[name]), launched(PROCESS, **WISHES[name])
    assert container(pod)["command"][1:] == list(process.argv[1:])
    placed = {"PACELINE_CONFIG": container(pod)["env"] and "/etc/paceline/worker/worker.yaml"}
    assert literals(pod) == {**process.env, **placed}
    assert {v["name"] for v in container(pod)["env"] if "valueFrom" in v} == set(process.env_from)
    assert pod["metadata"]["labels"] == process.labels
    for probe, kind in (("startup", "startupProbe"), ("liveness", "livenessProbe"), ("readiness", "readinessProbe")):
        assert container(pod)[kind] == probed(getattr(process, probe))
    requests = container(pod)["resources"]["requests"]
    assert quantity(requests["memory"]) == process.resources.memory
    assert quantity(container(pod)["resources"]["limits"]["memory"]) == process.resources.memory_limit
    assert process.resources.memory_limit > process.resources.memory + (1 << 30)
    assert pod["spec"]["terminationGracePeriodSeconds"] >= process.grace_s


def probed(probe: Probe) -> dict[str, Any]:
    get = {"path": probe.path, "port": "metrics", "scheme": "HTTP"}
    times = (probe.period_s, probe.timeout_s, probe.failures)
    grace = {} if probe.grace_s is None else {"terminationGracePeriodSeconds": probe.grace_s}
    counts = dict(zip(("periodSeconds", "timeoutSeconds", "failureThreshold"), times, strict=True))
    return {"httpGet": get, **counts, **grace}


def test_what_fails_its_liveness_probe_is_not_given_the_time_to_drain() -> None:
    """It cannot: its loop stands still. Its streams go on elsewhere when it is gone."""
    liveness = container(template(**WISHES["demo"]))["livenessProbe"]
    assert liveness["terminationGracePeriodSeconds"] == launched().liveness.grace_s
    assert liveness["terminationGracePeriodSeconds"] < launched().grace_s


@pytest.mark.parametrize("name", WISHES)
def test_the_file_in_the_pod_is_the_file_of_the_process_but_for_its_places(name: str) -> None:
    pod = template(**WISHES[name])
    inside = parse(WorkerConfig, yaml.safe_load(pod["metadata"]["annotations"]["paceline.dev/worker"]), "annotation")
    (file,) = launched(PROCESS, **WISHES[name]).files
    outside = parse(WorkerConfig, yaml.safe_load(file.content), file.path)
    engine = outside.engine.model_copy(update={"disk_path": inside.engine.disk_path})
    places = {
        "name": "",
        "listen": inside.listen,
        "metrics": inside.metrics,
        "trust_bundle": inside.trust_bundle,
        "engine": engine,
    }
    assert inside == outside.model_copy(update=places)
    assert (inside.listen.host, inside.listen.port) == ("0.0.0.0", 8000)
    assert inside.metrics is not None
    assert [port["containerPort"] for port in container(pod)["ports"]] == [inside.listen.port, inside.metrics.port]
    assert not inside.open_to_all


@pytest.mark.parametrize("name", WISHES)
def test_file_and_trust_lie_where_the_worker_looks(name: str) -> None:
    pod = template(**WISHES[name])
    mounts = {m["name"]: m["mountPath"] for m in container(pod)["volumeMounts"]}
    volumes = {v["name"]: v for v in pod["spec"]["volumes"]}
    (item,) = volumes["worker"]["downwardAPI"]["items"]
    inside = yaml.safe_load(pod["metadata"]["annotations"]["paceline.dev/worker"])
    assert item["fieldRef"]["fieldPath"] == "metadata.annotations['paceline.dev/worker']"
    assert literals(pod)["PACELINE_CONFIG"] == f"{mounts['worker']}/{item['path']}"
    assert inside["trust_bundle"] == f"{mounts['trust']}/jwks.json"
    assert volumes["trust"]["configMap"] == {"name": "paceline-trust", "optional": True}


def test_pages_on_disk_have_a_bounded_volume_where_the_worker_writes_and_the_scheduler_knows_of_it() -> None:
    pod = template(**WISHES["spilling"])
    (volume,) = [v for v in pod["spec"]["volumes"] if v["name"] == "pages"]
    (mount,) = [m for m in container(pod)["volumeMounts"] if m["name"] == "pages"]
    engine = yaml.safe_load(pod["metadata"]["annotations"]["paceline.dev/worker"])["engine"]
    limit = container(pod)["resources"]["requests"]["ephemeral-storage"]
    assert volume == {"name": "pages", "emptyDir": {"sizeLimit": limit}}
    assert mount == {"name": "pages", "mountPath": engine["disk_path"]}
    assert quantity(limit) > engine["disk_bytes"] == 8 << 30
    plain = template()
    assert "pages" not in {v["name"] for v in plain["spec"]["volumes"]}
    assert "ephemeral-storage" not in container(plain)["resources"]["requests"]


def test_what_the_image_compiles_lies_on_a_volume_that_its_user_may_write_and_that_outlives_a_container() -> None:
    recipe = (ROOT / "workers/Dockerfile").read_text()
    (cache,) = re.findall(r"TRITON_CACHE_DIR=(\S+)", recipe)
    pod = template()
    (mount,) = [m for m in container(pod)["volumeMounts"] if cache.startswith(f"{m['mountPath']}/")]
    (volume,) = [v for v in pod["spec"]["volumes"] if v["name"] == mount["name"]]
    assert "readOnly" not in mount
    assert list(volume) == ["name", "emptyDir"]
    assert pod["spec"]["securityContext"]["fsGroup"] == USER
    assert f"USER {USER}:{USER}" in recipe


@pytest.mark.parametrize("name", WISHES)
def test_pods_keep_the_restricted_standard_and_get_no_token_and_no_secret(name: str) -> None:
    pod = template(**WISHES[name])
    assert list(violations(pod["spec"])) == []
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["enableServiceLinks"] is False
    assert container(pod)["securityContext"]["readOnlyRootFilesystem"] is True
    sources = {kind for volume in pod["spec"]["volumes"] for kind in volume if kind != "name"}
    assert sources == {"downwardAPI", "configMap", "emptyDir"}
    assert all("sizeLimit" in v["emptyDir"] for v in pod["spec"]["volumes"] if "emptyDir" in v)


def test_the_checker_of_the_standard_sees_what_it_forbids() -> None:
    spec = template()["spec"]
    bad = {**spec, "hostNetwork": True, "volumes": [{"name": "x", "hostPath": {"path": "/"}}]}
    open_ = {**spec, "containers": [{**spec["containers"][0], "securityContext": {"privileged": True}}]}
    assert set(violations(bad)) == {"hostNetwork", "volume hostPath"}
    assert set(violations(open_)) == {"privilege escalation", "capabilities not dropped"}
    assert "may run as root" in set(violations({**spec, "securityContext": {}}))


def test_a_value_is_literal_in_a_pod_as_in_a_process() -> None:
    pod = template(runtime={"env": [PLAIN, {"name": "EMPTY", "value": ""}]})
    assert (literals(pod)["MONEY"], literals(pod)["EMPTY"]) == (PLAIN["value"], "")


def test_only_the_users_own_reference_names_a_secret() -> None:
    pod = template(runtime={"env": [SECRET]})
    (bound,) = [v for v in container(pod)["env"] if "valueFrom" in v]
    assert bound == SECRET
    assert "secret" not in str(template()).lower()


def test_a_user_cannot_move_the_workers_file() -> None:
    hijack = {"name": "PACELINE_CONFIG", "valueFrom": {"configMapKeyRef": {"name": "mine", "key": "k"}}}
    pod = template(runtime={"env": [hijack, {"name": "PACELINE_LOG_LEVEL", "value": "TRACE"}]})
    assert literals(pod)["PACELINE_CONFIG"] == "/etc/paceline/worker/worker.yaml"
    assert literals(pod)["PACELINE_LOG_LEVEL"] == "INFO"
    assert [v["name"] for v in container(pod)["env"]].count("PACELINE_CONFIG") == 1


def test_nodes_of_the_profile_and_of_the_pool_are_both_needed_and_the_pool_wins() -> None:
    pools = [{**POOL, "nodeSelector": {"zone": "a", "disk": "ssd"}}]
    pod = template({"zone": "b", "gpu": "h100"}, pools=pools)
    assert pod["spec"]["nodeSelector"] == {"zone": "a", "disk": "ssd", "gpu": "h100"}


def test_pods_ask_for_the_resource_and_the_nodes_that_the_profile_of_their_gpu_names() -> None:
    profile = {"spec": {"resourceName": "example.com/gpu", "nodeSelector": {"gpu": "h100"}}}
    pools = [{"name": "main", "accelerator": "h100"}]

    def rendered(**spec: Any) -> dict[str, Any]:
        found = resolved(**spec)
        return dict(render(found, found.pools[0], SETTINGS, profile)["spec"])

    asked = rendered(pools=pools)
    assert asked["containers"][0]["resources"]["limits"] == {"memory": "64Gi", "example.com/gpu": "1"}
    assert asked["nodeSelector"] == {"gpu": "h100"}
    emulated = rendered(pools=pools, engine={"emulate": EMULATE})
    assert emulated["containers"][0]["resources"]["limits"] == {"memory": "4Gi"}
    assert "nodeSelector" not in emulated


def test_gpus_are_limits_as_kubernetes_wants_extended_resources() -> None:
    found = resolved()
    launch = launched()
    resources = replace(launch.resources, gpus=2, gpu_resource="nvidia.com/gpu")
    pod = pod_template(replace(launch, resources=resources), found.pools[0], SETTINGS, {})
    assert container(pod)["resources"]["limits"] == {"memory": "4Gi", "nvidia.com/gpu": "2"}
    assert container(pod)["resources"]["requests"]["nvidia.com/gpu"] == "2"
    assert container(template())["resources"]["limits"] == {"memory": "4Gi"}


@pytest.mark.parametrize(("count", "text"), [(2.0, "2"), (0.5, "500m"), (1.25, "1250m"), (0.0, "0")])
def test_cores_are_written_as_the_server_writes_them(count: float, text: str) -> None:
    assert cores(count) == text


@pytest.mark.parametrize(
    ("size", "text"), [(512 << 20, "512Mi"), (4 << 30, "4Gi"), (1000, "1k"), (1536, "1536"), (1_500_000, "1500k")]
)
def test_sizes_are_written_as_the_server_writes_them(size: int, text: str) -> None:
    assert binary_size(size) == text
