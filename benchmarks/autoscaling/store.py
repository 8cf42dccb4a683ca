"""One JSON file a cell: how policies were tuned on it, its exact runs and fluid rows, with digests of their decisions.

`benchmarks/results/autoscaling/<cell>.json`. A row whose digest is not that of today's decisions is void: it is kept
until it is run again, and no table counts it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS, machine, versions

FOLDER = RESULTS / "autoscaling"


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Replace a file of results at once; it names the machine and the versions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"v": 1, "machine": machine(), "versions": versions(), **data}
    new = path.with_suffix(".json.new")
    new.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    new.replace(path)


@dataclass(frozen=True, slots=True)
class Tuned:
    """A policy's setting: the cheapest that held exactly of the four that were cheapest in the fluid model.

    `label` is empty if none held: the policy is not offered. `tried`: attainment and GPU-hours of the exact trials.
    """

    label: str
    digest: str
    tried: dict[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunRow:
    """An exact run of a scored window."""

    policy: str
    label: str
    digest: str
    window: str
    seed: int
    result: dict[str, Any]

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.policy, self.label, self.window, self.seed


@dataclass(frozen=True, slots=True)
class FluidRow:
    """A setting in the fluid model, over all scored windows: the lowest attainment, the sum of GPU-hours."""

    variant: str
    policy: str
    label: str
    digest: str
    attainment: float
    gpu_hours: float


@dataclass(slots=True)
class CellFile:
    """What is known of a cell; `save` replaces the file at once."""

    name: str
    tuned: dict[str, Tuned] = field(default_factory=dict)
    runs: dict[tuple[str, str, str, int], RunRow] = field(default_factory=dict)
    fluid: list[FluidRow] = field(default_factory=list)

    @classmethod
    def load(cls, name: str) -> "CellFile":
        """As last saved; empty if it never was."""
        path = FOLDER / f"{name}.json"
        if not path.exists():
            return cls(name)
        data = json.loads(path.read_text())
        tuned = {
            policy: Tuned(row["label"], row["digest"], {label: (a, b) for label, (a, b) in row["tried"].items()})
            for policy, row in data["tuned"].items()
        }
        rows = [RunRow(**row) for row in data["runs"]]
        return cls(name, tuned, {row.key: row for row in rows}, [FluidRow(**row) for row in data.get("fluid", [])])

    def save(self) -> None:
        write(
            FOLDER / f"{self.name}.json",
            {
                "cell": self.name,
                "tuned": {policy: asdict(row) for policy, row in sorted(self.tuned.items())},
                "runs": [asdict(self.runs[key]) for key in sorted(self.runs)],
                "fluid": [asdict(row) for row in self.fluid],
            },
        )

    def add(self, row: RunRow) -> None:
        self.runs[row.key] = row
        self.save()

    def result(self, policy: str, window: str, seed: int) -> dict[str, Any]:
        """A run's, whatever the setting; raises StopIteration without one."""
        return next(
            row.result for row in self.runs.values() if (row.policy, row.window, row.seed) == (policy, window, seed)
        )

    def has(self, key: tuple[str, str, str, int], digest: str) -> bool:
        """Whether this run is there, with the same decisions."""
        found = self.runs.get(key)
        return found is not None and found.digest == digest
