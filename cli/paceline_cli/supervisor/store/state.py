"""The parts of the store, and what only makes sense across them."""

from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from paceline_cli.supervisor.store.feed import LIMIT, Topics, WatchFeed
from paceline_cli.supervisor.store.leases import Leases
from paceline_cli.supervisor.store.objects import Objects
from paceline_cli.supervisor.store.scales import Scales
from paceline_cli.supervisor.store.states import InMemoryStateStore
from paceline_core.clock import rfc3339
from paceline_core.kube.cluster import ObjectKey, ServiceEndpoints
from paceline_core.kube.local import endpoints_json

ENDPOINTS = "endpoints"
EVENTS_KEPT = 256


class ObjectStore:
    """Everything the socket answers from."""

    def __init__(self, feed_limit: int = LIMIT) -> None:
        self.topics = Topics(feed_limit)
        self.objects = Objects(self.topics)
        self.scales = Scales()
        self.leases = Leases()
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS_KEPT)
        self.states = InMemoryStateStore()
        self._endpoints: dict[ObjectKey, ServiceEndpoints] = {}

    def watch(self, topic: str) -> tuple[dict[str, Any], WatchFeed]:
        """The first line of a watch, and the feed of what follows; raises NotFound for an unknown kind."""
        items = self._endpoint_items() if topic == ENDPOINTS else self.objects.list(topic)
        return {"type": "LISTED", "items": items}, self.topics.open(topic)

    def put_endpoints(self, item: ServiceEndpoints) -> None:
        """Publish the workers of a service, if they differ from what was published."""
        if self._endpoints.get(item.service) != item:
            self._endpoints[item.service] = item
            self.topics.publish(ENDPOINTS, {"type": "CHANGED", "item": endpoints_json(item)})

    def add_event(self, event: Mapping[str, Any], moment: datetime) -> None:
        """Keep one of the last events."""
        self.events.append({"time": rfc3339(moment), **event})

    def _endpoint_items(self) -> list[dict[str, Any]]:
        return [endpoints_json(item) for item in self._endpoints.values()]
