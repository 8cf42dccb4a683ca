"""What each part may do, verb by verb. The table is the review: a right that is not in it is not given."""

from collections.abc import Iterator

import pytest
from tests.chart.rendering import CHART, FORMS, NAMESPACE, Manifest, Rendered, helm, place, rendered, template
from tests.every import cases

from paceline_core.kube.kubernetes import PREFIX

pytestmark = pytest.mark.real
READ, WATCH, OWN = "get list watch", "list watch", "get list watch create patch delete"
PEOPLE = {"paceline-view", "paceline-edit", "paceline-admin"}
KEEP, NEW, MEND = "get list watch create patch", "list watch create", "get patch delete"
HOME, CLUSTER, SERVICES = "paceline's own namespace", "the cluster", "wherever services are"
KEYS = "paceline-system-tenant-keys"
RIGHTS = {
    "operator": {
        SERVICES: {
            "paceline.dev/inferenceservices": WATCH,
            "paceline.dev/inferenceservices/status": "patch",
            "paceline.dev/inferenceservices/finalizers": "update",  # to be a blocking owner, where that is checked
            "paceline.dev/tenants": WATCH,
            "paceline.dev/tenants/status": "patch",
            "paceline.dev/inferenceroutes": WATCH,
            "paceline.dev/inferenceroutes/status": "patch",
            "apps/deployments": OWN,
            "services": KEEP,  # what goes with its service is deleted by the cluster
            "serviceaccounts": NEW,
            "serviceaccounts[paceline-worker]": MEND,
            "configmaps": NEW,
            "configmaps[paceline-trust]": MEND,
            "configmaps[paceline-signing-keys]": MEND,
            "policy/poddisruptionbudgets": KEEP,
            "networking.k8s.io/networkpolicies": NEW,
            "networking.k8s.io/networkpolicies[paceline-workers]": MEND,
            "pods": "list",
            "events": "create patch",
        },
        CLUSTER: {"paceline.dev/acceleratorprofiles": WATCH, "paceline.dev/acceleratorprofiles/status": "patch"},
        HOME: {
            "secrets": "create",
            "secrets[paceline-signing-key-gateway]": "patch",
            "secrets[paceline-signing-key-autoscaler]": "patch",
            "coordination.k8s.io/leases": "create",
            "coordination.k8s.io/leases[paceline-operator]": "get update",
        },
    },
    "autoscaler": {
        SERVICES: {
            "paceline.dev/inferenceservices": READ,
            "paceline.dev/inferenceservices/status": "patch",
            "apps/deployments/scale": "get update",
            "apps/deployments": "get",  # whose managedFields name another writer of the replicas
            "autoscaling/horizontalpodautoscalers": "list",
            "pods": WATCH,
            "events": "create patch",
        },
        CLUSTER: {"paceline.dev/acceleratorprofiles": WATCH},
        HOME: {
            "configmaps": "get list create patch delete",  # paceline-scaling.<namespace>.<service>, what was learned
            "coordination.k8s.io/leases": "create",
            "coordination.k8s.io/leases[paceline-autoscaler]": "get update",
        },
    },
    "gateway": {
        SERVICES: {
            "paceline.dev/inferenceservices": WATCH,
            "paceline.dev/inferenceroutes": WATCH,
            "discovery.k8s.io/endpointslices": WATCH,
        },
        CLUSTER: {"paceline.dev/acceleratorprofiles": WATCH},
        HOME: {
            "paceline.dev/tenants": WATCH,
            "paceline.dev/tenants/status": "patch",
            "coordination.k8s.io/leases": "create",
            "coordination.k8s.io/leases[paceline-quota]": "get update",
        },
    },
    "prometheus": {SERVICES: {"pods": WATCH}, CLUSTER: {}, HOME: {}},
}


