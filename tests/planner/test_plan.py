"""Plans: what is chosen, what is refused, and the answers on the way."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.every import every

from paceline_planner.accelerators import A100, B200, CATALOGUE, CPU, H100, H200, L4, RTX_5090
from paceline_planner.candidates import PlannedLoad
from paceline_planner.goodput import LatencyPromise
from paceline_planner.hardware import Accelerator
from paceline_planner.lengths import LengthDistribution
from paceline_planner.plan import Plan, plan
from paceline_planner.shapes import CATALOGUE as SHAPES
from paceline_planner.shapes import LLAMA_3_1_8B, LLAMA_3_1_405B, LLAMA_3_3_70B
from paceline_planner.splits import DeviceSplit
from paceline_planner.steptime import Caps

CAPS = Caps(2048, 256)
CHAT = PlannedLoad(20.0, LengthDistribution(1000, 200), LatencyPromise(0.5, 0.05))


def answers(found: Plan) -> list[tuple[str, str, bool]]:
    return [(answer.accelerator, answer.question, answer.passed) for answer in found.decisions]


def test_a_70b_for_chats_takes_four_h100_a_replica_and_l4s_are_too_slow() -> None:
    found = plan(LLAMA_3_3_70B, [H100, L4], CHAT, CAPS)
    assert found.chosen is not None
    assert (found.chosen.replica.accelerator, found.chosen.replica.split) == (H100, DeviceSplit(4))
    assert answers(found) == [
        ("h100", "fits", True),
        ("h100", "fast when idle", True),
        ("h100", "carries the rate", True),
        ("l4", "fits", True),
        ("l4", "fast when idle", False),
        ("h100", "costs least", True),
    ]
    assert "141.1 GB of weights" in found.decisions[0].text
    assert "TPOT 84ms, promised 50ms" in found.decisions[4].text


def test_the_plan_carries_the_rate_within_the_promise_and_costs_least() -> None:
    found = plan(LLAMA_3_1_8B, [A100, B200, H100, H200, L4], CHAT, CAPS)
    assert found.chosen is not None
    assert found.chosen.goodput >= CHAT.rate
    assert found.chosen.ttft_s <= 0.5
    assert found.chosen.tpot_s <= 0.05
    prices = [one.dollars_per_hour for one in (found.chosen, *found.alternatives) if one.dollars_per_hour is not None]
    assert prices == sorted(prices)


def test_cost_and_efficiency_are_of_the_asked_rate() -> None:
    chosen = plan(LLAMA_3_1_8B, [H100], CHAT, CAPS).chosen
    assert chosen is not None
    assert chosen.dollars_per_million_tokens == pytest.approx(3.93 * chosen.replicas / (20 * 1200 * 3600) * 1e6)
    assert chosen.tokens_per_s_per_watt == pytest.approx(20 * 1200 / (700 * chosen.replicas))


def test_an_unknown_price_comes_after_all_known_ones() -> None:
    found = plan(LLAMA_3_1_8B, [RTX_5090, H100], CHAT, CAPS)
    assert found.chosen is not None
    assert found.chosen.replica.accelerator is H100
    assert [one.dollars_per_hour for one in found.alternatives if one.replica.accelerator is RTX_5090] == [None]


def test_what_fits_nowhere_has_no_nearest_promise() -> None:
    found = plan(LLAMA_3_1_405B, [L4, CPU], CHAT, CAPS)
    assert (found.chosen, found.nearest, found.alternatives) == (None, None, ())
    assert answers(found) == [("l4", "fits", False), ("cpu", "fits", False)]


def test_a_promise_that_nothing_keeps_has_a_nearest_one_that_is_kept() -> None:
    found = plan(
        LLAMA_3_1_405B, [H200], PlannedLoad(2.0, LengthDistribution(1000, 200), LatencyPromise(0.3, 0.01)), CAPS
    )
    assert found.chosen is None
    assert found.nearest is not None
    again = plan(LLAMA_3_1_405B, [H200], found.nearest.load, CAPS)
    assert again.chosen is not None


def test_ttft_alone_may_be_promised() -> None:
    found = plan(LLAMA_3_1_8B, [H100], PlannedLoad(5.0, LengthDistribution(1000, 200), LatencyPromise(0.5, inf)), CAPS)
    assert found.chosen is not None


@every(SHAPES.values(), lambda shape: shape.name)
def test_every_model_has_an_answer_on_every_accelerator(shape: object) -> None:
    found = plan(shape, list(CATALOGUE.values()), CHAT, CAPS)  # type: ignore[arg-type]
    assert {answer.accelerator for answer in found.decisions} == set(CATALOGUE)
    assert found.chosen is not None or found.nearest is not None


@settings(max_examples=20)
@given(
    rate=st.floats(0.1, 100),
    prompt=st.integers(10, 8000),
    output=st.integers(1, 1000),
    device=st.sampled_from([H100, L4, A100]),
)
def test_twice_the_rate_never_costs_less(rate: float, prompt: int, output: int, device: Accelerator) -> None:
    lengths, promise = LengthDistribution(prompt, output), LatencyPromise(2.0, 0.1)
    once, twice = (
        plan(LLAMA_3_1_8B, [device], PlannedLoad(each, lengths, promise), CAPS).chosen for each in (rate, 2 * rate)
    )
    if once is None:
        assert twice is None
    elif twice is not None and once.dollars_per_hour is not None:
        assert twice.dollars_per_hour is not None
        assert twice.dollars_per_hour >= once.dollars_per_hour


@every([H100, A100], lambda device: device.name)
def test_a_looser_promise_never_costs_more(device: Accelerator) -> None:
    lengths = LengthDistribution(1000, 200)
    for ttft_s in (0.4, 0.5, 0.8, 2.0):
        costs = []
        for tpot_s in (0.04, 0.05, 0.1, inf):
            load = PlannedLoad(20.0, lengths, LatencyPromise(ttft_s, tpot_s))
            chosen = plan(LLAMA_3_3_70B, [device], load, CAPS).chosen
            price = chosen.dollars_per_hour if chosen else None
            costs.append(inf if price is None else float(price))
        assert costs == sorted(costs, reverse=True), (ttft_s, costs)
