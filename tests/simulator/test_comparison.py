"""What rows say: medians over seeds, each target by itself, costs against the cheapest static pool that holds."""

import re
from collections.abc import Sequence

import pytest
from tests.simulator.rows import PROMISE, row

from paceline_core.objects.resolved import Target
from paceline_core.registry.enums import RequestClass
from paceline_simulator.comparison import Comparison, describe_promise
from paceline_simulator.study_rows import StudyRow


def compared(*rows: StudyRow) -> Comparison:
    return Comparison.of("default/chat", PROMISE, [(one.policy, one.seed) for one in rows], rows)


def test_a_policy_holds_if_the_median_of_its_seeds_does_for_every_target() -> None:
    made = compared(row("slo", 0, 0.96), row("slo", 1, 0.90), row("slo", 2, 0.97), row("kpa", 0, 0.94))
    slo, kpa = made.policies
    assert (slo.holds, slo.attainment, slo.worst.seed, slo.typical.seed) == (True, 0.96, 1, 0)
    assert not kpa.holds
    late_tokens = row("ray", targets={"ttft_p95": 1.0, "tpot_p95": 0.94})
    assert not compared(late_tokens).policies[0].holds


def test_both_targets_may_hold_while_fewer_requests_keep_all() -> None:
    (policy,) = compared(row("slo", 0, 0.93, targets={"ttft_p95": 0.96, "tpot_p95": 0.97})).policies
    assert policy.holds


def test_a_policy_without_rows_is_left_out() -> None:
    made = Comparison.of("default/chat", PROMISE, [("slo", 0), ("kpa", 0)], [row("kpa")])
    assert [policy.policy for policy in made.policies] == ["kpa"]


def test_the_reference_is_the_cheapest_static_pool_that_holds() -> None:
    made = compared(row("static:2", 0, 0.5, 2.0), row("static:3", 0, 0.99, 3.0), row("static:4", 0, 1.0, 4.0))
    assert made.reference is made.policies[1]
    assert [made.against_reference(policy) for policy in made.policies] == [None, 0.0, pytest.approx(1 / 3)]


def test_a_cost_near_that_of_the_reference_is_shown_as_a_tie() -> None:
    made = compared(row("static:3", 0, 1.0, 3.0), row("slo", 0, 1.0, 3.2), row("kpa", 0, 1.0, 4.0), row("ray", 0, 0.1))
    assert [made.cost_against_reference(policy) for policy in made.policies] == ["+0%", "+7%, tie", "+33%", ""]


STATIC = row("static:3", 0, 0.99, 3.0)
HEADLINES: Sequence[tuple[tuple[StudyRow, ...], str]] = (
    ((row("slo", hours=2.1), STATIC), "slo holds .* cost, 2.1 GPU-hours, 30% less than static:3, the cheapest static"),
    ((row("slo", hours=2.95), STATIC), "slo holds .*, about as much as static:3"),
    ((row("slo", hours=4.5), STATIC), "static:3 holds .* cost, 3.0 GPU-hours; slo needs 50% more"),
    ((row("slo", 0, 0.5), STATIC), "static:3 holds .*; no policy of this study that scales holds it"),
    (
        (row("slo", hours=0.5), row("static:1", 0, 0.5)),
        "slo holds .*, 0.50 GPU-hours; no static pool of this study holds",
    ),
    ((row("slo", hours=0.5),), r"slo holds .*, 0.50 GPU-hours\.$"),
    ((STATIC,), r"static:3 holds .*, 3.0 GPU-hours\.$"),
    ((row("slo", 0, 0.5), row("kpa", 0, 0.7)), "No policy holds the promise; kpa is closest, with 70.0% in time"),
)


@pytest.mark.parametrize(("rows", "headline"), HEADLINES)
def test_the_headline_says_what_holds_at_the_least_cost(rows: tuple[StudyRow, ...], headline: str) -> None:
    assert re.match(headline, compared(*rows).headline())


def test_the_headline_begins_with_what_weakens_it() -> None:
    few = [row("slo", 0, offered=199), row("slo", 1, offered=150)]
    made = Comparison.of("default/chat", PROMISE, [("slo", 0), ("slo", 1), ("kpa", 0)], few)
    text = (
        "Interrupted after 2 of 3 runs. Too few requests are scored to judge: 199, and 95% needs about 200. slo holds"
    )
    assert made.headline().startswith(text)


def test_unknown_prices_leave_no_dollars() -> None:
    assert compared(row("slo", dollars=None), row("slo", 1)).policies[0].dollars is None


def test_the_promise_reads_as_a_sentence() -> None:
    slow = Target(RequestClass.INTERACTIVE, "ttft", 0.99, 2.0, per_prompt_token=0.00033)
    assert describe_promise((slow, PROMISE[1])) == "99% TTFT ≤ 2s + 330ms per 1,000 prompt tokens, 95% TPOT ≤ 100ms"
