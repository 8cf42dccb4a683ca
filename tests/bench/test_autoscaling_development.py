"""Windows for work on our policy, and what is taken out of it there."""

import pytest
from benchmarks.autoscaling.ablations import ABLATIONS, WHOLE, AblatedPolicy, Ablation
from benchmarks.autoscaling.cells import WARMUP_S, Window, cells
from benchmarks.autoscaling.development import developments
from benchmarks.autoscaling.exact import service_plan
from benchmarks.autoscaling.faults import FAULTS, NONE
from benchmarks.autoscaling.fluid import SPEED
from benchmarks.autoscaling.learned import learned
from benchmarks.autoscaling.misjudged import misjudged_plan
from benchmarks.simulator.cells import service

from paceline_autoscaler.model.observation import scaling_spec
from paceline_autoscaler.policies.fluid import run
from paceline_autoscaler.policies.fluid_types import DemandBin, FluidPlan, FluidResult
from paceline_autoscaler.policies.replica_policy import ReplicaPolicy
from paceline_core.registry.enums import RequestClass
from paceline_simulator.policies import policy_of
from paceline_simulator.traces import TraceRequest


def test_every_cell_has_a_window_for_development_and_none_is_scored() -> None:
    found = developments()
    assert found.keys() == cells().keys()
    for name, windows in found.items():
        scored = {window.name for window in cells()[name].scored}
        assert scored.isdisjoint({windows.learned.name, windows.tried.name})
        assert windows.learned.name != windows.tried.name


def trebled(policy: ReplicaPolicy) -> FluidResult:
    """Demand trebles for five minutes, after ten calm ones."""
    calm = DemandBin(4.0, 4000.0, 800.0, 0.0, 2e6, 480_000.0)
    bins = [calm] * 600 + [calm + calm + calm] * 300 + [calm] * 600
    return run(FluidPlan(scaling_spec(service()), SPEED, bins, replicas=2, lead_s=60.0, lead_spread=0.15), policy)


def ablated(ablation: Ablation) -> FluidResult:
    begun = learned("codeC").policy(60.0)
    return trebled(AblatedPolicy(state=begun.state, knowledge=begun.knowledge, ablation=ablation))


def test_with_nothing_taken_out_the_policy_is_the_one_that_ships() -> None:
    assert ablated(ABLATIONS[WHOLE]).timeline == trebled(learned("codeC").policy(60.0)).timeline


def test_parts_that_are_taken_out_change_what_is_decided() -> None:
    """Not all of them do on this demand; those about the past do."""
    whole = ablated(ABLATIONS[WHOLE]).gpu_s
    of_the_past = ("demand stays as it is", "a fixed spread of 15 %", "no history of its own", "past as ratios")
    assert all(ablated(ABLATIONS[name]).gpu_s != pytest.approx(whole, rel=1e-6) for name in of_the_past)


def test_each_fault_changes_the_run_and_a_flood_adds_one_tenants_requests() -> None:
    window = Window("an hour", 3600.0, lambda _: [])
    own = [TraceRequest(10.0 * place, 100, 10) for place in range(420)]
    made = service_plan(own, policy_of("static:1"), 1)
    changed = {name: fault(window, made) for name, fault in FAULTS.items()}
    assert [name for name, plan in changed.items() if plan == made] == [NONE]
    flooded = changed["one tenant's flood"].arrivals[RequestClass.INTERACTIVE]
    start_s = WARMUP_S + 1800.0
    assert [one.at for one in flooded if one.tenant == "flood"] == [start_s + 10.0 * n for n in range(60)]
    assert [one for one in flooded if not one.tenant] == own


def test_a_misjudged_engine_reports_other_steps_than_it_takes() -> None:
    made = service_plan([TraceRequest(0.0, 100, 10)], policy_of("static:1"), 1)
    engine = misjudged_plan(made, 0.8).pools[0].engine
    assert engine.model.seconds(prefill_tokens=100, sequences=1, kv_tokens=50) == pytest.approx(
        0.8 * made.pools[0].engine.model.seconds(prefill_tokens=100, sequences=1, kv_tokens=50)
    )
    assert engine.clock == made.pools[0].engine.clock
    assert engine.model.observations == made.pools[0].engine.model.observations
