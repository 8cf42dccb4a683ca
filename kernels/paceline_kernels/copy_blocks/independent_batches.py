"""Splits an ordered list of page copies into groups whose copies may be made all at once.

What a list means is its order: a later copy may overwrite what an earlier one has read, or read what an earlier one
wrote. A copy goes into the first group behind all those it has to wait for: who wrote its source, who wrote its target,
and who read its target. So within a group no page is written that another copy reads or writes.
"""

from collections.abc import Iterable


def independent_batches(pairs: Iterable[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Groups of (source, target), in order; within a group in the list's. A page copied to itself is left out.

    A number names a place, not only a page of the device: number host slots behind the pages, and one list may hold
    copies out, in and across.
    """
    groups: list[list[tuple[int, int]]] = []
    written: dict[int, int] = {}
    used: dict[int, int] = {}
    for source, target in pairs:
        if source == target:
            continue
        wave = max(written.get(source, -1), used.get(target, -1)) + 1
        if wave == len(groups):
            groups.append([])
        groups[wave].append((source, target))
        written[target] = wave
        used[source] = max(wave, used.get(source, -1))
        used[target] = wave
    return groups
