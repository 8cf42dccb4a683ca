"""Every policy of the simulator runs in the fluid model as well."""

from dataclasses import replace
from random import Random

import pytest
from tests.simulator.engines import service, spec

from paceline_autoscaler.model.observation import scaling_spec
from paceline_autoscaler.policies.fluid import run
from paceline_autoscaler.policies.fluid_types import FluidPlan
from paceline_autoscaler.state import PoolSpeed
from paceline_simulator.bins import demand_bins, length_spread
from paceline_simulator.policies import BASELINES, SLO, policy_of
from paceline_simulator.workloads import combine, fixed, square, varying

POLICIES = (SLO, "static:2", *BASELINES)


@pytest.fixture(scope="module")
def plan() -> FluidPlan:
    engine, random = spec(), Random(1)
    arrivals = varying(square(5.0, 40.0, 120.0), 40.0, random)
    requests = combine(arrivals, fixed(800, 80), random, 240.0)
    speed = PoolSpeed("main", engine.model, engine.limits.max_seqs, engine.pages * engine.limits.page_tokens)
    return FluidPlan(
        replace(scaling_spec(service()), step_tokens=engine.limits.step_tokens),
        speed,
        demand_bins(requests, span_s=240.0),
        replicas=2,
        lead_s=20.0,
        lengths=length_spread(requests),
    )


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_runs_and_keeps_to_its_bounds(plan: FluidPlan, name: str) -> None:
    result = run(plan, policy_of(name))
    (pool,) = plan.service.pools
    assert all(pool.min <= moment.desired <= pool.max for moment in result.timeline)
    assert result.answered <= result.offered + 1e-6
    assert result == run(plan, policy_of(name))
