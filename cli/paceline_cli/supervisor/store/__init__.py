"""What the API server of one run remembers: objects, endpoints, scales, ConfigMaps, leases, the last events.

Pure state: no sockets, no clock. It lives as long as the run; tenants' keys alone outlive it, in their own file.
"""

from paceline_cli.supervisor.store.feed import WatchFeed
from paceline_cli.supervisor.store.objects import KINDS, key_of
from paceline_cli.supervisor.store.state import ENDPOINTS, ObjectStore

__all__ = ["ENDPOINTS", "KINDS", "ObjectStore", "WatchFeed", "key_of"]
