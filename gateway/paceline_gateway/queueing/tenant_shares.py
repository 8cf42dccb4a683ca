"""Who holds how much of something bounded, and who holds more than his share: places in a queue, bytes that wait.

A tenant alone may take all of it. When others hold some too, each one's share is the limit by weight; who comes below
his share and finds everything taken displaces the newest of the one who holds most (pushout: no space lies idle, and
nobody keeps another out). The largest holder is followed by comparing only with whoever gains (quasi-pushout, Lin and
Shung 1991), and looked for among all only when that guess turns out to be below its share.
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
        """The most that a tenant may hold when everything is taken."""
        return limit * weight / (self._weight - self._weights.get(tenant, 0) + weight)

    def exceeds(self, tenant: str, weight: int, amount: int, limit: int) -> bool:
        """Whether so much more puts a tenant above his share while others hold some; his first is never too much."""
        own = self.of(tenant)
        return 0 < own < self.total and own + amount > self.share(tenant, weight, limit)

    def displaceable(self, tenant: str, weight: int, amount: int, limit: int) -> str | None:
        """Who must make room for so much more of this tenant: the one who holds most, if he is above his share.

        Nobody is displaced who holds no more than the newcomer would then.
        """
        least = (self.of(tenant) + amount) / weight
        if not self._above(self._heaviest, limit, tenant, weight):
            self._heaviest = max(self._amounts, key=self._relative, default="")
        holder = self._heaviest
        above = self._above(holder, limit, tenant, weight) and self._relative(holder) > least
        return holder if above else None

    def _above(self, holder: str, limit: int, tenant: str, weight: int) -> bool:
        """With the newcomer counted among those who share."""
        if holder == tenant or holder not in self._amounts:
            return False
        everybody = self._weight if tenant in self._weights else self._weight + weight
        return self._amounts[holder] > limit * self._weights[holder] / everybody

    def _relative(self, tenant: str) -> float:
        amount = self._amounts.get(tenant)
        return -1.0 if amount is None else amount / self._weights[tenant]
