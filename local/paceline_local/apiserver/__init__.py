"""The state of one run's API server: objects, endpoints, scales, ConfigMaps, leases, the last events.

Pure state: no sockets, no clock. It lives as long as the run; only tenants' keys outlive it, in their own file.
"""

from paceline_local.apiserver.store import ENDPOINTS, KINDS, ObjectStore, key_of
from paceline_local.apiserver.watch_feed import WatchFeed

__all__ = ["ENDPOINTS", "KINDS", "ObjectStore", "WatchFeed", "key_of"]
