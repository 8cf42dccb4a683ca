"""Tenants' shares of something bounded: places in a queue, bytes that wait.

One tenant alone may take all of it. When several hold some, each one's share is the limit divided by weight. A tenant
below its share that finds no room displaces the newest request of the tenant that holds most (pushout: no space is
unused, and no tenant keeps another out). The largest holder is tracked by comparing it only with tenants whose amount
grows (quasi-pushout, Lin and Shung 1991); all tenants are searched only when that guess is below its share.
"""

from collections.abc import ItemsView


class TenantShares:
    """Amounts by tenant."""

    def __init__(self) -> None:
        self._amounts: dict[str, int] = {}
        self._weights: dict[str, int] = {}
        self._weight = 0
        self._heaviest = ""
        self.total = 0

    def __len__(self) -> int:
        return len(self._amounts)

    def of(self, tenant: str) -> int:
        return self._amounts.get(tenant, 0)

    def items(self) -> ItemsView[str, int]:
        return self._amounts.items()

    def add(self, tenant: str, weight: int, amount: int) -> None:
        if not amount:
            return
        if tenant not in self._amounts:
            self._amounts[tenant], self._weights[tenant] = 0, weight
            self._weight += weight
        self._amounts[tenant] += amount
        self.total += amount
        if self._relative(tenant) >= self._relative(self._heaviest):
            self._heaviest = tenant

    def remove(self, tenant: str, amount: int) -> None:
        if not amount:
            return
        self.total -= amount
        self._amounts[tenant] -= amount
        if not self._amounts[tenant]:
            del self._amounts[tenant]
            self._weight -= self._weights.pop(tenant)

    def share(self, tenant: str, weight: int, limit: int) -> float:
        """The most that a tenant may hold when there is no room left."""
        return limit * weight / (self._weight - self._weights.get(tenant, 0) + weight)

    def exceeds(self, tenant: str, weight: int, amount: int, limit: int) -> bool:
        """Whether `amount` more puts a tenant above its share while others hold some; its first is never too much."""
        own = self.of(tenant)
        return 0 < own < self.total and own + amount > self.share(tenant, weight, limit)

    def displaceable(self, tenant: str, weight: int, amount: int, limit: int) -> str | None:
        """The tenant that must make room for `amount` more of this one: the largest holder, if above its share.

        A tenant is not displaced if it holds no more than the newcomer would then.
        """
        least = (self.of(tenant) + amount) / weight
        if not self._above(self._heaviest, limit, tenant, weight):
            self._heaviest = max(self._amounts, key=self._relative, default="")
        holder = self._heaviest
        above = self._above(holder, limit, tenant, weight) and self._relative(holder) > least
        return holder if above else None

    def _above(self, holder: str, limit: int, tenant: str, weight: int) -> bool:
        """Whether the holder is above its share, with the newcomer counted among the sharing tenants."""
        if holder == tenant or holder not in self._amounts:
            return False
        everybody = self._weight if tenant in self._weights else self._weight + weight
        return self._amounts[holder] > limit * self._weights[holder] / everybody

    def _relative(self, tenant: str) -> float:
        amount = self._amounts.get(tenant)
        return -1.0 if amount is None else amount / self._weights[tenant]
