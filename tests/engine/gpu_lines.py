"""A device that tells who waits for whom."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from tests.kernels.conftest import CUDA

from paceline_workers.engine.gpu.device import Host, Mark, Way

WHERE = torch.device("cuda" if CUDA else "cpu")


@dataclass(frozen=True)
class Lines(Host):
    """One line for all, which writes down where one of several would have waited for which mark."""

    where: torch.device = WHERE
    log: list[str] = field(default_factory=list)
    line: list[str] = field(default_factory=lambda: ["compute"])
    marks: list[Mark] = field(default_factory=list)

    def mark(self) -> Mark:
        self.marks.append(Noted(self, f"{self.line[-1]}{len(self.marks) + 1}"))
        return self.marks[-1]

    @contextmanager
    def beside(self, way: Way) -> Iterator[None]:
        self.line.append(way)
        yield
        self.line.pop()


@dataclass(frozen=True)
class Noted:
    """One that is never over by itself."""

    lines: Lines
    name: str

    def over(self) -> bool:
        return False

    def wait(self) -> None:
        self.lines.log.append(f"host waits for {self.name}")

    def hold(self) -> None:
        self.lines.log.append(f"{self.lines.line[-1]} waits for {self.name}")

    def seconds_to(self, later: Mark) -> float:
        return 0.0
