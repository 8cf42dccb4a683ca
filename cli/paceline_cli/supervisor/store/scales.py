"""Desired replicas of each pool, guarded by versions as the scale subresource guards them."""

from collections.abc import Iterator

from paceline_core.errors import Conflict, InvalidInput, NotFound
from paceline_core.kube.cluster import Scale, ScaleTarget


class Scales:
    """One Scale per pool. Two writers cannot both win: each must name the version it read."""

    def __init__(self) -> None:
        self._scales: dict[ScaleTarget, Scale] = {}

    def __iter__(self) -> Iterator[ScaleTarget]:
        return iter(self._scales)

    def create(self, target: ScaleTarget, replicas: int) -> None:
        """A new pool."""
        self._scales[target] = Scale(replicas, "1")

    def get(self, target: ScaleTarget) -> Scale:
        """Desired replicas; raises NotFound."""
        try:
            return self._scales[target]
        except KeyError:
            raise NotFound(f"{target.service} has no pool {target.pool!r} on track {target.track!r}") from None

    def set(self, target: ScaleTarget, replicas: int, version: str) -> Scale:
        """Set desired replicas; raises Conflict when `version` is not the current one."""
        current = self.get(target)
        if replicas < 0:
            raise InvalidInput("replicas", "cannot be negative")
        if version != current.version:
            raise Conflict(
                f"the scale of {target.service}-{target.pool} is at version {current.version}, not {version}"
            )
        self._scales[target] = Scale(replicas, str(int(current.version) + 1))
        return self._scales[target]
