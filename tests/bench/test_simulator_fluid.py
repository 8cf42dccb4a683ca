"""How the fluid model's differences become rows."""

from benchmarks.simulator.fluid import Outcome, cases, compared

EXACT = Outcome(attainment=0.99, gpu_hours=4.0, cpu_s=100.0)


def test_differences_have_no_sign_and_bars_where_one_would_operate() -> None:
    hours, points, speed = compared("conv, slo", Outcome(0.985, 3.9, 0.5), EXACT, 2400.0)
    assert (round(hours.value, 3), round(points.value, 3), speed.value) == (2.5, 0.5, 4800.0)
    assert (hours.passed, points.passed, speed.passed) == (True, True, None)


def test_an_overloaded_pool_has_no_bars_but_for_speed() -> None:
    overloaded = Outcome(0.5, 4.0, 100.0)
    hours, points, speed = compared("code, static:7", Outcome(0.6, 3.0, 0.5), overloaded, 2400.0)
    assert (hours.passed, points.passed, speed.passed) == (None, None, False)


def test_every_workload_has_static_pools_and_every_policy() -> None:
    found = list(cases())
    assert len(found) == len(set(found))
    for cell in ("conv", "code", "gamma"):
        policies = [policy for name, policy, _ in found if name == cell]
        assert {"slo", "keda", "slo-recipe", "hpa-queue"} < set(policies)
        assert sum(policy.startswith("static:") for policy in policies) >= 2
