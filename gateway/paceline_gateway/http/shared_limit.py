"""A bounded amount that clients share: bytes of bodies, requests being answered.

A holder may have at most SHARE times what is left free (a dynamic threshold, as switches use it for their packet
buffers): one holder alone gets 8/9 of all, two get 8/17 each, and whoever comes next finds some left. Nothing that is
held is ever taken away. `least` is what one may always have while it fits at all: one body.
"""

SHARE = 8


class SharedLimit:
    """Amounts by holder: a tenant's name, or an address where no key was shown yet."""

    def __init__(self, limit: int, least: int | None = None) -> None:
        self._limit = limit
        self._least = limit if least is None else least
        self._held: dict[str, int] = {}
        self.used = 0
        self.refused = 0
        """Times that something did not fit."""

    def take(self, holder: str, amount: int) -> bool:
        """Count so much in; False, and nothing counted, where it does not fit."""
        free = self._limit - self.used
        own = self._held.get(holder, 0) + amount
        if amount > free or (own > self._least and own > SHARE * free):
            self.refused += 1
            return False
        if amount:
            self._held[holder] = own
            self.used += amount
        return True

    def give(self, holder: str, amount: int) -> None:
        """Count it out."""
        if amount:
            self.used -= amount
            self._held[holder] -= amount
            if not self._held[holder]:
                del self._held[holder]

    def of(self, holder: str) -> int:
        """The amount that a holder has."""
        return self._held.get(holder, 0)
