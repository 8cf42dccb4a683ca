"""A device that knows what is in order: each line has a vector clock, and who holds a mark has all before it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from tests.engine.gpu_lines import WHERE

from paceline_workers.engine.gpu.device import Host, Mark, Way


@dataclass(frozen=True)
class Clocks(Host):
    """One line for all, which keeps the clocks of several; `marks` in the order in which they were made."""

    where: torch.device = WHERE
    line: list[str] = field(default_factory=lambda: ["compute"])
    now: dict[str, dict[str, int]] = field(default_factory=lambda: {line: {} for line in ("compute", "out", "back")})
    marks: "list[Stamp]" = field(default_factory=list)

    def mark(self) -> Mark:
        line = self.line[-1]
        clock = self.now[line]
        clock[line] = clock.get(line, 0) + 1
        self.marks.append(Stamp(self, line, dict(clock)))
        return self.marks[-1]

    @contextmanager
    def beside(self, way: Way) -> Iterator[None]:
        self.line.append(way)
        yield
        self.line.pop()


@dataclass(frozen=True, eq=False)
class Stamp:
    """A mark that is never over by itself: what was done when it was made."""

    clocks: Clocks
    line: str
    clock: Mapping[str, int]

    def over(self) -> bool:
        return False

    def wait(self) -> None:
        raise AssertionError("nothing here is waited for on the host")

    def hold(self) -> None:
        mine = self.clocks.now[self.clocks.line[-1]]
        for line, count in self.clock.items():
            mine[line] = max(mine.get(line, 0), count)

    def seconds_to(self, later: Mark) -> float:
        return 0.0

    def before(self, other: "Stamp") -> bool:
        """All before this mark is done when what stands right before the other one begins."""
        return self.clock[self.line] <= other.clock.get(self.line, 0)
