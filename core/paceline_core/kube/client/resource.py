"""The kinds that paceline reads or writes, and their API paths."""

from collections.abc import Mapping
from dataclasses import dataclass

from paceline_core.kube.cluster import ObjectKey


@dataclass(frozen=True, slots=True)
class Resource:
    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def collection(self, namespace: str = "") -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{root}/namespaces/{namespace}/{self.plural}" if namespace else f"{root}/{self.plural}"

    def path(self, key: ObjectKey, subresource: str = "") -> str:
        place = f"{self.collection(key.namespace if self.namespaced else '')}/{key.name}"
        return f"{place}/{subresource}" if subresource else place


def _own(kind: str, plural: str, *, namespaced: bool = True) -> Resource:
    return Resource(kind, "paceline.dev", "v1alpha1", plural, namespaced)


RESOURCES: Mapping[str, Resource] = {
    resource.kind: resource
    for resource in (
        _own("InferenceService", "inferenceservices"),
        _own("Tenant", "tenants"),
        _own("InferenceRoute", "inferenceroutes"),
        _own("AcceleratorProfile", "acceleratorprofiles", namespaced=False),
        Resource("Deployment", "apps", "v1", "deployments"),
        Resource("HorizontalPodAutoscaler", "autoscaling", "v2", "horizontalpodautoscalers"),
        Resource("Service", "", "v1", "services"),
        Resource("Namespace", "", "v1", "namespaces", namespaced=False),
        Resource("ConfigMap", "", "v1", "configmaps"),
        Resource("Secret", "", "v1", "secrets"),
        Resource("ServiceAccount", "", "v1", "serviceaccounts"),
        Resource("Pod", "", "v1", "pods"),
        Resource("Event", "", "v1", "events"),
        Resource("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets"),
        Resource("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies"),
        Resource("EndpointSlice", "discovery.k8s.io", "v1", "endpointslices"),
        Resource("Lease", "coordination.k8s.io", "v1", "leases"),
    )
}
"""By kind."""
