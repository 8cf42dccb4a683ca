"""The table of autoscalers: medians over seeds, the worst window, cost over the oracle, and rows that are void."""

from pathlib import Path
from typing import Any

import pytest
from benchmarks.autoscaling import store
from benchmarks.autoscaling.exact import wasted_starts
from benchmarks.autoscaling.report import (
    Interval,
    cell_report,
    difference,
    error_table,
    fluid_errors,
    fluid_report,
    table,
)
from benchmarks.autoscaling.store import CellFile, FluidRow, RunRow, Tuned


def row(policy: str, attainment: float, hours: float, seed: int = 1, window: str = "a", digest: str = "d") -> RunRow:
    shares = (1000.0, 1200.0, 1400.0)
    blocks = [{"offered": 10.0, "attained": 9.0, "gpu_s": hours * share} for share in shares]
    result: dict[str, Any] = {"attainment": attainment, "gpu_hours": hours, "blocks": blocks}
    return RunRow(policy, "x", digest, window, seed, result)


def file_of(*rows: RunRow, **tuned: Tuned) -> CellFile:
    return CellFile("conv", tuned, {each.key: each for each in rows})


def test_a_policy_is_judged_by_the_median_seed_of_its_worst_window() -> None:
    seeds = [row("slo", attained, 2.0, seed) for seed, attained in enumerate((0.999, 0.992, 0.97), 1)]
    found = cell_report(file_of(*seeds, row("slo", 0.985, 3.0, window="b")), lambda _: True).outcomes["slo"]
    assert (found.attainment, found.worst, found.gpu_hours, found.seeds, found.holds) == (0.985, 0.97, 5.0, 1, False)


def test_the_oracle_is_the_cheaper_of_its_run_and_the_static_pool_in_hindsight() -> None:
    rows = (row("oracle", 0.995, 4.0), row("static in hindsight", 0.995, 5.0), row("slo", 0.995, 6.0))
    found = cell_report(file_of(*rows, keda=Tuned("", "")), lambda _: True)
    assert (found.oracle_hours, found.not_offered) == (4.0, ("keda",))
    assert found.room == pytest.approx(0.2)
    cheaper = cell_report(file_of(row("oracle", 0.98, 3.0), *rows[1:]), lambda _: True)
    assert (cheaper.oracle_hours, cheaper.room) == (5.0, 0.0)
    shown = table([found, cheaper], ["slo", "keda"])
    assert "| slo | 99.5 / 1.50 | 99.5 / 1.20 | 2/2 |" in shown
    assert "| keda | not offered |  | 0/2 |" in shown
    assert "| room | 20 % | 0 % (flat) |  |" in shown


def test_rows_of_other_decisions_do_not_count() -> None:
    found = cell_report(file_of(row("slo", 0.9, 1.0, digest="old"), row("slo", 1.0, 2.0, 2)), lambda r: r.digest == "d")
    assert (found.outcomes["slo"].attainment, found.outcomes["slo"].gpu_hours) == (1.0, 2.0)


def test_a_start_is_wasted_if_it_is_given_up_before_it_has_served_as_long_as_it_took() -> None:
    """A moment is every ten seconds; a start takes 180."""
    assert wasted_starts([2, *[4] * 35, 2, 2]) == 2
    assert wasted_starts([2, *[4] * 36, 2, 2]) == 0
    assert wasted_starts([2, *[3] * 30, *[4] * 20, *[3] * 30, 2]) == 1  # the later order goes first
    assert wasted_starts([5, 3]) == 0
    found = row("slo", 1.0, 1.0)
    found.result.update(starts=8, wasted=2)
    assert cell_report(file_of(found), lambda _: True).outcomes["slo"].wasted == 0.25


def test_policies_are_compared_block_by_block_of_the_seeds_that_both_have() -> None:
    ours = [row("slo", 1.0, 1.1, 1), row("slo", 1.0, 9.0, 2)]
    found = difference(ours, [row("static", 1.0, 1.0, 1)])
    assert found is not None
    assert (found.cost.value, found.cost.low, found.cost.high) == pytest.approx((1.1, 1.1, 1.1))
    assert found.points == Interval(0.0, 0.0, 0.0)
    assert difference(ours, [row("static", 1.0, 1.0, 3)]) is None


@pytest.mark.parametrize(("cost", "tie"), [(0.94, True), (1.06, True), (0.88, False), (1.2, False)])
def test_a_margin_within_the_error_of_the_simulator_is_a_tie(cost: float, tie: bool) -> None:
    found = difference([row("slo", 1.0, cost)], [row("static", 1.0, 1.0)])
    assert found is not None
    assert found.tie == tie


def test_the_interval_of_a_difference_is_as_wide_as_blocks_differ() -> None:
    one = row("slo", 1.0, 1.0)
    blocks = [block | {"attained": count} for count, block in enumerate(one.result["blocks"])]
    found = difference([RunRow("keda", "x", "d", "a", 1, one.result | {"blocks": blocks})], [one])
    assert found is not None
    assert found.points.low < found.points.value < found.points.high
    assert found.points.value == pytest.approx(-80.0)


def test_rows_of_the_fluid_model_are_reported_alike_and_what_is_delivered_apart() -> None:
    hours = {
        ("oracle", "best"): 4.0,
        ("static in hindsight", "replicas=5"): 5.0,
        ("slo", "default"): 6.0,
        ("keda", "default"): 8.0,
        ("keda", "running=16"): 7.0,
    }
    rows = [FluidRow("as it is", policy, label, "d", 0.995, cost) for (policy, label), cost in hours.items()]
    found = fluid_report("conv", rows)
    assert found.room == pytest.approx(0.2)
    assert [found.outcomes[name].gpu_hours for name in ("keda", "keda, default")] == [7.0, 8.0]
    assert "| slo | 99.5 / 1.50 |" in table([found], ["slo"])


def test_the_error_of_the_fluid_model_is_of_equal_settings() -> None:
    exact = cell_report(file_of(row("slo", 0.98, 4.0), row("keda", 0.99, 5.0)), lambda _: True)
    rows = [FluidRow("as it is", "slo", "x", "d", 0.99, 3.0), FluidRow("as it is", "keda", "running=8", "d", 0.99, 4.0)]
    errors = fluid_errors(fluid_report("conv", rows), exact)
    assert list(errors) == ["slo"]
    assert (errors["slo"].gpu_time, errors["slo"].points) == pytest.approx((-25.0, 1.0))
    assert error_table({"conv": errors, "code": {}}).splitlines()[-1] == "| slo | -25 % / +1.0 |  |"


def test_a_cell_goes_on_where_it_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "FOLDER", tmp_path)
    file = CellFile.load("conv")
    file.tuned["keda"] = Tuned("running=16", "d", {"running=16": (0.99, 3.0)})
    file.fluid = [FluidRow("as it is", "slo", "default", "d", 0.99, 2.0)]
    file.add(row("slo", 0.99, 1.0))
    again = CellFile.load("conv")
    assert (again.tuned, again.runs, again.fluid) == (file.tuned, file.runs, file.fluid)
    assert again.has(("slo", "x", "a", 1), "d")
    assert not again.has(("slo", "x", "a", 1), "other")
    assert not again.has(("slo", "x", "a", 2), "d")
