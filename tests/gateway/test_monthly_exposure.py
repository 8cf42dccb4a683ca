"""A month's budget against tenants that teach short answers and dense prompts, and then ask for the longest ones."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.gateway import manifests

from paceline_core.objects.defaults import resolve_tenant
from paceline_core.objects.resolved import ResolvedTenant
from paceline_core.objects.tenant import Tenant
from paceline_core.objects.validate import read
from paceline_gateway.request.prompt_size import PromptSize
from paceline_gateway.services.usage_estimates import PRIOR_OUTPUT, OutputLengthEstimator, PromptLengthEstimator
from paceline_gateway.usage.cost import SLACK, BudgetExposure, reserve
from paceline_gateway.usage.ledger import UsageLedger
from paceline_gateway.usage.types import StoredUsage, UsageAmount

TEAM, START = "team", datetime(2026, 11, 1, tzinfo=UTC)
DOLLAR = Decimal("0.00001")
"""A token's."""


def team(**monthly: object) -> ResolvedTenant:
    return resolve_tenant(read(Tenant, manifests.tenant(TEAM, limits={"monthly": monthly})))


def spent(prompt: int, output: int) -> UsageAmount:
    return UsageAmount(1, prompt, output, (prompt + output) * DOLLAR)


@dataclass
class Gateway:
    """What a gateway knows of the tenant; `open` are requests with the most that they may use."""

    tenant: ResolvedTenant
    ledger: UsageLedger = field(default_factory=lambda: UsageLedger("g", START))
    exposure: BudgetExposure = field(default_factory=BudgetExposure)
    outputs: OutputLengthEstimator = field(default_factory=OutputLengthEstimator)
    prompts: PromptLengthEstimator = field(default_factory=PromptLengthEstimator)
    open: dict[int, tuple[PromptSize, int, int]] = field(default_factory=dict)
    asked: int = 0
    largest: int = 0

    def __post_init__(self) -> None:
        self.ledger.on_status(TEAM, StoredUsage("1"))

    def ask(self, text: int, limit: int, choices: int = 1, least: int = 0) -> bool:
        """Whether a request is let in."""
        self.asked += 1
        prompt = PromptSize(text)
        need = spent(
            self.prompts.tokens(prompt, TEAM), self.outputs.expected(TEAM, limit, choices, least=min(least, limit))
        )
        most = spent(max(prompt.text + prompt.tokens, need.input_tokens), limit * choices)
        if reserve(self.ledger, self.exposure, self.asked, self.tenant, need, most) is not None:
            return False
        self.open[self.asked] = (prompt, limit, choices)
        self.largest = max(self.largest, most.tokens)
        return True

    def end(self, share_in: float, share_out: float) -> None:
        """The eldest ends, having used so much of what it might."""
        if not self.open:
            return
        request = next(iter(self.open))
        prompt, limit, choices = self.open.pop(request)
        tokens, output = max(1, round((prompt.text + prompt.tokens) * share_in)), round(limit * choices * share_out)
        self.ledger.release(request)
        self.exposure.release(request)
        self.ledger.charged(TEAM, spent(tokens, output), 0.0)
        self.prompts.learn(prompt, tokens, TEAM)
        if output:
            self.outputs.learn(TEAM, output, choices)

    def end_all_at_their_most(self) -> UsageAmount:
        while self.open:
            self.end(1.0, 1.0)
        return self.ledger.used(TEAM)


@pytest.mark.parametrize("monthly", [{"tokens": 100_000}, {"dollars": "1.00"}])
def test_short_answers_teach_nobody_past_a_months_budget(monthly: dict[str, object]) -> None:
    """30 answers of 5 tokens, then all that is let in, at its longest: 164 times the budget before."""
    gateway = Gateway(team(**monthly))
    for _ in range(30):
        assert gateway.ask(80, 5)
        gateway.end(0.25, 1.0)
    while gateway.ask(80, 4096):
        pass
    assert gateway.asked > 40
    assert gateway.end_all_at_their_most().tokens <= (1 + SLACK) * 100_000


def test_a_request_alone_is_let_in_by_what_is_expected_of_it() -> None:
    gateway = Gateway(team(tokens=1000))
    assert gateway.ask(80, 4096)
    assert not gateway.ask(80, 4096)
    gateway.end(0.25, 0.01)
    assert gateway.ask(80, 4096)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 40_000), st.integers(1, 8192), st.integers(1, 32), st.integers(0, 99)),
        st.tuples(st.just("end"), st.floats(0.01, 1), st.floats(0, 1)),
    ),
    max_size=60,
)
FLOOD = [("ask", 40, 4, 1, 0), ("end", 0.1, 1.0)] * 30 + [("ask", 40, 8192, 4, 0)] * 200


@given(STEPS, st.integers(1_000, 2_000_000), st.booleans())
@example(FLOOD, 100_000, False)
@example(FLOOD, 100_000, True)
def test_no_tenant_passes_its_month_by_more_than_a_tenth_or_one_request(
    steps: list[tuple[object, ...]], budget: int, priced: bool
) -> None:
    gateway = Gateway(team(dollars=f"{budget * DOLLAR:.6f}") if priced else team(tokens=budget))
    for what, *how in steps:
        getattr(gateway, str(what))(*how)
    assert gateway.end_all_at_their_most().tokens <= budget + max(SLACK * budget, gateway.largest) + 1
    assert not gateway.exposure
    assert gateway.ledger.reserved(TEAM).tokens == 0


def test_several_gateways_share_the_slack() -> None:
    tenant = team(tokens=1000)
    for gateways, let in ((1, True), (2, False)):
        exposure, ledger = BudgetExposure(), UsageLedger("g", START)
        for request in range(2):
            assert (
                reserve(ledger, exposure, request, tenant, UsageAmount(1, 0, 10), UsageAmount(1, 0, 60), gateways)
                is None
            )
        assert (exposure.of(TEAM) == UsageAmount(0, 0, 100)) == let


def test_tenants_do_not_see_each_others_exposure() -> None:
    exposure = BudgetExposure()
    exposure.add(1, "a", UsageAmount(0, 5, 5))
    exposure.add(2, "b", UsageAmount(0, 1, 1))
    exposure.release(1)
    exposure.release(1)
    assert (exposure.of("a"), exposure.of("b").tokens, len(exposure)) == (UsageAmount(), 2, 1)


def test_what_an_answer_has_for_certain_is_reserved() -> None:
    outputs = OutputLengthEstimator()
    for _ in range(30):
        outputs.learn(TEAM, 5, 1)
    assert outputs.expected(TEAM, 4096, 3) == 15
    assert outputs.expected(TEAM, 4096, 3, least=1000) == 3000
    assert outputs.expected(TEAM, 800, 3, least=1000) == 2400


def test_while_much_is_open_no_less_than_the_prior_is_reserved() -> None:
    outputs = OutputLengthEstimator()
    for _ in range(30):
        outputs.learn(TEAM, 5, 1)
    assert outputs.expected(TEAM, 4096, 2, overexposed=True) == 2 * PRIOR_OUTPUT
    assert outputs.expected(TEAM, 40, 2, overexposed=True) == 80
