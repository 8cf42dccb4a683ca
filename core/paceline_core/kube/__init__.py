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
    "Upserted",
    "WatchLost",
    "key_namespace_of",
]
