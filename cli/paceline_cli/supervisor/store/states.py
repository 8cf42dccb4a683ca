"""What the autoscaler stores for services, as one ConfigMap each holds it on Kubernetes; gone with the run."""

from collections.abc import Mapping

from paceline_core.errors import InvalidInput, NotFound
from paceline_core.kube.cluster import Key, ServiceRef

STATE_BYTES = 1 << 20


class States:
    """Data by service. A name holds what was stored last, of whichever uid."""

    def __init__(self) -> None:
        self._stored: dict[Key, tuple[str, dict[str, str]]] = {}

    def get(self, service: ServiceRef) -> Mapping[str, str]:
        """What is stored for a service of this uid; raises NotFound."""
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
        """The services that something is stored for."""
        return tuple(ServiceRef(key, uid) for key, (uid, _) in self._stored.items())

    def delete(self, service: ServiceRef) -> None:
        """Remove what this uid stored; nothing happens when there is nothing."""
        if self._stored.get(service.key, ("", {}))[0] == service.uid:
            self._stored.pop(service.key, None)
