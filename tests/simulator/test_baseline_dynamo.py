"""Dynamo's planner against its source, ai-dynamo 1.6.1 (perf_model/agg.py, load_scaling.py)."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.autoscaler.factories import NOW, load, view
from tests.simulator.rivals import differences, follow, loaded, seen, with_rate

from paceline_autoscaler.state import PoolSpeed
from paceline_autoscaler.types import Observation, PoolStatus, WorkerLoad
from paceline_core.wire import StepTime
from paceline_simulator.baselines.dynamo import Dynamo, DynamoState, EngineModel
from paceline_simulator.baselines.wva import RequestShape

STEP = StepTime(base=0.013, prefill=60e-6, sequence=30e-6, kv=0.04e-6, observations=50)
KV_TOKENS = 278_000
RATES = [
    # prompt, output, tokens a step, TTFT, TPOT targets in s, KV tokens, slots, requests a second;
    # find_best_engine_agg_rps run with the step above as its regression
    (4000, 1000, 2048, 2.0, 0.1, 278000, 256, 1.508034611),
    (1000, 100, 2048, 2.0, 0.1, 278000, 256, 12.940373967),
    (1000, 100, 2048, 0.5, 0.05, 278000, 256, 11.008807046),
    (300, 300, 2048, 0.5, 0.05, 278000, 64, 10.713807419),
    (8000, 50, 8192, 3.0, 0.3, 278000, 256, 1.920254571),
    (3000, 150, 2048, 0.5, 0.05, 10000, 256, 1.172401665),
    (2000, 20, 512, 0.2, 0.02, 278000, 256, 2.616376423),
]
LOADS = [
    # (KV tokens, queued prompt tokens) of engines, running requests, replicas; _agg_prefill_scaling,
    # _agg_decode_scaling and _scale_decision run, joined as _advance_load_agg does; prompts of 1,000, outputs of 100
    ([(212165, 19662), (237762, 11048)], 0, 2),
    ([(132394, 648)], 60, 1),
    ([(214885, 23776), (198350, 12425), (267797, 16238), (176655, 22435)], 10, 4),
    ([(253210, 0), (202104, 0)], 10, 2),
    ([(170196, 4278), (179182, 6015), (123262, 3043), (131237, 6361)], 60, 3),
    ([(86184, 4796), (76197, 4130), (66132, 3847), (88928, 2614)], 60, 3),
    ([(191463, 71310), (271680, 73425), (232096, 64263)], 60, 4),
    ([(187593, 442), (239066, 443)], 10, 2),
    ([(3936, 4208), (4815, 2975), (5237, 5546)], 0, 2),
    ([(263301, 642), (225722, 649), (206131, 280), (235164, 262)], 60, 4),
    ([(134332, 525), (182138, 385)], 60, 2),
    ([(24579, 4580), (26620, 4882), (25678, 4980)], 10, 2),
    ([(82409, 3450), (68424, 6411), (75764, 4693), (58762, 4160), (77727, 2580)], 60, 4),
    ([(181152, 60112), (221802, 62605), (210425, 63933), (249002, 31064), (181202, 62448)], 0, 6),
    ([(68342, 58869), (64298, 38891), (83670, 70504)], 10, 4),
    ([(84143, 2607), (77370, 5440), (68722, 3390)], 0, 2),
    ([(27000, 509), (20538, 490), (30014, 519)], 0, 2),
    ([(139225, 0), (175800, 0)], 0, 2),
    ([(6021, 0), (5751, 0)], 60, 1),
    ([(85276, 46573), (62706, 44013), (84863, 43016)], 0, 4),
    ([(154679, 264), (144333, 329), (148608, 583)], 10, 2),
    ([(270232, 6209), (197366, 5482), (258876, 5151), (227083, 3656), (209274, 3409)], 60, 5),
    ([(256224, 268)], 0, 1),
    ([(20008, 4424), (20803, 4512), (22118, 2579), (25431, 2712), (29613, 2954)], 60, 4),
    ([(85453, 10981), (65745, 11955)], 10, 2),
    ([(29710, 0)], 10, 1),
    ([(174309, 32396)], 60, 2),
    ([(25323, 419), (24718, 560), (19480, 271)], 60, 2),
    ([(4044, 0), (5792, 0)], 0, 1),
    ([(137748, 390), (159922, 484), (140834, 326), (138695, 299), (153824, 536)], 0, 4),
]


def engine(
    prompt: float, output: float, budget: int = 2048, kv_tokens: int = KV_TOKENS, slots: int = 256
) -> EngineModel:
    return EngineModel(PoolSpeed("main", STEP, slots, kv_tokens), RequestShape(prompt, output), budget)


def report(index: int, kv: int, queued: int = 0, running: int = 0) -> WorkerLoad:
    share = (kv + 0.5) / KV_TOKENS
    return load(
        f"ready-{index}",
        slots=256,
        running=running,
        queued_tokens=queued,
        kv_tokens=KV_TOKENS,
        kv_used=share,
        step_time=STEP,
    )


def serving(pool: PoolStatus, at: float, rate: float) -> Observation:
    loads = tuple(replace(one, step_time=STEP, kv_tokens=KV_TOKENS, slots=256) for one in pool.loads)
    return with_rate(seen(replace(pool, loads=loads), at), rate, 1000, 100)


def test_an_engine_serves_the_rate_of_the_source() -> None:
    made = [
        round(engine(prompt, output, budget, kv, slots).rate(ttft, itl), 9)
        for prompt, output, budget, ttft, itl, kv, slots, _ in RATES
    ]
    assert differences(made, [row[-1] for row in RATES]) == []


def test_loads_give_the_replicas_of_the_source() -> None:
    planner, model = Dynamo(load=True, ttft_s=2.0, itl_s=0.1), engine(1000, 100)
    made = [
        planner.by_load(model, [report(n, kv, queued, running) for n, (kv, queued) in enumerate(engines)])
        for engines, running, _ in LOADS
    ]
    assert differences(made, [row[-1] for row in LOADS]) == []


def test_throughput_sizes_every_interval_for_the_traffic_of_the_last() -> None:
    planner = Dynamo(ttft_s=2.0, itl_s=0.1)
    state, ordered = planner.initial_state(), []
    for step in range(73):
        counts, state = planner.decide(serving(loaded(2), step * 5.0, 20.0 if step < 36 else 50.0), state)
        ordered.append(counts["main"])
    assert ordered == [2] * 36 + [2] * 36 + [4]
    assert (state.sized, state.adjusted_at) == (4, NOW + 360)


def test_load_scaling_waits_until_the_last_change_is_done() -> None:
    planner = Dynamo(load=True)
    busy = tuple(report(n, 270_000, 60_000, 60) for n in range(2))
    for pool, expected in [(view(2), 3), (view(2, starting=1), 3), (view(2, starting=3), 5)]:
        watched = with_rate(seen(replace(pool, loads=busy)), 20.0, 1000, 100)
        assert planner.decide(watched, DynamoState())[0] == {"main": expected}


def test_throughput_is_the_lower_bound_of_load_scaling() -> None:
    planner = Dynamo(load=True)
    idle = with_rate(seen(replace(view(5), loads=tuple(report(n, 100) for n in range(5)))), 1.0, 1000, 100)
    assert planner.decide(idle, DynamoState(sized=5, adjusted_at=NOW))[0] == {"main": 5}
    assert planner.decide(idle, DynamoState(sized=3, adjusted_at=NOW))[0] == {"main": 4}


def test_without_traffic_or_a_fit_nothing_changes() -> None:
    late = DynamoState(adjusted_at=NOW - 180)
    assert Dynamo().decide(seen(loaded(3)), late)[0] == {"main": 3}
    unfit = tuple(replace(one, step_time=StepTime(base=0.01, prefill=1e-5)) for one in view(3).loads)
    assert Dynamo().decide(with_rate(seen(view(3, loads=unfit)), 1.0, 9, 9), late)[0] == {"main": 3}


@settings(max_examples=10)
@given(st.floats(0.1, 200))
def test_a_flat_rate_settles_at_the_replicas_that_serve_it(rate: float) -> None:
    planner = Dynamo(ttft_s=2.0, itl_s=0.1, period_s=30.0)
    ordered = follow(planner, lambda at, n: serving(loaded(n), at, rate), 15)
    assert ordered[-1] == min(max(-(-rate // engine(1000, 100).rate(2.0, 0.1)), 1), 40)
