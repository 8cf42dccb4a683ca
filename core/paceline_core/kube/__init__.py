"""The Cluster seam: the calls that components make to the API server or its substitute, without knowing which it is."""

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
    StartStage,
    Upserted,
    WatchLost,
    key_namespace_of,
)

__all__ = [
    "Cluster",
    "Deleted",
    "Endpoint",
    "Event",
    "Listed",
    "Namespaces",
    "ObjectKey",
    "Scale",
    "ScaleTarget",
    "ServiceEndpoints",
    "ServiceRef",
    "StartStage",
    "Upserted",
    "WatchLost",
    "key_namespace_of",
]
