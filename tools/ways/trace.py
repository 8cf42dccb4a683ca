"""What the recorder left, read: the processes of a run, and which functions each called in a window of time."""

import bisect
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tools.ways.recorder import NONE

_CALL = np.dtype([("at", "<u8"), ("function", "<u4"), ("caller", "<u4"), ("thread", "<u4"), ("_", "<u4")])
_INNER = re.compile(r"(\.<locals>)?\.<(lambda|listcomp|setcomp|dictcomp|genexpr)>.*")


class Window(NamedTuple):
    """From and to, in nanoseconds of the monotonic clock, which all processes share."""

    begin: int
    end: int

    def longer(self, ns: int) -> "Window":
        """The window with a tail."""
        return Window(self.begin, self.end + ns)

    def slices(self, length: int, step: int) -> Iterator["Window"]:
        """Windows of one length within this one."""
        return (Window(at, at + length) for at in range(self.begin, self.end - length, step))


class Function(NamedTuple):
    """A function by its file (relative to the checkout) and its qualified name."""

    file: str
    name: str


Seen = dict[Function, dict[Function | None, int]]
"""Functions called in a window: by each caller (None: the event loop), when it called first, in nanoseconds."""


@dataclass(frozen=True)
class Process:
    """One process: its command line, its functions, its calls in the order of time."""

    command: str
    functions: list[Function]
    calls: npt.NDArray[np.void]

    def seen(self, window: Window) -> Seen:
        """What was called in the window, in the order of first calls."""
        found: Seen = {}
        for at, function, caller, *_ in self._calls(window).tolist():
            callers = found.setdefault(self.functions[function], {})
            callers.setdefault(None if caller == NONE else self.functions[caller], at)
        return found

    def counted(self, window: Window) -> Counter[Function]:
        """How often each function was called in the window."""
        found: Counter[Function] = Counter()
        for function, count in zip(*np.unique(self._calls(window)["function"], return_counts=True), strict=True):
            found[self.functions[function]] += int(count)
        return found

    def bursts(self, window: Window, gap: int) -> Iterator[Window]:
        """Stretches of calls in the window with no pause longer than `gap`."""
        times = self._calls(window)["at"].astype(np.int64)
        if not len(times):
            return
        edges = np.nonzero(np.diff(times) > gap)[0]
        begins = times[np.concatenate(([0], edges + 1))].tolist()
        ends = times[np.concatenate((edges, [len(times) - 1]))].tolist()
        yield from (Window(begin, end + 1) for begin, end in zip(begins, ends, strict=True))

    def _calls(self, window: Window) -> npt.NDArray[np.void]:
        begin, end = np.searchsorted(self.calls["at"], np.array(window, np.uint64))
        return self.calls[begin:end]


def read(folder: Path) -> list[Process]:
    """Every process of a run."""
    return [_process(path) for path in sorted(folder.glob("*.functions"), key=lambda path: int(path.stem))]


def named(processes: Iterable[Process], package: str) -> Process:
    """The one process that runs this package; a RuntimeError when it is not one."""
    found = [process for process in processes if f"-m\0{package}" in process.command]
    if len(found) != 1:
        raise RuntimeError(f"{len(found)} processes run {package}, not one")
    return found[0]


def _process(path: Path) -> Process:
    command, *lines = path.read_text().splitlines()
    functions = [_function(*line.split("\t")) for line in lines]
    calls = np.memmap(path.with_suffix(".calls"), _CALL, mode="r")
    count = bisect.bisect_left(range(len(calls)), True, key=lambda place: bool(calls["at"][place] == 0))
    return Process(command, functions, np.sort(np.array(calls[:count]), order="at", kind="stable"))


def _function(file: str, name: str) -> Function:
    """A lambda and a comprehension count as the function around them."""
    return Function(file, _INNER.sub("", name))
