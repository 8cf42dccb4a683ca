"""Month to date: what is charged is stored once, whoever writes, dies, starts again, folds or never hears an answer."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.gateway import manifests
from tests.gateway.usage_world import START, TENANT, World, spent, total

from paceline_core.errors import Code
from paceline_core.objects.defaults import resolve_tenant
from paceline_core.objects.tenant import MonthlyUsage, Tenant
from paceline_core.objects.validate import read
from paceline_gateway.usage.ledger import UsageLedger
from paceline_gateway.usage.types import (
    MAX_ENTRIES,
    SETTLED,
    StoredUsage,
    UsageAmount,
    UsageEntry,
    before,
    end_of,
    month_of,
)

GATEWAYS = st.integers(0, 2)
BUDGET = resolve_tenant(read(Tenant, manifests.tenant(TENANT, limits={"monthly": {"tokens": 100, "dollars": "0.50"}})))


class Gateways(RuleBasedStateMachine):
    """Three gateways with writes that are late, lost on the way there, or lost on the way back."""

    @initialize()
    def begin_with_three(self) -> None:
        self.world = World()
        self.late: list[tuple[object, object]] = []
        self.rolled = False
        for number in range(3):
            self.world.start(f"g{number}")

    @rule(which=GATEWAYS, requests=st.integers(1, 3), nanos=st.integers(0, 50))
    def charge(self, which: int, requests: int, nanos: int) -> None:
        self.world.charge(self.world.running[which], spent(requests, nanos=nanos))

    @rule(which=GATEWAYS)
    def send(self, which: int) -> None:
        process = self.world.running[which]
        if process.write is None:
            self.world.begin(process)

    @rule(which=GATEWAYS)
    def answer(self, which: int) -> None:
        process = self.world.running[which]
        if process.write is not None:
            good = self.world.take(process, process.write)
            (process.ledger.written if good else process.ledger.contested)(TENANT)
            process.write = None

    @rule(which=GATEWAYS, arrives=st.sampled_from(["never", "now", "late"]))
    def answer_is_lost(self, which: int, arrives: str) -> None:
        process = self.world.running[which]
        if process.write is None:
            return
        if arrives == "now":
            self.world.take(process, process.write)
        elif arrives == "late":
            self.late.append((process, process.write))
        process.ledger.unanswered(TENANT)
        process.write = None

    @precondition(lambda self: self.late)
    @rule()
    def late_write_arrives(self) -> None:
        process, write = self.late.pop(0)
        self.world.take(process, write)  # type: ignore[arg-type]

    @rule(which=GATEWAYS)
    def see(self, which: int) -> None:
        self.world.see(self.world.running[which])

    @rule(which=GATEWAYS)
    def kill_and_start_again(self, which: int) -> None:
        process = self.world.running[which]
        self.world.kill(process)
        self.world.start(process.ledger.gateway)

    @rule(minutes=st.sampled_from([1, 10, 70]))
    def pass_time(self, minutes: int) -> None:
        self.world.pass_time(minutes=minutes)
        if minutes == 70:  # nobody is without an answer for an hour while the watch is silent too
            for process in list(self.world.running):
                if process.write is None:
                    self.world.flush(process)

    @precondition(lambda self: not self.rolled)
    @rule()
    def month_ends(self) -> None:
        self.rolled = True
        self.world.pass_time(days=16)

    @invariant()
    def what_is_stored_is_what_was_written(self) -> None:
        everybody = [*self.world.running, *self.world.dead]
        assert self.world.stored() == total([amount for process in everybody for amount in process.stored])

    def teardown(self) -> None:
        for process in self.world.running:
            if process.write is not None:
                process.ledger.unanswered(TENANT)
            self.world.flush(process)
            assert total(process.stored) == total(process.charged)


TestGateways = Gateways.TestCase


def test_a_restart_goes_on_from_what_is_stored() -> None:
    world = World()
    first = world.start("g0")
    world.charge(first, spent())
    world.flush(first)
    world.kill(first)
    again = world.start("g0")
    world.charge(again, spent())
    assert again.ledger.used(TENANT) == spent() + spent()
    world.flush(again)
    assert [(entry.gateway, entry.spent) for entry in world.view.entries] == [("g0", spent() + spent())]


def test_a_gateway_that_dies_loses_what_it_had_not_written_and_no_more() -> None:
    world = World()
    first = world.start("g0")
    world.charge(first, spent())
    world.flush(first)
    world.charge(first, spent(5))
    world.kill(first)
    assert world.start("g0").ledger.used(TENANT) == spent()


def test_every_gateway_counts_what_the_others_have_stored() -> None:
    world = World()
    one, other = world.start("g0"), world.start("g1")
    world.charge(one, spent())
    world.charge(other, spent(2))
    world.flush(one)
    world.see(other)
    assert other.ledger.used(TENANT) == spent() + spent(2)


def test_a_write_that_was_contested_is_reckoned_anew() -> None:
    world = World()
    one, other = world.start("g0"), world.start("g1")
    for process in (one, other):
        world.charge(process, spent())
    world.write(one)
    world.write(other)
    assert world.stored() == spent()
    world.flush(other)
    assert world.stored() == spent() + spent()


@pytest.mark.parametrize("arrived", [True, False])
def test_a_write_without_an_answer_happens_once(arrived: bool) -> None:
    world = World()
    gateway = world.start("g0")
    world.charge(gateway, spent())
    write = world.begin(gateway)
    assert write is not None
    if arrived:
        world.take(gateway, write)
    gateway.ledger.unanswered(TENANT)
    world.charge(gateway, spent(3))
    world.flush(gateway)
    assert world.stored() == spent() + spent(3)


def test_a_status_that_a_good_write_has_replaced_is_not_news() -> None:
    world = World()
    gateway = world.start("g0")
    old = world.view
    world.charge(gateway, spent())
    world.write(gateway)
    gateway.ledger.on_status(TENANT, old)
    assert gateway.ledger.used(TENANT) == spent()


def test_an_idle_gateways_entry_is_folded_and_it_goes_on_when_it_was_alive_after_all() -> None:
    world = World()
    idle, busy = world.start("g0"), world.start("g1")
    world.charge(idle, spent())
    world.flush(idle)
    world.pass_time(hours=2)
    world.charge(busy, spent(2))
    world.flush(busy)
    assert {entry.gateway: entry.spent for entry in world.view.entries} == {SETTLED: spent(), "g1": spent(2)}
    world.charge(idle, spent(4))
    world.flush(idle)
    assert {entry.gateway: entry.spent for entry in world.view.entries} == {
        SETTLED: spent(), "g0": spent(4), "g1": spent(2),
    }  # fmt: skip


def test_a_status_never_holds_more_entries_than_it_may() -> None:
    world = World()
    for number in range(MAX_ENTRIES + 40):
        gateway = world.start(f"g{number:03}")
        world.charge(gateway, spent())
        world.flush(gateway)
        world.kill(gateway)
        world.pass_time(seconds=1)
    assert len(world.view.entries) <= MAX_ENTRIES + 2
    assert world.stored().requests == MAX_ENTRIES + 40


def test_a_new_month_begins_at_nothing_and_the_last_one_stays_readable() -> None:
    world = World()
    gateway = world.start("g0")
    world.charge(gateway, spent())
    world.flush(gateway)
    world.charge(gateway, spent(2))
    world.pass_time(days=16)
    world.charge(gateway, spent(5))
    assert gateway.ledger.used(TENANT) == spent(5)
    world.flush(gateway)
    assert (world.stored("2026-11"), world.stored("2026-12")) == (spent() + spent(2), spent(5))


def test_months_older_than_the_last_one_are_dropped() -> None:
    world = World()
    gateway = world.start("g0")
    world.charge(gateway, spent())
    world.flush(gateway)
    world.pass_time(days=60)
    world.charge(gateway, spent(2))
    world.flush(gateway)
    assert {entry.month for entry in world.view.entries} == {"2027-01"}


def test_a_restart_forgets_no_billionth_of_a_dollar() -> None:
    world = World()
    gateway = world.start("g0")
    world.charge(gateway, UsageAmount(1, 2, 3, Decimal("0.000000001")))
    world.flush(gateway)
    assert world.stored().dollars == Decimal("0.000000001")
    again = world.start("g0")
    world.charge(again, UsageAmount(1, 2, 3, Decimal("12.345678901")))
    world.flush(again)
    assert world.start("g0").ledger.used(TENANT).dollars == Decimal("12.345678902")


def test_a_status_of_millionths_is_added_to() -> None:
    world = World()
    world.status = MonthlyUsage.model_validate(
        {"month": "2026-11", "gateways": [{"id": "g0", "dollars": "0.000007", "time": "2026-11-15T00:00:00Z"}]}
    )
    gateway = world.start("g0")
    world.charge(gateway, UsageAmount(1, 2, 3, Decimal("0.000000001")))
    world.flush(gateway)
    assert world.stored().dollars == Decimal("0.000007001")


def test_what_is_reserved_counts_so_that_many_at_once_cannot_pass_the_budget() -> None:
    ledger = UsageLedger("g0", START)
    need = UsageAmount(1, 10, 20)
    refused = [ledger.reserve(number, BUDGET, need) for number in range(5)]
    assert [refusal is None for refusal in refused] == [True, True, True, False, False]
    ledger.release(0)
    assert ledger.reserve(9, BUDGET, need) is None


def test_a_refusal_says_what_is_left_and_when_the_month_ends_and_that_a_retry_does_not_help() -> None:
    ledger = UsageLedger("g0", START)
    ledger.on_status(TENANT, StoredUsage("1", (UsageEntry("other", "2026-11", UsageAmount(3, 40, 50), ""),)))
    refusal = ledger.reserve(1, BUDGET, UsageAmount(1, 10, 20))
    assert refusal is not None
    assert refusal.code is Code.INSUFFICIENT_QUOTA
    assert not refusal.row.should_retry
    assert refusal.message == (
        "Of your monthly budget of 100 tokens 10 are left, and this request may use 30;"
        " the month ends at 2026-12-01T00:00:00Z."
    )


def test_a_budget_in_dollars_refuses_once_it_is_used_up_even_where_a_cost_is_unknown() -> None:
    ledger = UsageLedger("g0", START)
    tenant = replace(BUDGET, monthly_tokens=None)
    entry = UsageEntry("other", "2026-11", UsageAmount(1, 1, 1, Decimal("0.49")), "")
    ledger.on_status(TENANT, StoredUsage("1", (entry,)))
    assert ledger.reserve(1, tenant, UsageAmount(1, 1, 1)) is None
    assert ledger.reserve(2, tenant, UsageAmount(1, 1, 1, Decimal("0.02"))) is not None
    ledger.charged(TENANT, UsageAmount(1, 1, 1, Decimal("0.01")), 0.0)
    refusal = ledger.reserve(3, tenant, UsageAmount(1, 1, 1))
    assert refusal is not None
    assert "$0.50 $0.000000 are left" in refusal.message


def test_a_raised_budget_holds_at_once_and_a_new_month_does_too() -> None:
    ledger = UsageLedger("g0", START)
    ledger.on_status(TENANT, StoredUsage("1", (UsageEntry("other", "2026-11", UsageAmount(3, 50, 50), ""),)))
    assert ledger.reserve(1, BUDGET, UsageAmount(1, 1, 1)) is not None
    assert ledger.reserve(1, replace(BUDGET, monthly_tokens=200), UsageAmount(1, 1, 1)) is None
    ledger.roll(end_of("2026-11"))
    assert ledger.reserve(2, BUDGET, UsageAmount(1, 1, 1)) is None


def test_a_deleted_tenant_is_forgotten() -> None:
    ledger = UsageLedger("g0", START)
    ledger.on_status(TENANT, StoredUsage("1"))
    ledger.charged(TENANT, spent(), 0.0)
    ledger.keep({})
    ledger.charged(TENANT, spent(), 0.0)
    assert not list(ledger.holds(1.0))


def test_months_are_utcs() -> None:
    assert (month_of(START), before("2026-01"), before("2026-12")) == ("2026-11", "2025-12", "2026-11")
    assert end_of("2026-12").isoformat() == "2027-01-01T00:00:00+00:00"
