"""A way as a reader walks it, and its figures.

A *stop* is a function of the product that the way calls. Stops stand in the order of their first calls, process by
process, each once. Walking them, a *change* is a step to a stop in another file, and a *return* is a change to a file
that was entered and left before; so changes = files - 1 + returns.

Two shorter walks are counted by the same rule. An *entry* is a stop whose first call comes from another file or from
the event loop: the walk over entries leaves out what a file calls within itself, so coming back from a callee is no
return. A *step* is an entry from which the way goes on to another file: the walk over steps leaves out leaves as well
(counters, clocks, accessors, small helpers), which a reader looks up in passing.

Observations of one way differ a little, because chunks arrive and timers fire at other moments. So the order of a
process is that of the majority: a stop stands before another if it came first in more of the observations that have
both. A call from a function that ran in the window but is not on the way counts only where there is no other.
"""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from tools.ways.trace import Function, Seen


@dataclass(frozen=True)
class Stop:
    """One function on the way.

    `caller` is the file that calls it first (empty: the event loop). From one that `leads`, the way goes on to another
    file.
    """

    function: Function
    caller: str
    leads: bool = False

    @property
    def file(self) -> str:
        """Where it is read."""
        return self.function.file

    @property
    def entry(self) -> bool:
        """Whether one comes to it from another file."""
        return self.caller != self.file

    @property
    def step(self) -> bool:
        """Whether one comes to it from another file, and goes on to another."""
        return self.entry and self.leads


@dataclass(frozen=True)
class Return:
    """A change to a file left before: from which file, and to which function."""

    origin: str
    function: Function


@dataclass(frozen=True)
class Figures:
    """What is counted of a walk."""

    stops: int
    files: int
    changes: int
    returns: int


def order(observations: Sequence[Seen], way: Set[Function]) -> list[Stop]:
    """The stops of one process in the majority's order, from observations in each of which most of them were called."""
    functions = sorted(way)
    if not functions:
        return []
    firsts = [first for seen in observations if (first := _firsts(seen, way))]
    at = np.array([[first[f][0] if f in first else np.nan for f in functions] for first in firsts])
    before = sum(np.sign(np.nan_to_num(row[None, :] - row[:, None])) for row in at)
    wins = np.sum(np.sign(before), axis=1)
    mean = np.nanmean(at - np.nanmin(at, axis=1, keepdims=True), axis=0)
    ranked = sorted(range(len(functions)), key=lambda place: (-wins[place], mean[place]))
    leading = _leading(observations, way)
    return [Stop(f, _caller(firsts, f), f in leading) for f in (functions[place] for place in ranked)]


def joined(walks: Iterable[Sequence[Stop]]) -> list[Stop]:
    """The walks one after the other; a function that was read before is no stop again."""
    found: dict[Function, Stop] = {}
    for walk in walks:
        for stop in walk:
            found.setdefault(stop.function, stop)
    return list(found.values())


def returns(walk: Iterable[Stop]) -> list[Return]:
    """All returns of a walk, in order."""
    found: list[Return] = []
    entered: set[str] = set()
    here = ""
    for stop in walk:
        if stop.file != here:
            if stop.file in entered:
                found.append(Return(here, stop.function))
            entered.add(stop.file)
            here = stop.file
    return found


def figures(walk: Sequence[Stop]) -> Figures:
    """Count a walk."""
    files, back = len({stop.file for stop in walk}), len(returns(walk))
    return Figures(len(walk), files, max(files - 1, 0) + back, back)


def _firsts(seen: Seen, way: Set[Function]) -> dict[Function, tuple[int, str]]:
    """When each function on the way was called first, and from which file."""
    found = {}
    for function in way & seen.keys():
        calls = seen[function]
        usual = {by: at for by, at in calls.items() if by in way or by not in seen} or calls
        found[function] = min((at, by.file if by else "") for by, at in usual.items())
    return found


def _leading(observations: Sequence[Seen], way: Set[Function]) -> set[Function]:
    """The functions that call one in another file, themselves or through their own file, in most observations."""
    counts = Counter((by, f) for seen in observations for f in way & seen.keys() for by in seen[f] if by is not None)
    edges = [edge for edge, count in counts.items() if 2 * count > len(observations)]
    found: set[Function] = set()
    while more := {by for by, f in edges if by.file != f.file or f in found} - found:
        found |= more
    return found


def _caller(firsts: Iterable[dict[Function, tuple[int, str]]], function: Function) -> str:
    callers = Counter(first[function][1] for first in firsts if function in first)
    return min(callers, key=lambda caller: (-callers[caller], caller))
