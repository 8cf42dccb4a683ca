"""The simulation that routing is judged by: it loses nothing, repeats itself, and shows what prefixes are worth."""

from dataclasses import replace
from itertools import pairwise

import pytest
from benchmarks.routing.__main__ import CALLS, KNOWN, runs
from benchmarks.routing.policies import Name
from benchmarks.routing.runs import SERVICE, Outcome, RoutingVariant, measured, simulation
from benchmarks.scheduling.runs import h100

from paceline_core.registry.enums import RequestClass
from paceline_gateway.routing.worker_pool import LIMIT, SLACK_S
from paceline_simulator.simulation import Simulation
from paceline_simulator.traces import BLOCK, TraceRequest

ENGINE = replace(h100(BLOCK), pages=200)


def conversations(count: int, turns: int) -> list[TraceRequest]:
    """Each turn repeats all turns before it and adds a block; conversations take turns with each other."""
    calls = []
    for turn in range(1, turns + 1):
        for number in range(count):
            at = 2.0 * turn + number * 0.05
            blocks = tuple(number * 100 + block for block in range(8 + turn))
            calls.append(TraceRequest(at, len(blocks) * BLOCK, 6, blocks))
    return calls


def run(policy: Name, gateways: int = 1, calls: list[TraceRequest] | None = None) -> tuple[Simulation, Outcome]:
    arriving = {RequestClass.INTERACTIVE: calls or conversations(12, 5)}
    made = simulation(arriving, ENGINE, RoutingVariant(policy, gateways), 3)
    return made, measured(made)


@pytest.mark.parametrize("gateways", [1, 3])
def test_every_call_is_answered_and_nothing_is_left(gateways: int) -> None:
    made, outcome = run("pace", gateways)
    assert len(outcome.ttft) == 60
    assert outcome.prompts == sum(call.prompt_tokens for call in conversations(12, 5))
    for gateway in made.gateways:
        state = gateway.services[SERVICE]
        assert not state.dispatcher.waiting
        assert [(worker.in_flight, len(worker.unbegun)) for worker in state.pool] == [(0, 0)] * 3
    assert all(not engine.open for engine in made.cluster.engines.values())


def test_a_run_repeats_itself() -> None:
    assert run("pace", 3)[1] == run("pace", 3)[1]


def test_conversations_find_their_prefixes_with_pace_and_not_with_round_robin() -> None:
    blind, ours = run("round_robin", calls=conversations(13, 5))[1], run("pace", calls=conversations(13, 5))[1]
    assert ours.hit_rate > 0.55
    assert ours.hit_rate > blind.hit_rate + 0.1


def test_three_gateways_find_nearly_as_much_as_one() -> None:
    assert run("pace", 3)[1].hit_rate >= 0.95 * run("pace")[1].hit_rate


def test_one_document_for_all_gives_no_worker_more_than_the_guard_says() -> None:
    calls = [TraceRequest(0.05 * number, 17 * BLOCK, 20, (*range(16), 100 + number)) for number in range(200)]
    works = [sum(windows.values()) for windows in run("pace", calls=calls)[1].work.values()]
    one = ENGINE.model.seconds(prefill_tokens=17 * BLOCK, sequences=0, kv_tokens=0)
    assert max(works) <= LIMIT * sum(works) / 3 + SLACK_S + one


def test_who_leaves_gets_nothing_more_and_who_joins_gets_its_part_and_every_call_is_answered() -> None:
    variant = RoutingVariant("pace", 2, leaves=4.0, joins=7.0)
    made = simulation({RequestClass.INTERACTIVE: conversations(12, 8)}, ENGINE, variant, 3)
    outcome = measured(made)
    assert len(outcome.ttft) == 12 * 8
    names = [f"chat-main-{number}" for number in range(4)]
    for gateway in made.gateways:
        assert sorted(worker.name for worker in gateway.services[SERVICE].pool) == [names[0], names[1], names[3]]
    shares = [sum(windows.values()) for windows in outcome.work.values()]
    assert len(shares) == 3
    assert 0 < shares[2] < min(shares[:2])


def test_no_sample_holds_calls_that_constants_were_chosen_on() -> None:
    logs = {sample for sample, _ in runs(CALLS, quick=False) if sample.kind in ("conversation", "synthetic")}
    assert all(sample.place >= KNOWN and sample.count >= 2000 for sample in logs)
    parts = sorted(sample.place for sample in logs if sample.kind == "conversation")
    assert all(after - before >= CALLS for before, after in pairwise(parts))
