"""Devices whose several lines are one: what they have in common, and one that tells who waits for whom."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from tests.kernels.conftest import CUDA

from paceline_workers.engine.backends.gpu.device import DeviceEvent, HostDevice, Way

WHERE = torch.device("cuda" if CUDA else "cpu")


@dataclass(frozen=True)
class OneLine(HostDevice):
    """One line for all, which knows the one of several that is current: the last of `line`."""

    where: torch.device = WHERE
    line: list[str] = field(default_factory=lambda: ["compute"])

    @contextmanager
    def beside(self, way: Way) -> Iterator[None]:
        self.line.append(way)
        yield
        self.line.pop()


@dataclass(frozen=True)
class Lines(OneLine):
    """It writes down where one of several would have waited for which mark."""

    log: list[str] = field(default_factory=list)
    marks: list[DeviceEvent] = field(default_factory=list)

    def mark(self) -> DeviceEvent:
        self.marks.append(Noted(self, f"{self.line[-1]}{len(self.marks) + 1}"))
        return self.marks[-1]


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

    def seconds_to(self, later: DeviceEvent) -> float:
        return 0.0
