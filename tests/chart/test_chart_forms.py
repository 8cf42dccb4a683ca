"""The chart in each of its forms: linted, the same under both Helms, whole, and saying what it cannot do."""

import json

import pytest
import yaml
from tests.chart.rendering import CHART, FORMS, NAMESPACE, PARTS, ROOT, helm, options, place, rendered
from tests.every import cases

from paceline_core import __version__
from paceline_operator.plans.labels import METRICS_PORT_NAME

pytestmark = pytest.mark.real
KIND_OF_CRD = "CustomResourceDefinition"
OF_THE_CLUSTER = (
    "ClusterRole",
    "ClusterRoleBinding",
    "Namespace",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


@cases("tool", ["helm", "helm3"])
@cases("form", FORMS)
def test_lint_finds_nothing(form: str, tool: str) -> None:
    said = [word for word in options(form) if word != "--api-versions" and "/v1/" not in word]
    done = helm("lint", "--strict", str(CHART), *said, tool=tool)
    assert done.returncode == 0, done.stdout + done.stderr


@cases("form", FORMS)
def test_helm_3_and_helm_4_render_the_same(form: str) -> None:
    three, four = rendered(form, "helm3").documents, rendered(form, "helm").documents
    assert sorted(map(json.dumps, three)) == sorted(map(json.dumps, four))


def test_a_kubernetes_that_is_too_old_is_refused_in_words() -> None:
    done = helm("template", "paceline", str(CHART), "--kube-version", "1.29.9")
    assert "requires kubeVersion: >=1.30.0-0" in done.stderr


@cases("form", FORMS)
def test_no_two_objects_are_one(form: str) -> None:
    places = [(item["kind"], *place(item)) for item in rendered(form).documents]
    assert sorted(places) == sorted(set(places))


@cases("form", FORMS)
def test_every_namespaced_object_says_where_it_belongs(form: str) -> None:
    cluster = {KIND_OF_CRD, *OF_THE_CLUSTER}
    spaces = {place(item)[0] for item in rendered(form).documents if item["kind"] not in cluster}
    assert spaces == {
        NAMESPACE,
        f"{NAMESPACE}-tenant-keys",
        *({"chat", "batch"} if form == "in two namespaces" else ()),
    }


def test_the_chart_and_its_sub_chart_have_the_version_of_the_code() -> None:
    for file in (CHART / "Chart.yaml", CHART / "charts/paceline-crds/Chart.yaml"):
        said = yaml.safe_load(file.read_text())
        assert said["appVersion"] == said["version"] == __version__
    [dependency] = yaml.safe_load((CHART / "Chart.yaml").read_text())["dependencies"]
    assert dependency["version"] == __version__


def test_the_crds_are_those_of_the_code_and_are_kept_on_uninstall() -> None:
    found = {item["metadata"]["name"]: item for item in rendered().of(KIND_OF_CRD)}
    wanted = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / "crds").glob("*.yaml")}
    assert found.keys() == wanted.keys()
    for name, item in found.items():
        assert item["spec"] == wanted[name]["spec"]
        assert item["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert len(found) == 4


def test_a_further_install_brings_no_crds() -> None:
    assert rendered("without CRDs").of(KIND_OF_CRD) == []


def test_two_installs_in_one_cluster_share_no_object_of_the_cluster() -> None:
    done = helm("template", "other", str(CHART), "--namespace", "elsewhere", "--set", "crds.install=false")
    other = {place(item) for item in yaml.safe_load_all(done.stdout) if item and item["kind"] in OF_THE_CLUSTER}
    ours = {place(item) for kind in OF_THE_CLUSTER for item in rendered().of(kind)}
    assert ours
    assert not ours & other


def test_in_two_namespaces_nothing_of_the_cluster_is_asked_for() -> None:
    chart = rendered("in two namespaces")
    assert chart.of("ClusterRole") == chart.of("ClusterRoleBinding") == []
    for part in PARTS:
        where = {place(item)[0] for item in chart.of("Role") if item["metadata"]["name"].endswith(f":paceline-{part}")}
        assert where == {"chat", "batch"} | ({f"{NAMESPACE}-tenant-keys"} if part == "gateway" else set())


def test_the_autoscaler_is_told_of_the_prometheus_there_is() -> None:
    urls = {form: rendered(form).config("autoscaler").get("prometheus", {}).get("url") for form in FORMS}
    own = f"http://paceline-prometheus.{NAMESPACE}.svc:9090"
    assert urls["as it is"] == own
    assert urls["with your Prometheus"] == "http://prometheus.metrics.svc:9090"
    assert urls["without a Prometheus"] is None
    for form in ("with your Prometheus", "without a Prometheus"):
        assert "paceline-prometheus" not in {item["metadata"]["name"] for item in rendered(form).documents}


def test_monitors_are_made_only_where_their_kinds_exist() -> None:
    with_operator = rendered("beside a Prometheus Operator")
    assert rendered().of("PodMonitor") == rendered().of("PrometheusRule") == []
    monitors = {item["metadata"]["name"]: item for item in with_operator.of("PodMonitor")}
    assert monitors.keys() == {"paceline-workers", "paceline-parts"}
    assert all(item["metadata"]["labels"]["release"] == "stack" for item in monitors.values())
    assert monitors["paceline-workers"]["spec"]["namespaceSelector"] == {"any": True}
    rules = {item["metadata"]["name"] for item in with_operator.of("PrometheusRule")}
    assert rules == {path.stem for path in (CHART / "files/rules").glob("*.yaml")}
    assert all(item["spec"]["groups"] for item in with_operator.of("PrometheusRule"))


def test_the_monitors_scrape_the_ports_that_the_pods_have() -> None:
    chart = rendered("beside a Prometheus Operator")
    [ends] = [
        item["spec"]["podMetricsEndpoints"] for item in chart.of("PodMonitor") if place(item)[1] == "paceline-parts"
    ]
    [selector] = [item["spec"]["selector"] for item in chart.of("PodMonitor") if place(item)[1] == "paceline-parts"]
    for item in chart.of("Deployment"):
        template = item["spec"]["template"]
        assert selector["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert ends[0]["port"] in {port["name"] for port in template["spec"]["containers"][0]["ports"]}


def test_workers_are_scraped_where_they_show_metrics_and_not_where_they_are_asked() -> None:
    chart = rendered("beside a Prometheus Operator")
    [ends] = [item["spec"]["podMetricsEndpoints"] for item in chart.of("PodMonitor") if "workers" in place(item)[1]]
    assert [end["port"] for end in ends] == [METRICS_PORT_NAME]
    jobs = yaml.safe_load(rendered().one("ConfigMap", "paceline-prometheus")["data"]["prometheus.yml"])[
        "scrape_configs"
    ]
    [kept] = [rule for rule in jobs[0]["relabel_configs"] if rule.get("action") == "keep"]
    assert (jobs[0]["job_name"], kept["regex"]) == ("workers", METRICS_PORT_NAME)


def test_the_rules_and_dashboards_of_the_chart_all_arrive() -> None:
    chart = rendered()
    rules = chart.one("ConfigMap", "paceline-prometheus-rules")["data"] or {}
    assert rules == {path.name: path.read_text() for path in (CHART / "files/rules").glob("*.yaml")}
    boards = [item for item in chart.of("ConfigMap") if item["metadata"]["labels"].get("grafana_dashboard") == "1"]
    texts = {name: json.loads(text) for item in boards for name, text in item["data"].items()}
    files = (CHART / "files/dashboards").glob("*.json")
    assert texts == {path.name: json.loads(path.read_text()) for path in files}


def test_a_network_policy_admits_who_must_talk_and_nobody_else() -> None:
    chart = rendered("beside a Prometheus Operator")
    ours = {"podSelector": {"matchLabels": {"app.kubernetes.io/part-of": "paceline"}}}
    name = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["metrics"]}
    admin = {"from": [ours, {"namespaceSelector": {"matchExpressions": [name]}}], "ports": [{"port": "admin"}]}
    found = {item["metadata"]["name"]: item["spec"]["ingress"] for item in chart.of("NetworkPolicy")}
    assert found == {
        "paceline-operator": [admin],
        "paceline-autoscaler": [admin],
        "paceline-gateway": [{"ports": [{"port": "http"}]}, admin],
        "paceline-prometheus": [admin],
    }
    assert rendered("with everything said").of("NetworkPolicy") == []
    assert rendered("with everything said").config("operator")["worker"]["network_policy"] is False


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("as it is", "paceline-prometheus.paceline-system.svc:9090"),
        ("without a Prometheus", "Prometheus: none. The autoscaler measures attainment by its own scrapes"),
        ("with your Prometheus", "must scrape gateways and workers every 5 s; docs/install.md shows"),
        ("in two namespaces", "It watches chat, batch"),
    ],
)
def test_the_notes_say_what_holds_and_what_comes_next(form: str, says: str) -> None:
    dry = ("install", "paceline", str(CHART), "--namespace", NAMESPACE, "--dry-run=client")
    done = helm(*dry, *options(form))
    assert done.returncode == 0, done.stderr
    notes = " ".join(done.stdout.partition("NOTES:")[2].split())
    assert says in notes
    for step in (
        "helm test paceline",
        "kubectl apply -f examples/chat.yaml",
        "keys create local",
        "port-forward",
        "curl",
    ):
        assert step in notes
