"""Learned state of the autoscaler, by service; on Kubernetes a ConfigMap each, here in memory until the run ends."""

from collections.abc import Mapping

from paceline_core.errors import InvalidInput, NotFound
from paceline_core.kube.cluster import ObjectKey, ServiceRef

STATE_BYTES = 1 << 20


class InMemoryStateStore:
    """Data by service. A name holds what was stored last, of whichever uid."""

    def __init__(self) -> None:
        self._stored: dict[ObjectKey, tuple[str, dict[str, str]]] = {}

    def get(self, service: ServiceRef) -> Mapping[str, str]:
        """Return the data of a service of this uid; raises NotFound."""
        uid, data = self._stored.get(service.key, ("", None))
        if data is None or uid != service.uid:
            raise NotFound(f"nothing is stored for {service.key} of uid {service.uid!r}")
        return data

    def put(self, service: ServiceRef, data: Mapping[str, str]) -> None:
        """Store at most a MiB, as the API server bounds a ConfigMap."""
        if sum(len(name) + len(value.encode()) for name, value in data.items()) > STATE_BYTES:
            raise InvalidInput("data", f"a ConfigMap holds at most {STATE_BYTES} bytes")
        self._stored[service.key] = (service.uid, dict(data))

    def list(self) -> tuple[ServiceRef, ...]:
        """Services with stored data."""
        return tuple(ServiceRef(key, uid) for key, (uid, _) in self._stored.items())

    def delete(self, service: ServiceRef) -> None:
        """Remove the data of this uid, if there is any."""
        if self._stored.get(service.key, ("", {}))[0] == service.uid:
            self._stored.pop(service.key, None)
