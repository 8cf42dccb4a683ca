"""How long a process that ended stays down: half a second, doubling to thirty, forgotten after a healthy minute."""

from dataclasses import dataclass, replace

FIRST_S = 0.5
LIMIT_S = 30.0
HEALTHY_S = 60.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exits in a row, and how long to stay down because of the last one (seconds)."""

    exits: int = 0
    delay_s: float = 0.0

    def after_exit(self, lived_s: float) -> "Backoff":
        """The next state when a process has ended after `lived_s` seconds."""
        earlier = 0 if lived_s >= HEALTHY_S else self.exits
        return replace(self, exits=earlier + 1, delay_s=min(LIMIT_S, FIRST_S * 2.0 ** min(earlier, 16)))
