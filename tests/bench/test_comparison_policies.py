"""The policies that the gateway's own is compared with: each does what other gateways do."""

from collections import Counter
from typing import get_args

import pytest
from benchmarks.routing.policies import Name, make
from tests.gateway.fleets import INTERACTIVE, KV, LOOKAHEAD_S, NOW, ask, fleet, has, picked, picks, say, worker

from paceline_gateway.routing.worker_pool import WorkerPool


def choosing(*names: str, policy: Name, **said: object) -> WorkerPool:
    return fleet(*names, policy=make(policy, lookahead_s=LOOKAHEAD_S, seed=1), **said)


@pytest.mark.parametrize("policy", [name for name in get_args(Name) if name != "pace"])
def test_every_policy_is_deterministic_and_picks_a_worker_with_room_or_none(policy: Name) -> None:
    prompts = [ask(number % 4, tokens=50) for number in range(25)]
    first, second = (picks(choosing("a", "b", "c", policy=policy, slots=6), prompts) for _ in range(2))
    assert first[18:] == [None] * 7
    assert Counter(first[:18]) == {"a": 6, "b": 6, "c": 6}
    assert first == second


def test_round_robin_takes_turns_and_least_requests_looks_at_them() -> None:
    turns = choosing("a", "b", "c", policy="round_robin")
    assert [picked(turns, ask(1)) for _ in range(6)] == ["a", "b", "c", "a", "b", "c"]
    fewest = choosing("a", "b", policy="least_requests")
    worker(fewest, "a").take(1, 1, INTERACTIVE, NOW, stream=True)
    assert [picked(fewest, ask(1)) for _ in range(3)] == ["b", "b", "b"]


def test_least_kv_takes_the_emptiest_and_prefix_the_longest_match_that_is_not_overloaded() -> None:
    empty = choosing("a", "b", policy="least_kv")
    say(empty, "a", kv=KV.model_copy(update={"free": 500}))
    assert picked(empty, ask(1)) == "b"
    made, asked = choosing("a", "b", policy="prefix"), ask(1)
    has(made, "b", asked, 1)
    assert picked(made, asked) == "b"
    worker(made, "b").take(1, 1, INTERACTIVE, NOW, stream=True)
    assert picked(made, asked) == "a"
