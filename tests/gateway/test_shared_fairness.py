"""Fair together: what a tenant is served at other gateways counts here, and never so much that it waits in vain."""

import random
from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from paceline_core.registry import RequestClass
from paceline_gateway.queueing.fair_queue import FairQueue
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.queueing.shared_fairness import MAX_REPORTED, PART, SharedFairness

EVERYWHERE = "everywhere"
NAME = "default/chat interactive"


def queued(number: int, tenant: str, tokens: int, weight: int = 1) -> QueuedRequest:
    return QueuedRequest(number, RequestClass.INTERACTIVE, tokens, 40, deadline=1e9, tenant=tenant, weight=weight)


class Sums:
    """Where all keep their sums."""

    def __init__(self) -> None:
        self.kept: dict[str, float] = {}

    def share(self, common: SharedFairness) -> None:
        for name, amount in common.report().items():
            self.kept[name] = self.kept.get(name, 0.0) + amount
        common.heard(dict(self.kept))


class Gateway:
    """A line whose tenants always have somebody waiting."""

    def __init__(self, tenants: Iterable[str], dice: random.Random, largest: int) -> None:
        self.line, self.served = FairQueue(), Counter[str]()
        self.common = SharedFairness(lambda: {NAME: self.line})
        self._tenants, self._dice, self._largest, self._number = list(tenants), dice, largest, 0

    def serve(self, tokens: int) -> None:
        """So many, or a little more."""
        spent = 0
        while spent < tokens:
            for tenant in self._tenants:
                while self.line.shares.of(tenant) < 2:
                    self._number += 1
                    self.line.join(queued(self._number, tenant, self._dice.randint(1, self._largest)))
            gone = self.line.next(None)
            assert gone is not None
            self.line.went(gone)
            self.served[gone.tenant] += gone.prompt_tokens
            spent += gone.prompt_tokens


def jain(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) ** 2 / (len(found) * sum(value**2 for value in found))


def day(seed: int, largest: int, rounds: int, *, sharing: bool) -> list[Gateway]:
    """Three gateways with a tenant of their own each, and one that sends to all of them."""
    dice, sums = random.Random(seed), Sums()
    gateways = [Gateway([EVERYWHERE, f"only-{number}"], dice, largest) for number in range(3)]
    for _ in range(rounds):
        for gateway in dice.sample(gateways, 3):
            gateway.serve(min(10 * largest, 1000))
            if sharing:
                sums.share(gateway.common)
    return gateways


def together(gateways: Iterable[Gateway]) -> Counter[str]:
    return sum((gateway.served for gateway in gateways), Counter[str]())


@given(seed=st.integers(0, 2**32), largest=st.sampled_from([10, 100, 500]))
def test_three_gateways_with_skewed_arrivals_are_fair_together(seed: int, largest: int) -> None:
    assert jain(together(day(seed, largest, 40, sharing=True)).values()) >= 0.95


def test_without_sharing_they_are_not() -> None:
    assert jain(together(day(1, 100, 40, sharing=False)).values()) < 0.8


@given(seed=st.integers(0, 2**32))
def test_who_is_served_elsewhere_is_still_served_here(seed: int) -> None:
    """Even by a gateway where nobody else wants anything: a request that waits here must not wait in vain."""
    dice, sums = random.Random(seed), Sums()
    here, there = Gateway([EVERYWHERE, "only"], dice, 100), Gateway([EVERYWHERE], dice, 100)
    for _ in range(40):
        for gateway in (here, there):
            gateway.serve(1000)
            sums.share(gateway.common)
    assert here.served[EVERYWHERE] >= (1 - PART) / (2 + PART) * sum(here.served.values())
    assert here.served[EVERYWHERE] < here.served["only"]


def counted(line: FairQueue) -> float:
    line.join(queued(1, "a", 10))
    return line.accounts.counter("a")


def test_own_reports_are_not_charged_again_and_those_of_others_are_in_part() -> None:
    line = FairQueue()
    common = SharedFairness(lambda: {NAME: line})
    before = counted(line)
    common.report()
    common.heard({f"{NAME}\na": 500.0})
    assert line.accounts.counter("a") == before, "what there was before is none of ours"
    (gone,) = line
    line.went(gone)
    assert common.report() == {f"{NAME}\na": 10.0}
    common.heard({f"{NAME}\na": 510.0 + 40.0, "gone interactive\nb": 9.0})
    assert line.accounts.counter("a") == before + 10 + PART * 40
    common.report()
    common.heard({f"{NAME}\na": 3.0})
    assert line.accounts.counter("a") == before + 10 + PART * 40, "sums that began anew charge nobody"


def test_what_was_served_while_nobody_could_be_asked_is_not_made_up_for() -> None:
    line = FairQueue()
    common = SharedFairness(lambda: {NAME: line})
    before = counted(line)
    common.heard({})
    common.report()
    common.lost()
    common.report()
    common.heard({f"{NAME}\na": 10_000.0})
    assert line.accounts.counter("a") == before


def test_a_report_holds_no_more_tenants_than_one_message_takes() -> None:
    line = FairQueue()
    for number in range(MAX_REPORTED + 5):
        each = queued(number, f"t{number}", number + 1)
        line.join(each)
        line.went(each)
    told = SharedFairness(lambda: {NAME: line}).report()
    assert len(told) == MAX_REPORTED
    assert min(told.values()) == 6