@pytest.mark.parametrize("part", RIGHTS)
def test_a_part_may_do_what_the_table_says_and_nothing_else(part: str) -> None:
    said = RIGHTS[part]
    assert granted(rendered(), "ClusterRole", part) == said[SERVICES] | said[CLUSTER]
    assert granted(rendered(), "Role", part) == said[HOME]


@cases("part", RIGHTS)
@cases("namespace", ["chat", "batch"])
def test_in_listed_namespaces_a_part_may_do_the_same_there_and_nothing_in_the_cluster(
    part: str, namespace: str
) -> None:
    chart = rendered("in two namespaces")
    assert granted(chart, "Role", part, namespace) == RIGHTS[part][SERVICES]
    assert granted(chart, "ClusterRole", part) == {}


def test_in_listed_namespaces_the_operator_keeps_its_trust_file_at_home_and_only_watches_the_rest_there() -> None:
    at_home = granted(rendered("in two namespaces"), "Role", "operator")
    more = {name: verbs for name, verbs in at_home.items() if name not in RIGHTS["operator"][HOME]}
    assert more.pop("configmaps") == NEW
    assert {more.pop(f"configmaps[{name}]") for name in ("paceline-trust", "paceline-signing-keys")} == {MEND}
    assert set(more.values()) == {WATCH}
    assert more.keys() < RIGHTS["operator"][SERVICES].keys()


@cases("form", FORMS)
def test_nobody_may_do_everything_of_anything(form: str) -> None:
    for role in roles(rendered(form)):
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(rule["verbs"])
            assert not any("/exec" in name or "/proxy" in name or "roles" in name for name in rule["resources"])


@cases("form", FORMS)
def test_only_the_gateway_reads_secrets_and_only_where_tenants_keys_are(form: str) -> None:
    readers = {
        (role["kind"], *place(role))
        for role in roles(rendered(form))
        for rule in role["rules"]
        if "secrets" in rule["resources"] and {"get", "list", "watch"} & set(rule["verbs"])
    }
    assert readers == {("Role", KEYS, f"{NAMESPACE}:paceline-gateway")}
    assert rendered(form).config("gateway")["key_namespace"] == KEYS
    [role] = [role for role in rendered(form).of("Role") if place(role)[0] == KEYS]
    assert [(rule["resources"], rule["verbs"]) for rule in role["rules"]] == [(["secrets"], ["list", "watch"])]


