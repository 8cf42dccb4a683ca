"""Which prefix keys this worker has, and what of that each reader of the load stream has been told.

It has what its engine has cached, and the beginnings of the prompts under way: they are being computed, or are held
until their request ends. So a gateway that hears of them sends the same beginning here, to wait for it, and not to
another worker to compute it again. A reader starts with none and gets differences, at most LINE keys of each kind a
line, until it knows all.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import islice

from paceline_core.wire import PrefixDelta

LINE = 512


class PrefixLog:
    """`keys` it has now; the engine bounds those that are cached, the open requests those under way."""

    def __init__(self) -> None:
        self.keys: dict[str, None] = {}
        self.version = 0
        self._cached: set[str] = set()
        self._coming: Counter[str] = Counter()

    def clear(self) -> None:
        """The engine is another one."""
        self.cached((), tuple(self._cached))

    def cached(self, added: Collection[str], evicted: Collection[str]) -> bool:
        """What has come to be cached and what is gone; whether that is anything."""
        self._cached.difference_update(evicted)
        self._cached.update(added)
        self.keys.update(dict.fromkeys(added))
        self._drop(evicted)
        return self._changed(bool(added or evicted))

    def prompt(self, keys: Collection[str], step: int) -> bool:
        """A prompt with these keys begins (1) or has ended (-1); whether it has any."""
        for key in keys:
            self._coming[key] += step
        self.keys.update(dict.fromkeys(keys))
        self._drop(keys)
        return self._changed(bool(keys))

    def _drop(self, keys: Iterable[str]) -> None:
        """Forget those that nothing speaks for."""
        for key in keys:
            if self._coming[key] <= 0:
                del self._coming[key]
                if key not in self._cached:
                    self.keys.pop(key, None)

    def _changed(self, changed: bool) -> bool:
        self.version += changed
        return changed


class PrefixReader:
    """One reader's knowledge of a board."""

    def __init__(self, board: PrefixLog) -> None:
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
