"""Who set a Deployment's replicas last, read from what a real server notes about its writers."""

import asyncio

import pytest
from tests.cluster.apiclients import DEPLOYMENT, OPERATOR, SCALER, deployment, version_of
from tests.cluster.harness.workbench import Workbench

from paceline_core.kube import Namespaces, ObjectKey, ScaleTarget
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.cluster import Manifest
from paceline_core.kube.kubernetes import KubernetesCluster
from paceline_core.kube.scale_writers import HPA_MANAGER

pytestmark = pytest.mark.real
HPA = RESOURCES["HorizontalPodAutoscaler"]


def autoscaler(name: str, target: str) -> Manifest:
    """An HPA that never gets the metrics it asks for, and so scales nothing between its bounds."""
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    spec = {
        "scaleTargetRef": {"apiVersion": DEPLOYMENT.api_version, "kind": "Deployment", "name": target},
        "minReplicas": 1,
        "maxReplicas": 9,
        "metrics": [{"type": "Resource", "resource": cpu}],
    }
    return {"apiVersion": HPA.api_version, "kind": HPA.kind, "metadata": {"name": name}, "spec": spec}


async def test_the_last_writer_of_the_replicas_is_known_by_name(bench: Workbench, api: KubeClient, place: str) -> None:
    cluster, key = KubernetesCluster(api, Namespaces(place, (place,))), ObjectKey(place, "chat-main")
    target = ScaleTarget(ObjectKey(place, "chat"), "main")
    await api.apply_new(DEPLOYMENT, deployment(place, "chat-main", 1), OPERATOR)
    assert await cluster.scale_writer(target) == OPERATOR
    await cluster.set_scale(target, 2, (await cluster.get_scale(target)).version)
    assert await cluster.scale_writer(target) == SCALER
    await asyncio.to_thread(bench.kubectl.within(place), "scale", "deployment/chat-main", "--replicas=3")
    assert await cluster.scale_writer(target) == "kubectl"
    await version_of(api, key)
    found = await api.get(DEPLOYMENT, key, "scale")
    await api.replace(DEPLOYMENT, key, {**found, "spec": {"replicas": 2}}, "scale", HPA_MANAGER)
    assert await cluster.scale_writer(target) == "a HorizontalPodAutoscaler"
    for name, deployed in (("other", "chat-spot"), ("web", "chat-main")):
        await api.create(HPA, place, autoscaler(name, deployed))
    assert await cluster.scale_writer(target) == "HorizontalPodAutoscaler web"
