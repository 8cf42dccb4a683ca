"""An API server with one tenant's status, and gateways whose writes, answers and watches may come late or never."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from paceline_core.objects.tenant import MonthlyUsage
from paceline_gateway.usage.ledger import UsageLedger
from paceline_gateway.usage.types import NOTHING, StoredUsage, UsageAmount, UsageWrite, read_usage, status_of

TENANT = "team"
START = datetime(2026, 11, 15, tzinfo=UTC)


def spent(requests: int = 1, tokens: int = 10, nanos: int = 7) -> UsageAmount:
    """Some use; dollars in billionths."""
    return UsageAmount(requests, tokens, 2 * tokens, Decimal(nanos) / 1_000_000_000)


def total(amounts: list[UsageAmount]) -> UsageAmount:
    """Their sum."""
    return sum(amounts, NOTHING)


@dataclass(eq=False)
class Running:
    """One process of a gateway: what it was charged, what of that is stored, statuses not yet seen."""

    ledger: UsageLedger
    charged: list[UsageAmount] = field(default_factory=list)
    stored: list[UsageAmount] = field(default_factory=list)
    unseen: list[StoredUsage] = field(default_factory=list)
    last: StoredUsage | None = None
    write: UsageWrite | None = None


class World:
    """`moment` is everybody's wall clock, `now` everybody's monotonic one."""

    def __init__(self) -> None:
        self.moment = START
        self.now = 0.0
        self.version = 1
        self.status = MonthlyUsage()
        self.running: list[Running] = []
        self.dead: list[Running] = []

    def start(self, name: str) -> Running:
        """A gateway that lists what there is."""
        process = Running(UsageLedger(name, self.moment))
        process.unseen.append(self.view)
        self.running.append(process)
        self.see(process)
        return process

    @property
    def view(self) -> StoredUsage:
        """What a list says now."""
        return StoredUsage(str(self.version), read_usage(self.status))

    def stored(self, *months: str) -> UsageAmount:
        """All that the status says of these months."""
        return total([entry.spent for entry in self.view.entries if not months or entry.month in months])

    def see(self, process: Running) -> None:
        """The oldest status that it has not seen."""
        if process.unseen:
            process.last = process.unseen.pop(0)
        if process.last is not None:
            process.ledger.on_status(TENANT, process.last)

    def charge(self, process: Running, amount: UsageAmount) -> None:
        """A request ended there."""
        process.ledger.charged(TENANT, amount, self.now)
        process.charged.append(amount)

    def begin(self, process: Running) -> UsageWrite | None:
        """It sends a write, if it has one."""
        process.write = process.ledger.begin(TENANT, self.moment, self.now)
        return process.write

    def take(self, process: Running, write: UsageWrite) -> bool:
        """The write reaches the server; False when it was contested."""
        if write.version != str(self.version):
            return False
        self.version += 1
        self.status = MonthlyUsage.model_validate(status_of(write.entries, write.month)["usage"])
        process.stored += write.delta.values()
        for each in self.running:
            each.unseen.append(self.view)
        return True

    def write(self, process: Running) -> None:
        """A write with its answer."""
        write = self.begin(process)
        if write is not None:
            (process.ledger.written if self.take(process, write) else process.ledger.contested)(TENANT)

    def pass_time(self, **more: float) -> None:
        """Let both clocks go on."""
        step = timedelta(**more)
        self.moment += step
        self.now += step.total_seconds()
        for process in self.running:
            process.ledger.roll(self.moment)

    def flush(self, process: Running) -> None:
        """Write everything, as at an orderly end."""
        for _ in range(50):
            while process.unseen:
                self.see(process)
            if not list(process.ledger.holds(self.now)):
                return
            self.write(process)
        raise AssertionError("something is never written")

    def kill(self, process: Running) -> None:
        """It is gone, whatever it held."""
        self.running.remove(process)
        self.dead.append(process)
