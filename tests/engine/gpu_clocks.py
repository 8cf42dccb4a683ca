"""A device that knows what is in order: each line has a vector clock, and who holds a mark has all before it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.engine.gpu_lines import OneLine

from paceline_workers.engine.backends.gpu.device import DeviceEvent


@dataclass(frozen=True)
class Clocks(OneLine):
    """It keeps the clocks of several; `marks` in the order in which they were made."""

    now: dict[str, dict[str, int]] = field(default_factory=lambda: {line: {} for line in ("compute", "out", "back")})
    marks: "list[Stamp]" = field(default_factory=list)

    def mark(self) -> DeviceEvent:
        line = self.line[-1]
        clock = self.now[line]
        clock[line] = clock.get(line, 0) + 1
        self.marks.append(Stamp(self, line, dict(clock)))
        return self.marks[-1]


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

    def seconds_to(self, later: DeviceEvent) -> float:
        return 0.0

    def before(self, other: "Stamp") -> bool:
        """All before this mark is done when what stands right before the other one begins."""
        return self.clock[self.line] <= other.clock.get(self.line, 0)
