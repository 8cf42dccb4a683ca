"""The Cluster seam: what components may ask of whatever plays the API server; no component knows which it is."""

from paceline_core.kube.cluster import (
    Cluster,
    Deleted,
    Endpoint,
    Event,
    Listed,
    Namespaces,
    ObjectKey,
    Scale,
    ScaleTarget,
    ServiceEndpoints,
    ServiceRef,
    Upserted,
    WatchLost,
    key_namespace_of,
)
from paceline_core.kube.local import LocalCluster

__all__ = [
    "Cluster",
    "Deleted",
    "Endpoint",
    "Event",
    "Listed",
    "LocalCluster",
    "Namespaces",
    "ObjectKey",
    "Scale",
    "ScaleTarget",
    "ServiceEndpoints",
    "ServiceRef",
    "Upserted",
    "WatchLost",
    "key_namespace_of",
]