@cases("form", FORMS)
def test_signing_keys_and_passwords_are_mounted_by_name(form: str) -> None:
    chart = rendered(form)
    mounted = {
        part: {volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
        for part, spec in chart.pods()
        if "volumes" in spec
    }
    redis = {"redis-password"} if form == "with everything said" else set()
    assert mounted.pop("paceline-gateway") == {"paceline-signing-key-gateway"} | redis
    assert mounted.pop("paceline-autoscaler") == {"paceline-signing-key-autoscaler"}
    assert set().union(*mounted.values()) == set()


def test_the_namespace_of_keys_is_made_and_kept_or_is_there_already() -> None:
    [made] = rendered().of("Namespace")
    assert (place(made)[1], made["metadata"]["annotations"]) == (KEYS, {"helm.sh/resource-policy": "keep"})
    theirs = template("--set", "tenantKeys.createNamespace=false", "--set", "tenantKeys.namespace=keys")
    assert theirs.of("Namespace") == []
    assert theirs.config("gateway")["key_namespace"] == "keys"
    assert "keys" in {place(role)[0] for role in theirs.of("Role")}


@pytest.mark.parametrize(("name", "says"), [(NAMESPACE, "name another one"), ("", "more than 63 characters")])
def test_the_release_s_own_namespace_and_one_too_long_are_refused_for_keys(name: str, says: str) -> None:
    own = NAMESPACE if name else "n" * 60
    done = helm("template", "paceline", str(CHART), "--namespace", own, "--set", f"tenantKeys.namespace={name}")
    assert done.returncode != 0
    assert says in done.stderr


@cases("form", FORMS)
def test_of_configmaps_the_autoscaler_writes_its_own_namespaces_alone_and_there_its_states_alone(form: str) -> None:
    writers = {
        (role["kind"], *place(role))
        for role in roles(rendered(form))
        for rule in role["rules"]
        if place(role)[1].endswith("paceline-autoscaler") and "configmaps" in rule["resources"]
    }
    assert writers == {("Role", NAMESPACE, "paceline-autoscaler")}
    policy = rendered(form).one("ValidatingAdmissionPolicy", f"paceline-autoscaler.{NAMESPACE}")["spec"]
    assert [rule["expression"] for rule in policy["validations"]] == [f'request.name.startsWith("{PREFIX}")']
    [condition] = policy["matchConditions"]
    assert f'"system:serviceaccount:{NAMESPACE}:paceline-autoscaler"' in condition["expression"]


def test_a_release_that_changes_nothing_of_the_cluster_asks_for_no_admission_policy() -> None:
    values = ("--set", "watchNamespaces={chat}", "--set", "crds.install=false")
    assert template(*values, "--set", "tenantKeys.createNamespace=false").of("ValidatingAdmissionPolicy") == []
    assert template(*values).of("Namespace") != []
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        assert [place(one)[1] for one in template(*values).of(kind)] == [f"paceline-autoscaler.{NAMESPACE}"]


def test_the_autoscaler_cannot_change_a_deployment_but_its_scale() -> None:
    rules = [rule for role in roles(rendered()) if "autoscaler" in place(role)[1] for rule in role["rules"]]
    changing = [rule for rule in rules if "apps" in rule["apiGroups"] and rule["verbs"] != ["get"]]
    assert [rule["resources"] for rule in changing] == [["deployments/scale"]]


@cases("form", FORMS)
def test_every_role_is_bound_to_the_account_of_its_part_alone(form: str) -> None:
    chart = rendered(form)
    accounts = {place(item) for item in chart.of("ServiceAccount")}
    bound = set()
    for binding in (*chart.of("RoleBinding"), *chart.of("ClusterRoleBinding")):
        [subject] = binding["subjects"]
        part = binding["metadata"]["name"].rpartition("paceline-")[2]
        assert (subject["namespace"], subject["name"]) == (NAMESPACE, f"paceline-{part}")
        assert (subject["namespace"], subject["name"]) in accounts
        bound.add((binding["roleRef"]["kind"], place(binding)[0], binding["roleRef"]["name"]))
    assert bound == {(role["kind"], *place(role)) for role in roles(chart)}


@cases("form", FORMS)
def test_no_right_is_given_twice(form: str) -> None:
    for role in roles(rendered(form)):
        given = [(name, verb) for rule in role["rules"] for name in names(rule) for verb in rule["verbs"]]
        assert sorted(given) == sorted(set(given))


def roles(chart: Rendered) -> list[Manifest]:
    """All of both kinds that processes get; people's are in test_people_rights."""
    return [role for role in (*chart.of("Role"), *chart.of("ClusterRole")) if place(role)[1] not in PEOPLE]


def names(rule: Manifest) -> Iterator[str]:
    """`group/resource[name]` of everything a rule is about."""
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            plain = f"{group}/{resource}" if group else resource
            yield from (f"{plain}[{name}]" for name in rule["resourceNames"]) if "resourceNames" in rule else (plain,)


def granted(chart: Rendered, kind: str, part: str, namespace: str = NAMESPACE) -> dict[str, str]:
    """What roles of this kind give to a part; by resource, verbs in the order of the chart."""
    ours = [role for role in chart.of(kind) if place(role)[1].endswith(f"paceline-{part}")]
    here = [role for role in ours if place(role)[0] in {"", namespace}]
    return {name: " ".join(rule["verbs"]) for role in here for rule in role["rules"] for name in names(rule)}
