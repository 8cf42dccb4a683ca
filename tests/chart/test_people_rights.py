"""What people may do with the four kinds, by the cluster's own roles; nothing is granted to processes by it."""

import pytest
from tests.chart.rendering import FORMS, Manifest, place, rendered
from tests.every import cases

pytestmark = pytest.mark.real
LABEL = "rbac.authorization.k8s.io/aggregate-to-"
READ, WRITE = {"get", "list", "watch"}, {"create", "update", "patch", "delete"}
KINDS = {"inferenceservices", "inferenceroutes", "tenants", "acceleratorprofiles"}
ROLES = {
    "paceline-view": ({"view"}, KINDS, READ),
    "paceline-edit": ({"edit", "admin"}, {"inferenceservices", "inferenceroutes"}, WRITE),
    "paceline-admin": ({"admin"}, {"tenants"}, WRITE),
}


def people(form: str) -> dict[str, Manifest]:
    found = rendered(form).of("ClusterRole")
    return {place(role)[1]: role for role in found if any(LABEL in name for name in role["metadata"]["labels"])}


@pytest.mark.parametrize("name", ROLES)
def test_the_clusters_own_roles_are_given_what_the_table_says(name: str) -> None:
    into, resources, verbs = ROLES[name]
    role = people("as it is")[name]
    assert {label.removeprefix(LABEL) for label in role["metadata"]["labels"] if LABEL in label} == into
    [rule] = role["rules"]
    assert (rule["apiGroups"], set(rule["resources"]), set(rule["verbs"])) == (["paceline.dev"], resources, verbs)


@cases("form", FORMS)
def test_one_release_has_them_and_it_is_the_one_that_has_the_crds_for_the_whole_cluster(form: str) -> None:
    chart = rendered(form)
    whole = chart.of("CustomResourceDefinition") and form != "in two namespaces"
    assert people(form).keys() == (ROLES.keys() if whole else set())


@cases("form", FORMS)
def test_they_are_bound_to_nobody(form: str) -> None:
    chart = rendered(form)
    bound = {item["roleRef"]["name"] for item in (*chart.of("RoleBinding"), *chart.of("ClusterRoleBinding"))}
    assert not bound & ROLES.keys()
