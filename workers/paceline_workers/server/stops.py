"""Stop strings in a growing text: nothing that could still become one is let out. Pure.

The text ends where the first stop string is complete (of several complete at the same character, the longest wins), so
the result depends on the text alone and not on how it was cut into pieces.
"""

from collections.abc import Sequence


class StopMatcher:
    """Feed pieces of text; take out what is before any stop string, or with `included` what ends with it."""

    def __init__(self, stops: Sequence[str], *, included: bool = False) -> None:
        self._stops = tuple(stops)
        self._included = included
        self._held = ""
        self.matched = ""

    def feed(self, piece: str) -> str:
        """What is certain to be told; after a match (`matched` names it) always nothing."""
        if self.matched:
            return ""
        self._held += piece
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            after, before, self.matched = min(found)
            return self._release(after if self._included else before)
        return self._release(len(self._held) - self._could_begin())

    def flush(self) -> str:
        """The text is over: what was held back is no stop string."""
        return "" if self.matched else self._release(len(self._held))

    def _release(self, end: int) -> str:
        out, self._held = self._held[:end], self._held[end:]
        return out

    def _could_begin(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        return max((_overlap(self._held, stop) for stop in self._stops), default=0)


def _overlap(text: str, stop: str) -> int:
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if stop.startswith(text[-size:])), 0)
