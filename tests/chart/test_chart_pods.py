"""The chart's pods: restricted, configured with files their processes can read, probed, spread, stopped in time."""

import copy
from typing import Any

import pytest
from tests.chart.rendering import CHART, FORMS, NAMESPACE, PARTS, Rendered, helm, rendered, template
from tests.chart.restricted import violations
from tests.every import cases

from paceline_autoscaler.process import AutoscalerConfig
from paceline_core.config import parse
from paceline_gateway.config import GatewayConfig
from paceline_operator.config import OperatorConfig

pytestmark = pytest.mark.real
CONFIGS: dict[str, type[Any]] = {"operator": OperatorConfig, "autoscaler": AutoscalerConfig, "gateway": GatewayConfig}


@cases("form", FORMS)
def test_every_pod_is_admitted_where_only_restricted_pods_are(form: str) -> None:
    found = dict(rendered(form).pods())
    assert {f"paceline-{part}" for part in PARTS} | {"paceline-test"} <= found.keys()
    assert {name: faults for name, spec in found.items() if (faults := violations(spec))} == {}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("securityContext", "runAsNonRoot"), False),
        (("securityContext", "seccompProfile"), {}),
        (("hostNetwork",), True),
        (("containers", 0, "securityContext", "capabilities"), {"drop": []}),
        (("containers", 0, "securityContext", "readOnlyRootFilesystem"), False),
        (("volumes", 0), {"name": "host", "hostPath": {"path": "/"}}),
    ],
)
def test_the_check_sees_a_pod_that_is_not_restricted(path: tuple[str | int, ...], value: Any) -> None:
    spec = copy.deepcopy(dict(rendered().pods())["paceline-gateway"])
    *way, last = path
    place: Any = spec
    for step in way:
        place = place[step]
    place[last] = value
    assert violations(spec)


@cases("form", FORMS)
@cases("part", PARTS)
def test_every_process_can_read_its_file(form: str, part: str) -> None:
    config = parse(CONFIGS[part], rendered(form).config(part), f"{part}.yaml")
    assert config.namespace == NAMESPACE
    assert config.cluster.namespaces == (("chat", "batch") if form == "in two namespaces" else ())


