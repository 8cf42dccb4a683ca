"""The children of one row of the registry, by their label values."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from paceline_core.registry.metrics import Metric

C = TypeVar("C")


class Children(Generic[C]):
    """`make` makes a new one."""

    def __init__(self, row: Metric, make: Callable[[], C]) -> None:
        self._row = row
        self._make = make
        self._found: dict[tuple[str, ...], C] = {}
        if not row.labels:
            self.labels()

    def labels(self, *values: str) -> C:
        """The child with these label values, in the row's order; made when it is new."""
        child = self._found.get(values)
        return self.replace(values) if child is None else child

    def replace(self, values: tuple[str, ...], make: Callable[[], C] | None = None) -> C:
        """A new child in the place of the one with these label values."""
        if len(values) != len(self._row.labels):
            raise ValueError(f"{self._row.name} has the labels {', '.join(self._row.labels)}")
        child = self._found[values] = (make or self._make)()
        return child

    def values(self) -> list[tuple[tuple[str, ...], C]]:
        """Every child with its label values; a copy, since a scrape may come from another thread."""
        return list(self._found.items())

    def children(self) -> list[tuple[dict[str, str], C]]:
        """Every child with its labels."""
        return [(dict(zip(self._row.labels, values, strict=True)), child) for values, child in self.values()]

    def remove_by_labels(self, labels: Mapping[str, str]) -> None:
        """Drop the children that have all of these."""
        wanted = [(self._row.labels.index(name), value) for name, value in labels.items()]
        for values in [v for v in self._found if all(v[at] == value for at, value in wanted)]:
            del self._found[values]
