"""Splits an ordered list of page copies into groups whose copies may be made all at once.

Order matters: a later copy may overwrite what an earlier one has read, or read what an earlier one has written. A copy
goes into the first group after all copies that it depends on: those that write its source, write its target or read its
target. So within a group no page is written that another copy reads or writes.
"""

from collections.abc import Iterable


def independent_batches(pairs: Iterable[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Groups of (source, target), in order; within a group in the list's order. Leaves out a page copied to itself.

    A number names a location, not only a page of the device: host slots may be numbered after the pages, and one list
    may hold copies out, in and across.
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