def test_every_process_finds_its_file_where_it_is_mounted() -> None:
    for part in PARTS:
        spec = dict(rendered().pods())[f"paceline-{part}"]
        [container] = spec["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        env = {variable["name"]: variable["value"] for variable in container["env"]}
        assert env["PACELINE_CONFIG"] == f"{mounts['config']}/{part}.yaml"
        assert volumes["config"]["configMap"]["name"] == f"paceline-{part}"
        assert container["command"] == ["python", "-m", f"paceline_{part}.main"]
        assert mounts.keys() == volumes.keys()


def test_keys_come_from_folders_that_the_kubelet_refreshes() -> None:
    for part in ("autoscaler", "gateway"):
        spec = dict(rendered().pods())[f"paceline-{part}"]
        [mounted] = [mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"] == "signing-key"]
        [volume] = [volume for volume in spec["volumes"] if volume["name"] == "signing-key"]
        assert rendered().config(part)["signing_key"] == f"{mounted['mountPath']}/signing.key"
        assert "subPath" not in mounted
        assert volume["secret"] == {"secretName": f"paceline-signing-key-{part}", "defaultMode": 0o440}
    assert "signing-key" not in {volume["name"] for volume in dict(rendered().pods())["paceline-operator"]["volumes"]}


def test_what_listens_is_what_is_probed_and_what_the_services_lead_to() -> None:
    ports = {
        "operator": {"listen": "admin"},
        "autoscaler": {"listen": "admin"},
        "gateway": {"listen": "http", "admin": "admin"},
    }
    for part, names in ports.items():
        [container] = dict(rendered().pods())[f"paceline-{part}"]["containers"]
        open_ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        config = rendered().config(part)
        assert open_ports == {name: config[field]["port"] for field, name in names.items()}
        probes = [container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
        assert [probe["path"] for probe in probes] == ["/healthz", "/healthz", "/readyz"]
        assert {probe["port"] for probe in probes} == {"admin"}


def test_the_services_are_those_of_the_contract() -> None:
    found = {
        item["metadata"]["name"]: [(port["port"], port["targetPort"]) for port in item["spec"]["ports"]]
        for item in rendered().of("Service")
    }
    assert found == {
        "paceline-gateway": [(80, "http")],
        "paceline-gateway-admin": [(8081, "admin")],
        "paceline-autoscaler": [(8090, "admin")],
        "paceline-operator": [(8070, "admin")],
        "paceline-prometheus": [(9090, "admin")],
    }
    admin = rendered().one("Service", "paceline-gateway-admin")["spec"]
    assert admin["clusterIP"] == "None"
    assert admin["publishNotReadyAddresses"] is True


def test_every_selector_finds_the_pods_of_its_deployment_and_no_others() -> None:
    chart = rendered()
    labels = {
        item["metadata"]["name"]: item["spec"]["template"]["metadata"]["labels"] for item in chart.of("Deployment")
    }
    labels |= {item["metadata"]["name"]: item["metadata"]["labels"] for item in chart.of("Pod")}
    for kind, path in (
        ("Deployment", "selector"),
        ("PodDisruptionBudget", "selector"),
        ("NetworkPolicy", "podSelector"),
    ):
        for item in chart.of(kind):
            wanted = item["spec"][path]["matchLabels"].items()
            assert [name for name, has in labels.items() if wanted <= has.items()] == [item["metadata"]["name"]]
    for item in chart.of("Service"):
        wanted = item["spec"]["selector"].items()
        name = item["metadata"]["name"].removesuffix("-admin")
        assert [pod for pod, has in labels.items() if wanted <= has.items()] == [name]


def test_there_are_two_of_each_part_and_an_eviction_takes_one_at_a_time() -> None:
    chart = rendered()
    for part in PARTS:
        assert chart.one("Deployment", f"paceline-{part}")["spec"]["replicas"] == 2
        budget = chart.one("PodDisruptionBudget", f"paceline-{part}")["spec"]
        assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
        spread = dict(chart.pods())[f"paceline-{part}"]["topologySpreadConstraints"]
        assert {rule["whenUnsatisfiable"] for rule in spread} == {"ScheduleAnyway"}


def ledger_of(chart: Rendered) -> tuple[Any, Any]:
    """The volume that the autoscaler's ledger is in, and the strategy of its Deployment."""
    config = parse(AutoscalerConfig, chart.config("autoscaler"), "autoscaler.yaml")
    spec = dict(chart.pods())["paceline-autoscaler"]
    [mounted] = [each for each in spec["containers"][0]["volumeMounts"] if each["mountPath"] == str(config.ledger_dir)]
    [volume] = [each for each in spec["volumes"] if each.pop("name") == mounted["name"]]
    return volume, chart.one("Deployment", "paceline-autoscaler")["spec"].get("strategy")


def test_the_ledger_has_a_volume_of_the_size_that_the_autoscaler_knows() -> None:
    chart = template("--set", "autoscaler.ledger.size=512Mi")
    assert chart.config("autoscaler")["ledger_size"] == "512Mi"
    assert ledger_of(chart) == ({"emptyDir": {"sizeLimit": "512Mi"}}, None)
    assert chart.of("PersistentVolumeClaim") == []


def test_a_ledger_that_outlives_its_pods_has_a_claim_that_all_of_them_mount() -> None:
    chart = rendered("with everything said")
    claim = chart.one("PersistentVolumeClaim", "paceline-autoscaler-ledger")["spec"]
    assert claim == {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "shared",
        "resources": {"requests": {"storage": "20Gi"}},
    }
    assert ledger_of(chart) == ({"persistentVolumeClaim": {"claimName": "paceline-autoscaler-ledger"}}, None)


def test_a_claim_for_one_node_serves_one_replica_which_goes_before_the_next_comes() -> None:
    once = "autoscaler.ledger.persistence.enabled=true,autoscaler.ledger.persistence.accessModes={ReadWriteOnce}"
    refused = helm("template", "paceline", str(CHART), "--set", once)
    assert "accessModes: more than one replica needs ReadWriteMany; or set autoscaler.replicas to 1" in refused.stderr
    chart = template("--set", f"{once},autoscaler.replicas=1,autoscaler.ledger.persistence.existingClaim=mine")
    assert ledger_of(chart) == ({"persistentVolumeClaim": {"claimName": "mine"}}, {"type": "Recreate"})
    assert chart.of("PersistentVolumeClaim") == []


def test_a_gateway_has_time_to_settle_and_to_drain() -> None:
    chart = template("--set", "gateway.drainSeconds=900,gateway.lameDuckSeconds=20")
    config = parse(GatewayConfig, chart.config("gateway"), "gateway.yaml")
    grace = dict(chart.pods())["paceline-gateway"]["terminationGracePeriodSeconds"]
    assert (config.lame_duck_s, config.drain_s) == (20, 900)
    assert grace >= config.lame_duck_s + config.drain_s + 10
    strategy = chart.one("Deployment", "paceline-gateway")["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 1, "maxUnavailable": 0}


def test_gateways_share_counters_in_the_redis_that_is_named_and_find_its_password_and_certificate() -> None:
    chart = rendered("with everything said")
    config = parse(GatewayConfig, chart.config("gateway"), "gateway.yaml")
    assert config.quota.redis is not None
    assert (config.quota.redis.url, config.quota.redis.username) == ("rediss://redis.example.org:6380/1", "paceline")
    assert config.quota.gateways == 2
    spec = dict(chart.pods())["paceline-gateway"]
    mounted = {mount["mountPath"]: mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    for path in (config.quota.redis.password_file, config.quota.redis.ca_file):
        assert path is not None
        assert str(path.parent) in mounted
    assert volumes["redis"]["secret"]["secretName"] == "redis-password"
    assert volumes["redis-ca"]["configMap"]["name"] == "redis-ca"


def test_without_a_redis_one_of_the_gateways_counts_for_all() -> None:
    quota = parse(GatewayConfig, rendered().config("gateway"), "gateway.yaml").quota
    assert (quota.redis, quota.lease) == (None, True)


def test_gateways_alone_send_spans_to_the_collector_that_is_named() -> None:
    collector = "http://collector.tracing:4318"
    named = template("--set", f"gateway.tracesEndpoint={collector}")
    told = {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": collector}
    tracing = {name for name, spec in named.pods() if told in spec["containers"][0].get("env", [])}
    assert tracing == _changed(rendered(), named) == {"paceline-gateway"}


def test_pods_roll_when_their_file_changes_and_only_then() -> None:
    before, after = rendered(), template("--set", "gateway.accessLog=false")
    assert _changed(before, after) == {"paceline-gateway"}
    assert _changed(before, template("--set", "gateway.service.type=NodePort")) == set()


def test_only_who_asks_the_api_server_has_a_token() -> None:
    chart = rendered()
    holders = {name for name, spec in chart.pods() if spec["automountServiceAccountToken"]}
    assert holders == {f"paceline-{part}" for part in (*PARTS, "prometheus")}
    assert all(item["automountServiceAccountToken"] is False for item in chart.of("ServiceAccount"))
    assert {spec["serviceAccountName"] for name, spec in chart.pods() if name in holders} == holders


def test_pod_templates_name_no_version_of_the_chart() -> None:
    for item in rendered().of("Deployment"):
        labels = item["spec"]["template"]["metadata"]["labels"]
        assert not {"helm.sh/chart", "app.kubernetes.io/version"} & labels.keys()


def test_an_image_is_the_repository_the_part_and_the_tag_unless_it_is_given_whole() -> None:
    chart = rendered("with everything said")
    images = {name: spec["containers"][0]["image"] for name, spec in chart.pods()}
    assert images["paceline-operator"] == "example.org/paceline/operator:1.2.3"
    assert images["paceline-gateway"] == images["paceline-test"] == "example.org/gate@sha256:0"
    assert chart.config("operator")["worker"]["image"] == "example.org/paceline/worker:1.2.3"


def test_what_is_said_of_pods_reaches_all_of_them() -> None:
    for _, spec in rendered("with everything said").pods():
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
        assert spec["priorityClassName"] == "system-cluster-critical"
        assert spec["nodeSelector"] == {"pool": "control"}
        assert spec["tolerations"] == [{"key": "control"}]


def _changed(before: Rendered, after: Rendered) -> set[str]:
    old = {item["metadata"]["name"]: item["spec"]["template"] for item in before.of("Deployment")}
    new = {item["metadata"]["name"]: item["spec"]["template"] for item in after.of("Deployment")}
    return {name for name in old if old[name] != new[name]}
