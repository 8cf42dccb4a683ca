"""The workload-variant-autoscaler against its source, llm-d-incubation/workload-variant-autoscaler 256df39c."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.autoscaler.factories import goal, load, pool, view
from tests.simulator.rivals import differences, follow, seen, with_rate

from paceline_autoscaler.types import PoolStatus
from paceline_simulator.baselines.wva import RequestShape, Variant, Wva, WvaState, median, queue_demand, request_shape

ANALYSES = [
    # tokens in use, KV tokens, waiting, prompt, output, tokens a step, capacity of a replica; in turn, with one history
    # a group; saturation_v2/analyzer_test.go by name, of a later revision: the cases that this one decides alike
    ("use historical k2 when queue drops below threshold", [(8000, 16000, 6, 100, 50, 0, 8000)]),
    (
        "use historical k2 when queue drops below threshold",
        [(8000, 16000, 6, 100, 50, 0, 8000), (6000, 16000, 2, 100, 50, 0, 8000)],
    ),
    (
        "use different k2 history buckets for different output lengths",
        [(8000, 16000, 6, 100, 50, 0, 8000), (6000, 16000, 2, 100, 600, 0, 12800)],
    ),
    ("derive k2 from chunked prefill params", [(5000, 16000, 2, 500, 100, 2048, 12800)]),
    ("fall back to k1 when no batch/queue/history data exists", [(5000, 16000, 0, 0, 0, 2048, 12800)]),
    # estimateCapacityFromParams, with memory enough not to bind
    ("compute k2 from B, S, I, O", [(1, 10**6, 0, 500, 100, 4096, 140800)]),
    ("cap N_steady at MaxNumSeqs", [(1, 10**6, 0, 100, 200, 8192, 256 * 200)]),
]
QUEUES = [
    # queued requests, their tokens (bytes / 4), prompt, output, demand; "Scheduler queue demand" of the same file
    (10, 0, 100, 50, 1500.0),
    (10, 5000, 100, 50, 5500.0),
    (0, 0, 100, 50, 0.0),
]
CHEAP, EXPENSIVE, MID = (5.0, 10000.0), (15.0, 20000.0), (10.0, 15000.0)
ALLOCATIONS = [
    # (cost, capacity, replicas) of variants, required, spare, replicas; cost_aware_optimizer_test.go
    ([(*CHEAP, 2), (*EXPENSIVE, 1)], 5000, 0, [3, 1]),
    ([(1.0, 0.0, 0), (10.0, 10000.0, 1)], 5000, 0, [0, 2]),
    ([(*CHEAP, 1), (*MID, 1)], 25000, 0, [4, 1]),
    ([(*CHEAP, 3), (*EXPENSIVE, 2)], 0, 15000, [2, 2]),
    ([(*EXPENSIVE, 1), (*CHEAP, 1)], 0, 30000, [0, 1]),
    ([(*EXPENSIVE, 1), (*CHEAP, 1)], 0, 15000, [1, 0]),
    ([(*EXPENSIVE, 2), (*MID, 2), (*CHEAP, 2)], 0, 50000, [0, 2, 1]),
]
MEDIANS = [([], 0), ([42], 42), ([1, 3, 5], 3), ([1, 3, 5, 7], 4), ([5, 1, 3], 3)]


def holding(tokens: int, kv_tokens: int, waiting: int = 0, slots: int = 256) -> PoolStatus:
    one = load("ready-0", slots=slots, waiting=waiting, kv_tokens=kv_tokens, kv_used=tokens / kv_tokens)
    return replace(view(1), loads=(one,))


def test_a_replica_has_the_capacity_of_the_source() -> None:
    wrong = []
    for name, steps in ANALYSES:
        observed: dict[str, tuple[int, ...]] = {}
        for tokens, kv_tokens, waiting, prompt, output, step_tokens, expected in steps:
            shape = RequestShape(prompt, output)
            variant = Wva().analyze(pool(), holding(tokens, kv_tokens, waiting), shape, step_tokens, observed)
            if variant.capacity != expected:
                wrong.append((name, variant.capacity, expected))
    assert wrong == []


def test_requests_queued_at_the_gateways_count_as_in_the_source() -> None:
    demands = []
    for requests, tokens, prompt, output, _ in QUEUES:
        watched = seen(view(1), queued=requests)
        classes = tuple(replace(cls, queued_tokens=tokens) for cls in watched.demand.classes)
        watched = replace(watched, demand=replace(watched.demand, classes=classes))
        demands.append(queue_demand(watched, RequestShape(prompt, output)))
    assert differences(demands, [row[-1] for row in QUEUES]) == []


def test_capacity_is_added_and_removed_by_cost_as_in_the_source() -> None:
    made = []
    for variants, required, spare, _ in ALLOCATIONS:
        supply = sum(capacity * count for _, capacity, count in variants)
        demand = (supply + required) * 0.85 if required else (supply - spare) * 0.70
        built = [
            Variant(pool(name=str(n), min=0, max=99, dollars_per_hour=cost), count, count, 0, capacity, 0.0)
            for n, (cost, capacity, count) in enumerate(variants)
        ]
        made.append(list(Wva().optimize(built, demand).values()))
    assert differences(made, [row[-1] for row in ALLOCATIONS]) == []


def test_pending_replicas_count_as_supply_for_up_and_not_for_down() -> None:
    coming = Variant(pool(min=0), 3, 2, 1, 10000.0, 0.0)
    assert Wva().optimize([coming], 0.85 * 30000) == {"main": 3}
    assert Wva().optimize([coming], 0.85 * 30001) == {"main": 4}
    assert Wva().optimize([coming], 0.70 * 10001) == {"main": 3}
    assert Wva().optimize([coming], 0.70 * 10000) == {"main": 2}


def test_medians_are_those_of_the_source() -> None:
    assert differences([median(values) for values, _ in MEDIANS], [row[-1] for row in MEDIANS]) == []


def test_waiting_requests_of_a_prefill_pool_hold_no_output() -> None:
    shape = RequestShape(100, 50)
    both = Wva().analyze(pool(), holding(5000, 16000, 2), shape, 0, {})
    prefill = Wva().analyze(pool(role="prefill"), holding(5000, 16000, 2), shape, 0, {})
    assert (both.demand, prefill.demand) == (5300.0, 5200.0)


def test_it_decides_once_a_minute_and_its_hpa_follows_every_sync() -> None:
    busy = with_rate(seen(holding(12000, 16000), queued=20), 1.0, 1000, 100)
    counts, state = Wva().decide(busy, WvaState())
    assert (counts, state.decided) == ({"main": 4}, {"main": 4})
    assert request_shape(busy) == RequestShape(1000, 100)
    idle = replace(seen(holding(0, 16000), 45), goal=goal())
    counts, state = Wva().decide(idle, state)
    assert (counts, state.decided) == ({"main": 4}, {"main": 4})
    _, state = Wva().decide(replace(idle, now=idle.now + 15), state)
    assert state.decided == {"main": 1}


def test_without_reports_the_last_capacity_stands() -> None:
    _, state = Wva().decide(seen(holding(12000, 16000)), WvaState())
    assert state.capacity == {"main": 12800.0}
    blind = with_rate(seen(view(2, loads=()), 60, queued=30), 1.0, 1000, 0)
    _, state = Wva().decide(blind, state)
    assert state.decided == {"main": 3}


@settings(max_examples=20)
@given(st.lists(st.integers(0, 500_000), min_size=1, max_size=10), st.integers(20_000, 300_000))
def test_a_flat_demand_settles_within_the_two_thresholds(demands: list[int], kv_tokens: int) -> None:
    demands += [demands[-1]] * 40

    def spread(at: float, n: int) -> PoolStatus:
        share = demands[round(at / 15)] / n / kv_tokens
        return replace(view(n), loads=tuple(load(f"ready-{i}", kv_tokens=kv_tokens, kv_used=share) for i in range(n)))

    ordered = follow(Wva(), lambda at, n: seen(spread(at, n), at, goal=goal(pools=(pool(max=40),))), len(demands))
    assert len(set(ordered[-5:])) == 1
    assert ordered[-1] * kv_tokens * 0.8 * 0.85 * 1.2 >= demands[-1] or ordered[-1] == 40
