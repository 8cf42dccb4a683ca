"""All kinds of attacks and their cases, and the list of them as it is printed."""

from collections.abc import Iterator
from functools import cache

from benchmarks.attacks.case import Kind
from benchmarks.attacks.kinds import asked, bodies, framing, grammars, inside, sockets


@cache
def kinds() -> tuple[Kind, ...]:
    """Every kind with its cases, in the order in which they run."""
    return tuple(kind for part in (framing, bodies, sockets, asked, grammars, inside) for kind in part.kinds())


def lines() -> Iterator[str]:
    """A line a kind with the count and the names of its cases, and the sum."""
    for kind in kinds():
        names = ", ".join(case.name for case in kind.cases)
        yield f"{len(kind.cases):3} {kind.name} ({kind.aim}): {names}"
    yield f"{sum(len(kind.cases) for kind in kinds())} cases of {len(kinds())} kinds"
