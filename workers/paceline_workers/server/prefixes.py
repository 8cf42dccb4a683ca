"""Which prefix keys the engine has cached, and what of that each reader of the load stream has been told.

A reader starts with none and gets differences, at most LINE keys of each kind a line, until it knows all.
"""

from collections.abc import Collection
from itertools import islice

from paceline_core.wire import PrefixDelta
from paceline_workers.messages import Heartbeat

LINE = 512


class PrefixBoard:
    """The keys that are cached now; the engine bounds their number."""

    def __init__(self) -> None:
        self.keys: dict[str, None] = {}
        self.version = 0

    def clear(self) -> None:
        """The engine is another one."""
        self.keys.clear()
        self.version += 1

    def beat(self, beat: Heartbeat) -> bool:
        """Take the changes in; whether there are any."""
        for key in beat.prefix_evicted:
            self.keys.pop(key, None)
        self.keys.update(dict.fromkeys(beat.prefix_added))
        changed = bool(beat.prefix_added or beat.prefix_evicted)
        self.version += changed
        return changed


class PrefixReader:
    """One reader's knowledge of a board."""

    def __init__(self, board: PrefixBoard) -> None:
        self._board = board
        self._told: dict[str, None] = {}
        self._version = -1

    @property
    def behind(self) -> bool:
        """There is more to tell."""
        return self._version != self._board.version

    def delta(self) -> PrefixDelta:
        """What it has to be told next; it counts as told."""
        if not self.behind:
            return PrefixDelta()
        added, evicted = _missing(self._board.keys, self._told), _missing(self._told, self._board.keys)
        for key in evicted:
            del self._told[key]
        self._told.update(dict.fromkeys(added))
        if len(added) < LINE and len(evicted) < LINE:
            self._version = self._board.version
        return PrefixDelta(added=added, evicted=evicted)


def _missing(keys: Collection[str], known: Collection[str]) -> tuple[str, ...]:
    return tuple(islice((key for key in keys if key not in known), LINE))
