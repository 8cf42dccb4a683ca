"""The Cluster seam: what components may ask of whatever plays the API server; no component knows which it is."""

from paceline_core.kube.cluster import (
    Changed,
    Cluster,
    Endpoint,
    Event,
    Gone,
    Key,
    Listed,
    Lost,
    Namespaces,
    Scale,
    ScaleTarget,
    ServiceEndpoints,
    ServiceRef,
    key_namespace_of,
)
from paceline_core.kube.local import LocalCluster

__all__ = [
    "Changed",
    "Cluster",
    "Endpoint",
    "Event",
    "Gone",
    "Key",
    "Listed",
    "LocalCluster",
    "Lost",
    "Namespaces",
    "Scale",
    "ScaleTarget",
    "ServiceEndpoints",
    "ServiceRef",
    "key_namespace_of",
]
