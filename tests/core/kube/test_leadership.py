"""Who leads, and what is said about it, on a clock that only the test moves."""

import logging

import pytest

from paceline_core.clock import ManualClock
from paceline_core.errors import Unreachable
from paceline_core.kube.leader_election import USABLE, LeaderElector

TTL_S = 15.0


class Api:
    """One lease, held by `holding`; `fault` answers every request while it is set, and an answer takes `slow_s`."""

    def __init__(self, clock: ManualClock) -> None:
        self.holding, self.fault, self.slow_s = "", "", 0.0
        self.clock = clock
        self.candidate = LeaderElector(self, "lease", "us", TTL_S, clock)

    def _answer(self) -> None:
        self.clock.advance(self.slow_s)
        if self.fault:
            raise Unreachable(self.fault)

    async def acquire(self, name: str, holder: str, ttl_s: float) -> bool:
        self._answer()
        self.holding = self.holding or holder
        return self.holding == holder

    async def holder(self, name: str) -> str:
        return self.holding

    async def release(self, name: str, holder: str) -> None:
        assert not self.candidate.leads, "writes must end before somebody else may begin"
        self._answer()
        self.holding = ""


@pytest.fixture
def api() -> Api:
    return Api(ManualClock())


async def test_a_lease_that_cannot_be_renewed_is_used_for_two_thirds_of_its_life(api: Api) -> None:
    await api.candidate.renew()
    api.fault = "no route"
    api.clock.advance(TTL_S * USABLE - 0.1)
    assert not await api.candidate.renew()
    assert (api.candidate.leads, api.candidate.answered, api.candidate.elsewhere) == (True, False, False)
    api.clock.advance(0.1)
    assert not api.candidate.leads


async def test_a_renewal_counts_from_before_it_was_sent(api: Api) -> None:
    api.slow_s = TTL_S * USABLE - 0.1
    assert await api.candidate.renew()
    assert api.candidate.leads
    assert not api.candidate.renewed_within(api.slow_s)
    api.clock.advance(0.1)
    assert not api.candidate.leads


async def test_a_lease_that_somebody_else_holds_ends_all_writes_at_once(api: Api) -> None:
    await api.candidate.renew()
    api.holding = "them"
    assert not await api.candidate.renew()
    assert (api.candidate.leads, api.candidate.answered, api.candidate.elsewhere) == (False, True, True)
    await api.candidate.resign()
    assert api.holding == "them"


async def test_a_lease_that_cannot_be_given_back_is_not_used_any_more(api: Api) -> None:
    await api.candidate.renew()
    api.fault = "no route"
    await api.candidate.resign()
    assert not api.candidate.leads


async def test_an_outage_and_a_lead_are_told_at_their_begin_and_end(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await api.candidate.renew()
    api.fault = "no route"
    for _ in range(10):
        api.clock.advance(2.0)
        await api.candidate.renew()
    api.fault = ""
    await api.candidate.renew()
    await api.candidate.renew()
    fault = "the lease could not be renewed"
    said = [record.getMessage() for record in caplog.records]
    assert said == ["leading", fault, "standing by", f"no longer: {fault}", "leading"]
